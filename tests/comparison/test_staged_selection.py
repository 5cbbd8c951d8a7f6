"""The head's settings first, then those of fine-tuning."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparselabel.comparison.compare import compare
from sparselabel.comparison.grid import Varied
from sparselabel.comparison.planned_runs import Outcome, plan_runs
from sparselabel.comparison.staged_selection import first_stage, refuse_stages, second_stage
from sparselabel.config import FinetunePhase
from sparselabel.data.dataset import Dataset
from sparselabel.errors import ConfigError, RunError
from sparselabel.run import Run
from tests.comparison.test_runner import TINY, data  # noqa: F401

HERE: dict[str, Any] = {"accelerator": "cpu", "workers": 0, "quiet": True}
BOTH = replace(TINY, finetune=FinetunePhase(epochs=1, lr=1e-3, start="best"))
CHOOSE = [Varied("head.lr", ("0.01", "0.1")), Varied("finetune.lr", ("0.001", "0.01", "0.1"))]


def test_only_the_chosen_heads_are_fine_tuned(tmp_path: Path) -> None:
    alone, of_head, out = first_stage(BOTH, CHOOSE, tmp_path)
    assert (alone.finetune.epochs, [one.name for one in of_head], out) == (0, ["head.lr"], tmp_path / "head")
    heads = plan_runs(alone, ["an", "role"], [0, 1], out, of_head)
    values = {("an", "0.01"): 0.3, ("an", "0.1"): 0.4, ("role", "0.01"): 0.5, ("role", "0.1"): 0.2}
    outcomes = [
        Outcome(
            run,
            {"oracle": False, "validation": {"value": values[run.method, run.chosen[0][1]]}, "test": None},
        )
        for run in heads
    ]
    planned = plan_runs(BOTH, ["an", "role"], [0, 1], tmp_path, CHOOSE)
    left, failed = second_stage(planned, outcomes)
    assert failed == []
    assert {(run.method, run.chosen[0]) for run in left} == {
        ("an", ("head.lr", "0.1")), ("role", ("head.lr", "0.01")),
    }  # fmt: skip
    assert len(left) == 2 * 3 * 2  # methods, rates of fine-tuning, seeds
    broken = [replace(one, result=None, error=RunError("no")) for one in outcomes if one.run.method == "an"]
    left, failed = second_stage(planned, [*broken, *outcomes[4:]])
    assert ({run.method for run in left}, failed) == ({"role"}, broken)


@pytest.mark.parametrize(
    ("base", "choose", "varied"),
    [
        (TINY, CHOOSE, None),  # nothing to fine-tune
        (replace(BOTH, frozen=False), CHOOSE, None),  # no stored features
        (BOTH, CHOOSE[1:], None),  # nothing to choose first
        (BOTH, CHOOSE[:1], CHOOSE[1]),
    ],
)
def test_what_has_no_stages(base: Any, choose: list[Varied], varied: Varied | None) -> None:
    refuse_stages(BOTH, CHOOSE, None)
    with pytest.raises(ConfigError) as refused:
        refuse_stages(base, choose, varied)
    assert refused.value.what == "staged"


def test_trained_for_real(data: Dataset, tmp_path: Path) -> None:  # noqa: F811
    choose = {"head.lr": [0.01, 0.1], "finetune.lr": [0.001, 0.01]}
    made = compare(data, ["an"], out=tmp_path, config=BOTH, choose=choose, staged=True, **HERE)
    folders = sorted(path.parent for path in (tmp_path / "head").glob("*/result.json"))
    heads = {path.name: Run(path) for path in folders}
    assert [*heads] == ["an-lr=0.01-seed0", "an-lr=0.1-seed0"]
    best = max(heads.values(), key=lambda run: run.result()["validation"]["value"]).config().head.lr
    assert [one.run.config.head.lr for one in made.outcomes] == [best, best]
    assert [one.run.config.finetune.lr for one in made.outcomes] == [0.001, 0.01]
    assert [name for name, _ in made.rows[0].chosen] == ["head.lr", "finetune.lr"]
    first = (heads[f"an-lr={best:g}-seed0"].path / "metrics.jsonl").read_text().splitlines()[0]
    again = (made.outcomes[0].run.path / "metrics.jsonl").read_text().splitlines()[0]
    assert first == again  # the same head, to the bit
    other = replace(BOTH, head=replace(BOTH.head, epochs=2))
    with pytest.raises(RunError) as refused:
        compare(data, ["an-ls"], out=tmp_path, config=other, **HERE)
    assert (refused.value.what, refused.value.value) == (made.outcomes[0].run.path, ["head.epochs"])
    more = compare(data, ["an-ls"], out=tmp_path, config=BOTH, **HERE)
    assert [row.method for row in more.rows] == ["an-ls"]
