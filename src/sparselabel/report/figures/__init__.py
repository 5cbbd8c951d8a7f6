"""Figures, each with the numbers it shows as CSV, from what training and evaluation left on the disk."""
