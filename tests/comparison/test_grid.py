from dataclasses import replace

import pytest

from sparselabel.comparison.grid import CHOOSE, Varied, choices
from sparselabel.config import HeadPhase, TrainConfig, Views
from sparselabel.errors import ConfigError

BASE = TrainConfig(settings={"weight": 2.0}, head=HeadPhase(epochs=3))


@pytest.mark.parametrize(
    ("name", "value", "config"),
    [
        ("settings.momentum", ".9", replace(BASE, settings={"weight": 2.0, "momentum": 0.9})),
        ("settings.weight", "1", replace(BASE, settings={"weight": 1.0})),
        (
            "settings.expected-positives",
            "1.5",
            replace(BASE, settings={"weight": 2.0, "expected_positives": 1.5}),
        ),
        ("settings.distance", "jsd", replace(BASE, settings={"weight": 2.0, "distance": "jsd"})),
        (
            "settings.sampled-negatives",
            "true",
            replace(BASE, settings={"weight": 2.0, "sampled_negatives": True}),
        ),
        ("views.smallest-crop", "0.5", replace(BASE, views=Views(smallest_crop=0.5))),
        ("--output-stride", "16", replace(BASE, output_stride=16)),
        ("head.epochs", "7", replace(BASE, head=HeadPhase(epochs=7))),
    ],
)
def test_a_value_in_its_place(name: str, value: str, config: TrainConfig) -> None:
    varied = Varied.of([name, value])
    assert varied.config(BASE, varied.values[0]) == config


def test_values_are_written_in_one_way() -> None:
    varied = Varied.of(["settings.weight", "1.0", ".10", "1e-7", "0.123456789"])
    assert varied.values == ("1", "0.1", "1e-07", "0.123456789")
    assert varied.folder("0.1") == "weight=0.1"
    assert Varied.of(["weights", "a/b.pt"]).folder("a/b.pt") == "weights=a_b.pt"
    assert Varied.of(["settings.expected-positives", "2"]).folder("2") == "expected-positives=2"


def test_which_are_settings_of_methods() -> None:
    assert Varied.of(["settings.expected-positives", "1"]).setting == "expected_positives"
    assert Varied.of(["views.smallest-crop", "1"]).setting is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "`vary` needs a name and its values"),
        (["settings.weight"], "`vary` needs a name and its values"),
        (["settings.weight", "1", "2", "1.0"], "`vary=settings.weight` has a value twice: 1"),
    ],
)
def test_what_cannot_be_varied(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Varied.of(words)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("momentum", "1", r"there is no such setting: write settings\.momentum, if it is a method's"),
        ("lr", "1", r"there is no such setting: write head\.lr, or write finetune\.lr"),
        ("setting.momentum", "1", "has an unknown key 'setting': did you mean 'settings'"),
        ("seed.momentum", "1", "`vary=seed.momentum`: seed is not a table"),
        ("views", "1", r"views must be a table"),
        ("views.size", "0.5", "`vary=views.size`: .*size must be a whole number, not 0.5"),
        ("views.smallest-crop", "2", r"`views.smallest_crop` must be in \(0, 1\], not 2.0"),
    ],
)
def test_values_that_do_not_fit(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Varied.of([name, value]).config(BASE, value)


def test_several_choices_come_as_one_list() -> None:
    words = [
        "head.lr",
        "1e-2",
        "1e-3",
        "*cl:settings.weight",
        ".1",
        "1",
        "--settings.distance",
        "l1",
    ]
    assert choices(words) == [
        Varied("head.lr", ("0.01", "0.001"), CHOOSE),
        Varied("settings.weight", ("0.1", "1"), CHOOSE, "*cl"),
        Varied("settings.distance", ("l1",), CHOOSE),
    ]
    assert choices([]) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["head.bach", "8"], "`choose=head.bach`: there is no such setting: did you mean 'head.batch-size'"),
        (["head.batch-size"], "`choose` needs a name and its values, as in `choose=head.lr"),
        ([":head.batch-size", "8"], "`choose` needs a name and its values"),
        (["head.batch-size", "8", "8"], "`choose=head.batch-size` has a value twice: 8"),
    ],
)
def test_what_cannot_be_chosen_from(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        choices(words)


def test_values_of_a_toml_file() -> None:
    assert Varied.of(["head.batch-size", 8, 16.0, True, "l1"]).values == ("8", "16", "true", "l1")


def test_which_methods_it_is_for() -> None:
    one = Varied("settings.weight", ("1",), CHOOSE, "*cl")
    assert [one.concerns(method, {"weight"}) for method in ("en+cl", "an+scl", "role")] == [True, True, False]
    assert not one.concerns("en+cl", {"momentum"})
    assert Varied("head.batch-size", ("8",)).concerns("an", {})
