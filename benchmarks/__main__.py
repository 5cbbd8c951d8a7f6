"""Benchmarks, one after the other: `make bench`, or `python -m benchmarks NAME ...`. A target is no test."""

import importlib
import sys

from benchmarks.common import show

NAMES = (
    *("frozen", "tuning", "startup", "role", "ranking", "heatmaps", "patches"),
    *("coco", "report", "location", "estimator", "side_by_side"),
)
for name in sys.argv[1:] or NAMES:
    show(name, importlib.import_module(f"benchmarks.{name}").main())
