"""Several methods on one data set: train all, choose settings on validation, make a table.

    plan ──▶ check ──▶ train (here, or on a cluster) ──▶ rows ──▶ chance ──▶ tables

Finished runs are skipped, so a comparison that was stopped goes on where it was.
"""
