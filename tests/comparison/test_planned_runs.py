from dataclasses import replace
from pathlib import Path

import pytest

from sparselabel.comparison.grid import CHOOSE, VARY, Varied, choices
from sparselabel.comparison.planned_runs import note_on_preset, plan_runs
from sparselabel.config import FinetunePhase, HeadPhase, TrainConfig
from sparselabel.errors import ConfigError

BASE = TrainConfig(head=HeadPhase(epochs=2, lr=0.01), finetune=FinetunePhase(epochs=1, lr=1e-5))
OUT = Path("out")
RATES = choices(["head.lr", "0.1", "0.01"])


def names(*words: str, methods: tuple[str, ...] = ("an",)) -> list[str]:
    return [run.path.name for run in plan_runs(BASE, methods, [0], OUT, choices(words))]


def test_plan_is_methods_times_choices_times_seeds() -> None:
    choose = choices(["head.lr", "0.001", "1e-5", "head.batch-size", "8"])
    planned = plan_runs(BASE, ["an", "an-ls"], [0, 7], OUT, choose)
    assert [str(run.path.relative_to(OUT)) for run in planned] == [
        "an-lr=0.001-batch-size=8-seed0",
        "an-lr=0.001-batch-size=8-seed7",
        "an-lr=1e-05-batch-size=8-seed0",
        "an-lr=1e-05-batch-size=8-seed7",
        "an-ls-lr=0.001-batch-size=8-seed0",
        "an-ls-lr=0.001-batch-size=8-seed7",
        "an-ls-lr=1e-05-batch-size=8-seed0",
        "an-ls-lr=1e-05-batch-size=8-seed7",
    ]
    for run in planned:
        rate = float(dict(run.chosen)["head.lr"])
        tuned = replace(BASE.head, lr=rate, batch_size=8)
        assert run.config == replace(BASE, method=run.method, seed=run.seed, head=tuned)
    assert str(planned[1]) == "an, head.lr 0.001, head.batch-size 8, seed 7"


def test_without_a_choice_a_run_has_the_settings_given() -> None:
    (run,) = plan_runs(BASE, ["an"], [0], OUT)
    assert (run.path.name, run.chosen, run.config) == ("an-seed0", (), replace(BASE, method="an"))


def test_names_that_end_alike_are_written_out() -> None:
    words = ("head.lr", "0.1", "finetune.lr", "0.2", "finetune.batch-size", "4")
    assert names(*words) == ["an-head.lr=0.1-finetune.lr=0.2-batch-size=4-seed0"]


def test_a_method_chooses_among_the_settings_that_it_has() -> None:
    words = ("settings.weight", "0.1", "1", "settings.smoothing", "0.1", "settings.count-weight", "2")
    assert names(*words, methods=("an", "an-ls", "en+cl", "role")) == [
        "an-seed0",
        "an-ls-smoothing=0.1-seed0",
        "en+cl-weight=0.1-seed0",
        "en+cl-weight=1-seed0",
        "role-count-weight=2-seed0",
    ]


def test_a_choice_for_some_methods_only() -> None:
    found = names("*cl:settings.weight", "0.1", "1", methods=("role", "en+cl", "en+scl"))
    assert found == ["role-seed0", *(f"en+{c}-weight={w}-seed0" for c in ("cl", "scl") for w in ("0.1", "1"))]


def test_each_method_takes_the_settings_it_has() -> None:
    base = replace(BASE, settings={"expected_positives": 2.5, "smoothing": 0.3})
    planned = plan_runs(base, ["an", "an-ls", "role"], [0], OUT)
    assert [run.config.settings for run in planned] == [
        {},
        {"smoothing": 0.3},
        {"expected_positives": 2.5},
    ]


def test_each_method_takes_the_preset_if_it_has_it() -> None:
    base = replace(BASE, settings={"preset": "voc", "share": 0.1})
    planned = plan_runs(base, ["an", "asl", "ll-r+cl", "em"], [0], OUT)
    assert [run.config.settings for run in planned] == [
        {},
        {},
        {"preset": "voc", "share": 0.1},
        {"preset": "voc"},
    ]
    assert note_on_preset(["an", "asl", "em"], "voc") == [
        "preset voc: an, asl keep their defaults, as they have none"
    ]
    assert note_on_preset(["em", "gr"], "voc") == note_on_preset(["em", "asl"], None) == []
    with pytest.raises(ConfigError, match="none of the methods an, asl has a preset 'voc'"):
        plan_runs(replace(BASE, settings={"preset": "voc"}), ["an", "asl"], [0], OUT)


