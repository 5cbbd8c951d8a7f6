"""The page of a plan, its figure and its charts."""

from dataclasses import replace
from pathlib import Path

from PIL import Image

from sparselabel.comparison.planned_runs import Outcome, PlannedRun
from sparselabel.config import FinetunePhase, TrainConfig
from sparselabel.data.annotation_budget import Kind, Prices
from sparselabel.errors import RunError
from sparselabel.plan.budget import Budget
from sparselabel.plan.plan_page import About, draw_plan, write_page
from sparselabel.plan.results import KindResult

BOUGHT = {
    "answers": 1234.4,
    "positive": 90.0,
    "points": 80.0,
    "boxes": 0.0,
    "images": 700.0,
    "classes_unseen": 0.5,
}
ABOUT = About(
    "birds & bees", "test", 500, 3, ("csl-i", "patchml"), TrainConfig(), ["sparselabel", "plan", "a b"], "0.1"
)


def row(kind: Kind, fraction: float, value: float, place: float | None = 20.0) -> KindResult:
    values = {draw: value + 0.1 * draw * draw for draw in range(3)}
    places = {} if place is None else {draw: place + draw for draw in range(3)}
    return KindResult(kind, fraction, 40 * fraction, BOUGHT, {"mAP": values, "mAP-loc": places})


ROWS = [row("I", 0.5, 50), row("SP", 0.5, 52), row("I", 1, 60), row("SP", 1, 63)]


def test_the_page_says_it_all(tmp_path: Path) -> None:
    write_page(ROWS, Budget(40, 100_000, 4000, 20, Prices(), (0.5, 1)), ABOUT, tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert "<h1>40 hours of annotation for birds &amp; bees</h1>" in text
    assert "Buy answers with one point: mAP 63.2 ± 0.2 against 60.2 ± 0.2 for answers alone." in text
    assert '<td class="n">1,234</td><td class="n">90</td>' in text
    assert "−3.0 ± 0.0, clearly" in text
    assert text.count('<svg viewBox="0 0 360.0') == 2  # mAP and mAP-loc
    assert text.count('class="line around') == 4
    assert "with 1.44 s an image: 7.2 % of what" in text
    assert "1.6 hours in all. The real data will have 25 times as many answers" in text
    assert "<pre>sparselabel plan &#39;a b&#39;</pre>" in text
    assert "http://" not in text
    assert "https://" not in text
    assert "src=" not in text
    assert not (tmp_path / "plan.html.partial").exists()


def test_labels_that_the_budget_did_not_pay_for_are_counted(tmp_path: Path) -> None:
    budget, file = Budget(40, 100_000, 4000, 20, Prices()), tmp_path / "plan.html"
    write_page(ROWS, budget, replace(ABOUT, chosen_by=(50, 1000)), file)
    said = "chosen by 50 validation images with 1,000 known labels, which the budget did not pay for. Who has"
    assert said in file.read_text(encoding="utf-8")
    write_page(ROWS, budget, replace(ABOUT, chosen_by=(100, 2000)), file)
    assert "did not pay for: more than the 1,234 answers that it bought" in file.read_text(encoding="utf-8")
    write_page(ROWS, budget, ABOUT, file)
    assert "did not pay for" not in file.read_text(encoding="utf-8")


def test_kinds_that_are_complete_are_named(tmp_path: Path) -> None:
    budget = Budget(40, 4000, 4000, 20, Prices(), (0.5, 1), {"I": 1.0, "SP": 1.9})
    write_page(ROWS, budget, ABOUT, tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert "Answers alone are complete at 22.2 hours: a larger budget buys no more of them." in text
    assert text.count("are complete at") == 1  # the points take 42.2 hours


def test_a_sample_of_its_own_and_what_was_not_judged(tmp_path: Path) -> None:
    about = About(
        "scenes",
        "val",
        50,
        1,
        ("an", "patchml"),
        TrainConfig(finetune=FinetunePhase(epochs=1)),
        [],
        "0.1",
        [Outcome(PlannedRun("patchml", 0, TrainConfig(), Path("SP"), "SP"), None, RunError("boom"))],
    )
    rows = [row("I", 1, 60, None), KindResult("SP", 1, 40, BOUGHT)]
    write_page(rows, Budget(40, 4000, 4000, 40, Prices()), about, tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert "The hours are those of the sample itself." in text
    assert "these also chose the best epoch" in text
    assert "1 run failed and is left out: patchml with SP, seed 0: boom" in text
    assert "all of it trained" in text
    assert "mAP-loc, %" not in text


def test_the_figure_has_a_panel_for_each_measure(tmp_path: Path) -> None:
    draw_plan(ROWS, "test", tmp_path / "two.png")
    draw_plan([row("I", 1, 60, None)], "test", tmp_path / "one.png")
    with Image.open(tmp_path / "two.png") as two, Image.open(tmp_path / "one.png") as one:
        assert two.width == 2 * one.width
