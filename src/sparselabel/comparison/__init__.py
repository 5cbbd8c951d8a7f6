"""Several methods on one data set: train all, choose settings on validation, make a table.

    planned_runs ──▶ runner (here), ray_runs (on a cluster) ──▶ summary ──▶ result_tables
    compare: all of it as one function, and its result as an object

Finished runs are skipped, so a comparison that was stopped goes on where it was.
"""