def test_a_preset_that_is_varied_is_not_dropped() -> None:
    # Runs that differ in nothing but their name would say that the presets are equal.
    planned = plan_runs(BASE, ["asl"], [0], OUT, varied=Varied("settings.preset", ("q2l",)))
    assert [run.config.settings.get("preset") for run in planned] == ["q2l"]
    planned = plan_runs(BASE, ["asl", "em"], [0], OUT, varied=Varied("settings.preset", ("voc", "coco")))
    presets = [run.config.settings.get("preset") for run in planned]
    assert presets == ["voc", "coco"] * 2  # refused by asl itself


def test_what_cannot_work_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(ConfigError, match="nothing to compare") as empty:
        plan_runs(BASE, [], [0], OUT)
    assert (empty.value.what, empty.value.parameters) == ("methods", ["methods"])
    with pytest.raises(ConfigError, match="there is no method 'rolle': did you mean 'role'"):
        plan_runs(BASE, ["an", "rolle"], [0], OUT)
    with pytest.raises(ConfigError, match="none of the methods an, bce has a setting 'momentum'"):
        plan_runs(replace(BASE, settings={"momentum": 0.5}), ["an", "bce"], [0], OUT)
    with pytest.raises(ConfigError, match="lr` must be above 0"):
        names("head.lr", "0.1", "-1")
    with pytest.raises(ConfigError, match=r"`choose=\*cl:head.batch-size` is for none of the methods an"):
        names("*cl:head.batch-size", "8")
    with pytest.raises(ConfigError, match=r"for an, `vary` or `choose` names head.batch-size more than once"):
        names("head.batch-size", "8", "an:head.batch-size", "16")


@pytest.mark.parametrize(
    ("methods", "seeds", "said"),
    [
        (["an", "bce", "an"], [0], "`methods` names an more than once: name each once"),
        (["an"], [2, 1, 0, 1, 2], "`seeds` names 2, 1 more than once"),
    ],
)
def test_what_is_named_twice_is_refused(methods: list[str], seeds: list[int], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan_runs(BASE, methods, seeds, OUT)


def test_two_values_must_not_share_a_folder() -> None:
    with pytest.raises(ConfigError, match=r"a run's folder names .*weights=a_b-seed0 more than once"):
        names("weights", "a/b", "a_b")


def test_a_setting_is_varied_for_the_methods_that_have_it() -> None:
    varied = Varied("settings.momentum", ("0.8", "0.5"))
    base = replace(BASE, settings={"expected_positives": 2.5})
    planned = plan_runs(base, ["an", "en"], [0], OUT, RATES, varied)
    assert [(run.path.name, run.value) for run in planned] == [
        ("an-lr=0.1-seed0", ""),
        ("an-lr=0.01-seed0", ""),
        ("en-momentum=0.8-lr=0.1-seed0", "0.8"),
        ("en-momentum=0.8-lr=0.01-seed0", "0.8"),
        ("en-momentum=0.5-lr=0.1-seed0", "0.5"),
        ("en-momentum=0.5-lr=0.01-seed0", "0.5"),
    ]
    assert planned[0].config.settings == {}
    assert planned[-1].config.settings == {"expected_positives": 2.5, "momentum": 0.5}
    assert planned[-1].config.head.lr == 0.01
    assert planned[-1].chosen == (("head.lr", "0.01"),)


def test_what_is_no_setting_of_a_method_is_varied_for_all() -> None:
    planned = plan_runs(BASE, ["an", "bce"], [0], OUT, varied=Varied("views.smallest-crop", ("0.25", "1")))
    assert [(run.method, run.config.views.smallest_crop) for run in planned] == [
        ("an", 0.25),
        ("an", 1),
        ("bce", 0.25),
        ("bce", 1),
    ]


@pytest.mark.parametrize("flag", [VARY, CHOOSE])
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("settings.momentum", "0.5", "none of the methods an, bce has a setting 'momentum'"),
        ("settings.momentun", "0.5", "none of the methods an, bce has a setting 'momentun'"),
        ("seed", "3", " cannot be seed: give `seeds`"),
        ("method", "an", " cannot be method: give `methods`"),
        ("head.epochs", "0", "=head.epochs 0` would add or drop a phase"),
    ],
)
def test_what_must_not_be_varied(name: str, value: str, said: str, flag: str) -> None:
    one = Varied(name, (value,), flag)
    with pytest.raises(ConfigError, match=said):
        plan_runs(
            BASE, ["an", "bce"], [0], OUT, [one] if flag == CHOOSE else (), None if flag == CHOOSE else one
        )


def test_varied_and_chosen_at_once_is_one_too_many() -> None:
    with pytest.raises(ConfigError, match=r"`vary` or `choose` names head.lr more than once"):
        plan_runs(BASE, ["an"], [0], OUT, RATES, Varied("head.lr", ("0.5",)))
