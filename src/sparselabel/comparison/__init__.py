"""Several methods on one data set: train all, choose settings on validation, make a table.

    planned_runs ──▶ runner (here), ray_runs (on a cluster) ──▶ summary ──▶ result_tables

Finished runs are skipped, so a comparison that was stopped goes on where it was.
"""
