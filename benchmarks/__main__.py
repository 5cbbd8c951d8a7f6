"""All benchmarks, one after the other: `make bench`. Ratios in one run; a target is a target, not a test."""

import importlib

from benchmarks.common import show

for name in ("frozen", "tuning", "startup", "role", "ranking", "heatmaps", "coco", "report", "location"):
    show(name, importlib.import_module(f"benchmarks.{name}").main())
