"""The figure of a plan as PNG: mAP, and mAP-loc where it was judged, against the budget for every kind."""

from collections.abc import Sequence
from pathlib import Path

from sparselabel.plan.outcomes import NAMES, Measure, Reached
from sparselabel.report.figures.style import COLOURS, MARKERS, new_figure, style


def measures_of(rows: Sequence[Reached]) -> list[Measure]:
    """What was judged."""
    measures: tuple[Measure, ...] = ("mAP", "mAP-loc")
    return [measure for measure in measures if any(row.mean(measure) is not None for row in rows)]


def draw_plan(rows: Sequence[Reached], split: str, out: Path) -> None:
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
                    color=COLOURS[number % len(COLOURS)],
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
        figure.savefig(out, dpi=150, metadata={"Software": "sparselabel"})
