"""The result page of a plan: one HTML file that opens offline."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from sparselabel.comparison.planned_runs import Outcome
from sparselabel.config import TrainConfig
from sparselabel.data.annotation_budget import Kind
from sparselabel.files import atomic_write
from sparselabel.plan.budget import Budget
from sparselabel.plan.recommendation import comparable, difference, recommend
from sparselabel.plan.results import NAMES, KindResult, Measure
from sparselabel.report.charts import Chart, Drawn, Line, draw
from sparselabel.report.figures.style import COLORS, MARKERS, new_figure, style
from sparselabel.report.page import environment


def measures_of(rows: Sequence[KindResult]) -> list[Measure]:
    """The evaluated metrics."""
    measures: tuple[Measure, ...] = ("mAP", "mAP-loc")
    return [measure for measure in measures if any(row.mean(measure) is not None for row in rows)]


def draw_plan(rows: Sequence[KindResult], split: str, out: Path) -> None:
    """A panel for each measure, a curve with its spread over draws for each kind."""
    measures = measures_of(rows)
    kinds = list(dict.fromkeys(row.kind for row in rows))
    with style():
        figure = new_figure(4.6 * max(1, len(measures)), 3.9)
        grid = figure.subplots(1, max(1, len(measures)), squeeze=False)[0]
        for axes, measure in zip(grid, measures, strict=False):
            for number, kind in enumerate(kinds):
                own = [row for row in rows if row.kind == kind and row.mean(measure) is not None]
                axes.errorbar(
                    [row.hours for row in own],
                    [row.mean(measure) or 0.0 for row in own],
                    yerr=[row.spread(measure) or 0.0 for row in own],
                    label=f"{kind}: {NAMES[kind]}",
                    capsize=2,
                    color=COLORS[number % len(COLORS)],
                    marker=MARKERS[number % len(MARKERS)],
                )
            axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))  # a spread may reach below what there can be
            axes.set_xscale("log")
            at = sorted({row.hours for row in rows})
            axes.set_xticks(at, [f"{hours:.3g}" for hours in at])
            axes.minorticks_off()
            axes.set_xlabel("hours of annotation")
            axes.set_ylabel(f"{split} {measure}, %")
        handles, names = grid[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=2 if len(measures) == 1 else 3)
        with atomic_write(out) as partial:
            figure.savefig(partial, format="png", dpi=150, metadata={"Software": "sparselabel"})


@dataclass(frozen=True)
class About:
    """How a plan was made, for its page.

    ``chosen_by``: images and known labels of the validation split that chose the best epoch of every run.
    """

    data: str
    split: str
    evaluated: int
    draws: int
    methods: tuple[str, str]
    config: TrainConfig
    command: Sequence[str]
    version: str
    failed: Sequence[Outcome] = ()
    chosen_by: tuple[int, int] = (0, 0)


def write_page(rows: Sequence[KindResult], budget: Budget, about: About, out: Path) -> None:
    """Write the page at once."""
    kinds = list(dict.fromkeys(row.kind for row in rows))
    compared = comparable([row for row in rows if row.fraction == 1])
    lines = [
        {"row": row, "behind": _behind(row.kind, compared) if row.fraction == 1 else ""}
        for row in sorted(rows, key=lambda row: (-row.fraction, kinds.index(row.kind)))
    ]
    today = date.today()
    text = (
        environment()
        .get_template("plan.html")
        .render(
            about=about,
            advice=recommend(rows),
            budget=budget,
            charts=[_chart(rows, measure, about.split) for measure in measures_of(rows)],
            command=shlex.join(about.command),
            complete=[
                (NAMES[kind], budget.hours_of_all(kind))
                for kind in kinds
                if budget.complete.get(kind, budget.share(1)) < budget.share(1)
            ],
            kinds=[{"kind": kind, "name": NAMES[kind], "number": n} for n, kind in enumerate(kinds)],
            lines=lines,
            paid=max(row.bought["answers"] for row in rows),
            located="mAP-loc" in measures_of(rows),
            seconds=budget.seconds_per_image,
            spent=100 * budget.share(1),
            today=f"{today.day} {today:%B %Y}",
            version=about.version,
        )
    )
    with atomic_write(out) as partial:
        partial.write_text(text, encoding="utf-8")


def _chart(rows: Sequence[KindResult], measure: Measure, split: str) -> Drawn:
    """Curves over the fractions; each is usually twice the one before, so they stand at equal distances."""
    hours = sorted({row.hours for row in rows})
    lines = []
    for number, kind in enumerate(dict.fromkeys(row.kind for row in rows)):
        own = {row.hours: row for row in rows if row.kind == kind}
        spreads = [(own[at].spread(measure) or 0.0) if at in own else 0.0 for at in hours]
        values = [own[at].mean(measure) if at in own else None for at in hours]
        lines.append(Line(kind, number, values, spreads=spreads if any(spreads) else ()))
    title, axis = f"{measure} against the budget", "test" if split == "test" else "validation"
    names = [f"{at:.3g}" for at in hours]
    return draw(Chart(title, "hours of annotation", f"{axis} {measure}, %", names, lines))


def _behind(kind: Kind, compared: Sequence[KindResult]) -> str:
    """How far a kind is behind the best one; "" if it cannot be compared."""
    row = next((row for row in compared if row.kind == kind), None)
    best = max(compared, key=lambda row: row.mean() or 0.0, default=None)
    if row is None or best is None or row is best:
        return "" if row is None else "best"
    gap = difference(best, row, compared)
    margin = "" if gap.margin is None else f" ± {gap.margin:.1f}"
    return f"−{gap.mean:.1f}{margin}{', clearly' if gap.clear else ''}"
