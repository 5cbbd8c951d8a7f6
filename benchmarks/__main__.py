"""All benchmarks, one after the other: `make bench`. Ratios in one run; a target is a target, not a test."""

import importlib

from benchmarks.common import show

NAMES = (
    *("frozen", "tuning", "startup", "role", "ranking", "heatmaps", "patches"),
    *("coco", "report", "location", "estimator", "side_by_side"),
)
for name in NAMES:
    show(name, importlib.import_module(f"benchmarks.{name}").main())
