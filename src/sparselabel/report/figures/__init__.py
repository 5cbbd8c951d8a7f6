"""Figures, each with its numbers as CSV, from files that training and evaluation wrote."""
