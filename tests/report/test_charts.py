"""Scales, ticks and paths."""

import pytest

from sparselabel.report import charts
from sparselabel.report.charts import Chart, Line, density, draw, median, nice, places_of_ticks


@pytest.mark.parametrize(("step", "next_"), [(0.3, 0.5), (1, 1), (1.1, 2), (6, 10), (0.02, 0.02)])
def test_nice_steps(step: float, next_: float) -> None:
    assert nice(step) == pytest.approx(next_)


def test_ticks_of_epochs() -> None:
    assert places_of_ticks(5) == [0, 1, 2, 3, 4]
    assert [place + 1 for place in places_of_ticks(8)] == [2, 4, 6, 8]
    assert [place + 1 for place in places_of_ticks(30)] == [1, 5, 10, 15, 20, 25, 30]
    assert len(places_of_ticks(1000)) <= 8


def test_a_line() -> None:
    line = Line("an", 0, [60.0, None, 80.0], best=2)
    drawn = draw(Chart("T", "epoch", "mAP, %", ["1", "2", "3"], [line]))
    left, right = charts.LEFT, charts.WIDTH - charts.RIGHT
    top, bottom = charts.TOP, charts.HEIGHT - charts.BOTTOM
    assert drawn.paths == [(0, f"M{left} {bottom}L{right} {top}")]
    assert [label for _, label in drawn.y_ticks] == ["60", "65", "70", "75", "80"]
    assert [(x, label) for x, label in drawn.x_ticks] == [
        (left, "1"),
        ((left + right) / 2, "2"),
        (right, "3"),
    ]
    assert [(mark.title, mark.best) for mark in drawn.marks[0][1]] == [
        ("an, 1: 60.0", False),
        ("an, 3: 80.0", True),
    ]
    assert drawn.says == "T. mAP, % by epoch. an: 60.0 at 1, 80.0 at 3"


def test_stairs_stand_on_zero() -> None:
    chart = Chart(
        "T", "score", "%", ["0", "0.5", "1"], [Line("an", 0, [1.0, 2.0])], from_zero=True, steps=True
    )
    assert chart.places == 2
    drawn = draw(chart)
    bottom, top = charts.HEIGHT - charts.BOTTOM, charts.TOP
    middle = (charts.LEFT + charts.WIDTH - charts.RIGHT) / 2
    half, right = (bottom + top) / 2, charts.WIDTH - charts.RIGHT
    assert drawn.paths == [(0, f"M{charts.LEFT} {bottom}V{half}H{middle}V{top}H{right}V{bottom}")]


@pytest.mark.parametrize("values", [[], [None], [5.0], [0.0, 0.0]])
def test_hardly_any_values(values: list[float | None]) -> None:
    drawn = draw(Chart("T", "x", "y", ["1", "2"], [Line("an", 0, values)]))
    assert len(drawn.y_ticks) >= 2


def test_medians() -> None:
    assert median([0, 4, 0, 0]) == pytest.approx(0.375)
    assert median([2, 0, 0, 2]) == pytest.approx(0.25)
    assert median([0, 0]) == 0


def test_shades_of_a_density() -> None:
    drawn = density("an", "epoch", "score", ["1", "2"], [[4, 0], [1, 1]])
    levels = [level for level, _ in drawn.shades]
    assert levels == [14, 20]  # half as many are the root of a half as strong
    assert drawn.chart.lines[0].values == pytest.approx([0.25, 0.5])


def test_spreads_reach_up_and_down_and_fit() -> None:
    line = Line("an", 0, [60.0, None, 80.0], spreads=[4.0, 0.0, 5.0])
    drawn = draw(Chart("T", "x", "y", ["1", "2", "3"], [line]))
    assert [label for _, label in drawn.y_ticks] == ["50", "60", "70", "80", "90"]
    scale = (drawn.y_ticks[0][0] - drawn.y_ticks[-1][0]) / 40
    ((number, path),) = drawn.bars
    assert (number, path.count("M")) == (0, 2)
    low, high = (float(value) for value in path.split("M")[1].split(" ")[1].split("V"))
    assert low - high == pytest.approx(8 * scale, abs=0.11)
    assert draw(Chart("T", "x", "y", ["1", "2"], [Line("an", 0, [1.0, 2.0])])).bars == []
