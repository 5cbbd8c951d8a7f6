"""What the runs in a plan's folder were bought with: another budget or price needs another folder."""

from pathlib import Path
from typing import Any

from sparselabel.errors import ConfigError
from sparselabel.json_file import read_json, write_json
from sparselabel.plan.hours import Budget


def refuse_other_budget(budget: Budget, out: Path) -> None:
    """Raise if runs that are there were bought with another budget or at other prices."""
    file = out / "plan.json"
    if not file.is_file() or not any((out / "runs").glob("*")):
        return
    before, now = read_json(file), _bought_with(budget)
    differ = [f"--{name} {before[name]:g}, not {now[name]:g}" for name in now if before[name] != now[name]]
    if differ:
        raise ConfigError(
            f"the runs in {out} were bought with {'; '.join(differ)}: give what they were begun with, to go "
            "on with them, or choose another --out"
        )


def keep_budget(budget: Budget, out: Path) -> None:
    """Write plan.json, before the first run."""
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "plan.json", _bought_with(budget))


def _bought_with(budget: Budget) -> dict[str, Any]:
    """What decides what every fraction buys, by the names of the flags."""
    prices = budget.prices
    return {
        "budget": budget.hours,
        "pictures": budget.pictures,
        "answer-seconds": prices.answer,
        "point-seconds": prices.point,
        "box-seconds": prices.box,
    }
