"""The recommendation of a plan, and how sure it is."""

import numpy as np
import pytest

from sparselabel.data.annotation_budget import KINDS, Kind
from sparselabel.plan.recommendation import Difference, comparable, difference, recommend
from sparselabel.plan.results import KindResult

NONE: dict[int, float] = {}


def row(kind: Kind, *values: float, fraction: float = 1, located: dict[int, float] = NONE) -> KindResult:
    return KindResult(kind, fraction, 10 * fraction, {}, {"mAP": dict(enumerate(values)), "mAP-loc": located})


def test_mean_and_spread() -> None:
    assert row("I", 60, 61, 63).text() == "61.3 ± 1.5"
    assert row("I", 60).text() == "60.0"
    assert row("I").text() == "–"
    assert row("I", 60).spread() is None


def between(*rows: KindResult) -> Difference:
    return difference(rows[0], rows[1], rows)


def test_differences_are_paired() -> None:
    gap = between(row("SP", 50, 60, 70), row("I", 48, 57, 69))
    assert gap.mean == 2
    assert gap.margin == pytest.approx(4.303 / 3**0.5, rel=1e-3)  # of two kinds it is Student's; deviation 1
    assert not gap.clear
    assert str(gap) == "2.0 points (95 % interval −0.5 to 4.5)"
    assert between(row("SP", 50, 60, 70), row("I", 47, 57, 67)).clear
    alone = between(row("SP", 50), row("I", 47))
    assert (alone.margin, alone.clear) == (None, False)


def test_the_interval_is_for_all_kinds_at_once() -> None:
    rows = row("SP", 3, 0), row("I", 0, 1), row("AB", 0, 2)
    # Means of draws are equal (1), so what is left are the values less their kind's mean.
    left = np.array([[1.5, -1.5], [-0.5, 0.5], [-1, 1]])
    spread = (float((left**2).sum()) / 2) ** 0.5
    assert between(*rows).margin == pytest.approx(8.330783 * spread / 2**0.5)


@pytest.mark.parametrize(("kinds", "draws"), [(5, 3), (3, 5)])
def test_equal_kinds_are_told_apart_in_one_plan_of_twenty(kinds: int, draws: int) -> None:
    random = np.random.default_rng(1)
    plans = 2000
    values = 60 + random.normal(size=(plans, 1, draws)) + random.normal(size=(plans, kinds, draws))
    wrong = 0
    for plan in values.tolist():
        found = recommend([row(kind, *own) for kind, own in zip(KINDS, plan, strict=False)])
        assert found is not None
        wrong += len(found.rivals) < kinds - 1
    assert wrong / plans == pytest.approx(0.05, abs=0.015)


def test_a_clear_best_is_recommended() -> None:
    found = recommend([row("I", 60.0, 61.0, 62.0), row("SP", 63.1, 64.0, 65.0), row("AB", 50.0, 51.2, 52.0)])
    assert found is not None
    assert (found.buy, found.clear, found.rivals) == ("SP", True, ())
    assert (
        found.headline == "Buy answers with one point: mAP 64.0 ± 1.0 against 61.0 ± 1.0 for answers alone."
    )
    assert "more than the spread over draws explains" in found.sentences[0]


def test_of_those_that_may_be_best_the_simplest() -> None:
    rows = [row("I", 60, 62, 61), row("SP", 62, 61, 62), row("SB", 40, 41.1, 41.3)]
    found = recommend(rows)
    assert found is not None
    assert (found.buy, found.best, found.clear, found.rivals) == ("I", "SP", False, ("I",))
    assert found.headline.startswith("Not clear. Answers with one point came out best (mAP 61.7 ± 0.6), but ")
    assert found.headline.endswith(
        "answers alone (61.0 ± 1.0) may be as good and are the simplest: buy answers alone."
    )
    assert found.sentences[0].endswith("would tell. Clearly worse: answers with one box.")
    simple = recommend([row("I", 62, 61, 62), row("SP", 60, 62, 61)])
    assert simple is not None
    assert (simple.buy, simple.clear) == ("I", False)
    assert simple.headline.endswith(
        "The difference is not clear, but nothing that costs more work was better."
    )


def test_one_draw_says_nothing_of_chance() -> None:
    found = recommend([row("I", 60), row("SP", 70)])
    assert found is not None
    assert (found.buy, found.clear) == ("I", False)
    assert (
        "10.0 points in a single draw. One draw says nothing of chance: take 3 or more." in found.sentences[0]
    )


def test_smaller_budgets_and_places() -> None:
    places = {"I": {0: 20.0, 1: 21.0, 2: 22.0}, "SP": {0: 30.0, 1: 31.0, 2: 32.0}}
    rows = [
        row("I", 50, 51, 52, fraction=0.5),
        row("SP", 53, 54, 55, fraction=0.5),
        row("I", 60, 61, 62, located=places["I"]),
        row("SP", 57, 58, 59, located=places["SP"]),
    ]
    found = recommend(rows)
    assert found is not None
    assert found.sentences[1:] == (
        "With 1/2 of the budget answers alone reach 51.0 ± 1.0: the rest of the money brings 10.0 points "
        "more.",
        "With 1/2 of the budget answers with one point are clearly better (54.0 ± 1.0 against 51.0 ± 1.0).",
        "If the model must also show where things are: answers with one point have the highest mAP-loc, "
        "31.0 ± 1.0 against 21.0 ± 1.0 for answers alone (a clear difference).",
    )


def drawn(kind: Kind, values: dict[int, float]) -> KindResult:
    return KindResult(kind, 1, 10, {}, {"mAP": values, "mAP-loc": {}})


def test_failed_runs_leave_the_draws_that_all_kinds_have() -> None:
    rows = [drawn("I", {0: 50, 1: 90, 2: 52}), drawn("SP", {0: 55, 2: 56})]
    assert [of.values["mAP"] for of in comparable(rows)] == [{0: 50, 2: 52}, {0: 55, 2: 56}]
    found = recommend(rows)
    assert found is not None
    assert found.best == "SP"  # over all draws the mean of answers alone is higher
    assert (
        found.sentences[0]
        == "As runs have failed, kinds are compared by draws 0 and 2, which all of them have."
    )
    assert "are ahead of answers alone, the second, by 4.5 points" in found.sentences[1]


def test_a_kind_without_a_draw_in_common_is_left_out() -> None:
    rows = [
        drawn("I", {0: 60, 1: 61, 2: 62}),
        drawn("SB", {1: 99}),
        drawn("SP", {0: 63.1, 2: 65}),
        drawn("AB", {}),
    ]
    assert [of.kind for of in comparable(rows)] == ["I", "SP"]
    found = recommend(rows)
    assert found is not None
    assert found.best == "SP"
    assert found.sentences[0] == (
        "As runs have failed, kinds are compared by draws 0 and 2, which all of them have; left out: answers "
        "with one box and answers with all boxes."
    )
    assert comparable([drawn("AB", {})]) == []


def test_a_single_kind_and_none() -> None:
    alone = recommend([row("I", 60, 61)])
    assert alone is not None
    assert (alone.buy, alone.clear) == ("I", False)
    assert alone.headline == "Only answers alone were tried: mAP 60.5 ± 0.7."
    assert recommend([row("I"), row("SP", 60, fraction=0.5)]) is None
