import inspect
import math
import re
import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparselabel.config import (
    FinetunePhase,
    Handling,
    HeadPhase,
    Machine,
    Phase,
    Preparation,
    Query,
    Sparsify,
    TrainConfig,
    Views,
    configure,
    from_dict,
    load,
    save,
)
from sparselabel.errors import ConfigError

PHASE: dict[str, Any] = {
    "epochs": 3,
    "lr": 1 / 3,
    "batch_size": 7,
    "micro_batches": 3,
    "optimizer": "sgd",
    "schedule": "one-cycle",
    "weight_decay": 1e-7,
    "grad_clip": 2.5,
    "ema_decay": 0.999,
    "patience": 4,
    "start": "best",
}
CHANGED = TrainConfig(
    method="role",
    settings={
        "smoothing": 0.2,
        "negative_weight": 0.3,
        "sampled_negatives": True,
        "expected_positives": 2.9,
        "momentum": 0.7,
        "weight": 1e-30,
        "distance": "jsd",
        "map_scale": 3,
        "top_maps": 7,
        "positive_weight": math.inf,
        "threshold": 0.55,
        "gamma_pos": 1.5,
        "gamma_neg": 3.0,
        "margin": 0.2,
        "scale": 1000.0,
        "share": 0.003,
        "entropy_weight": 0.05,
        "unknown_weight": 0.7,
        "soft_weight": 0.3,
        "warm_up": 2,
        "belief_slope": 4.0,
        "belief_offset": -3.0,
        "gamma_unknown": 2.0,
        "unknown": "ignore",
        "likeliest": 3,
        "prior": "prior.json",
        "prior_threshold": 0.4,
        "unknown_cells": "negative",
        "patch_weight": 0.5,
        "positive_cell_weight": 2.0,
        "negative_cell_weight": 0.25,
        "unknown_cell_weight": 0.125,
        "box_rule": "any",
        "prototypes": "images",
        "near": 0.2,
        "far": 0.8,
        "pseudo_weight": 0.75,
        "sure_positive": 0.95,
        "sure_negative": 0.05,
        "strong_weight": 4.0,
        "preset": "cub",
    },
    backbone="resnet18",
    weights='a "quoted" \\ path/Übung 漢字.pth',
    partial_weights=True,
    output_stride=16,
    classifier="query2label",
    query=Query(width=256, self_attention="first"),
    boost=5.0,
    frozen=True,
    views=Views(
        size=96, geometry="imagenet", smallest_crop=0.9, flip=0.0, rand_augment=2, magnitude=8, cutout=0.5
    ),
    head=HeadPhase(raw_features=True, **PHASE),
    finetune=FinetunePhase(
        **PHASE, grad_checkpointing=True, frozen_norm=True, frozen_stages=2, head_rate=10.0
    ),
    seed=5,
    precision="bf16-mixed",
    watch=0,
)


def leaves(config: Any, where: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields(config):
        value = getattr(config, field.name)
        found |= (
            leaves(value, f"{where}{field.name}.") if is_dataclass(value) else {where + field.name: value}
        )
    return found


def test_everything_survives_the_file(tmp_path: Path) -> None:
    before, default = leaves(CHANGED), leaves(TrainConfig())
    assert [name for name in before if before[name] == default[name]] == []  # the test tests every field
    save(CHANGED, tmp_path / "config.toml")
    assert load(TrainConfig, tmp_path / "config.toml") == CHANGED
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


@pytest.mark.parametrize(
    "config",
    [
        TrainConfig(),
        Preparation(sparsify="per-class", negatives=-1),
        Machine(workers=0),
        Handling(resume=True),
    ],
)
def test_defaults_survive_the_file(config: Any, tmp_path: Path) -> None:
    save(config, tmp_path / "config.toml")
    assert load(type(config), tmp_path / "config.toml") == config


def test_none_is_left_out(tmp_path: Path) -> None:
    save(TrainConfig(settings={"weight": 2.0}), tmp_path / "config.toml")
    text = (tmp_path / "config.toml").read_text()
    assert "output_stride" not in text
    assert "[settings]\nweight = 2.0\n" in text
    assert "None" not in text
    assert tomllib.loads(text)["head"]["epochs"] == 25


@given(st.text(), st.floats(min_value=1e-300, max_value=1e300), st.integers(min_value=0, max_value=2**62))
def test_any_text_and_number_survives(text: str, rate: float, seed: int) -> None:
    import tempfile

    config = TrainConfig(weights=text, seed=seed, head=HeadPhase(lr=rate))
    with tempfile.TemporaryDirectory() as folder:
        save(config, Path(folder) / "config.toml")
        assert load(TrainConfig, Path(folder) / "config.toml") == config


def test_a_whole_number_does_for_a_number() -> None:
    config = from_dict(TrainConfig, {"head": {"lr": 1}, "settings": {"weight": 2}}, "FILE")
    assert type(config.head.lr) is float
    assert config.head.lr == 1.0
    assert config.settings.get("weight") == 2.0


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('methd = "an"', "FILE.toml has an unknown key 'methd': did you mean 'method'?"),
        ("[head]\nepoch = 5", r"FILE.toml\[head\] has an unknown key 'epoch': did you mean 'epochs'?"),
        ("[head.more]\nx = 1", r"FILE.toml\[head\] has an unknown key 'more'"),
        ('[head]\nepochs = "five"', r"FILE.toml\[head\]: epochs must be a whole number, not 'five'"),
        ("[head]\nepochs = 2.0", r"FILE.toml\[head\]: epochs must be a whole number, not 2.0"),
        ("[head]\nepochs = true", r"FILE.toml\[head\]: epochs must be a whole number, not True"),
        ("[head]\nepochs = [1]", r"FILE.toml\[head\]: epochs must be a whole number, not \[1\]"),
        ('[head]\nlr = "1e-3"', r"lr must be a number, not '1e-3'"),
        ("[head]\nlr = false", r"lr must be a number, not False"),
        (
            '[head]\noptimizer = "adamm"',
            r"optimizer cannot be 'adamm': did you mean 'adam'\? known: adam, adamw, sgd",
        ),
        ("[head]\noptimizer = 3", "optimizer cannot be 3: known: adam, adamw, sgd"),
        ("precision = 32", "FILE.toml: precision cannot be 32: known: 16-mixed, 32-true"),
        ("frozen = 1", "FILE.toml: frozen must be true or false, not 1"),
        ("method = 3", "FILE.toml: method must be a text in quotes, not 3"),
        ("output_stride = 16.5", "FILE.toml: output_stride must be a whole number, not 16.5"),
        ("head = 5", r"FILE.toml: head must be a table \(\[head\]\), not 5"),
        ("seed = 1\nmethod = x", r"FILE.toml cannot be read \(Invalid value \(at line 2"),
        ("[head]\nepochs = -1", "`head.epochs` must not be negative, not -1"),
    ],
)
def test_a_wrong_file_is_refused(toml: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "FILE.toml").write_text(toml)
    with pytest.raises(ConfigError, match=said):
        load(TrainConfig, tmp_path / "FILE.toml")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.toml is not there, or not a file"):
        load(TrainConfig, tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"method = '\xff'")
    with pytest.raises(ConfigError, match=r"binary.toml cannot be read \(it is not text in UTF-8: line 1"):
        load(TrainConfig, tmp_path / "binary.toml")


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        (Sparsify, {"share": 0.0}, r"`share` must be in \(0, 1\], not 0.0"),
        (Sparsify, {"label_seed": -1}, r"`label_seed` must be 0 or more and less than 2\^32, not -1"),
        (TrainConfig, {"output_stride": 5}, "`output_stride` must be 8, 16 or 32, not 5"),
        (Sparsify, {"share": 1.1}, r"`share` must be in \(0, 1\], not 1.1"),
        (Sparsify, {"share": math.nan}, r"`share` must be in \(0, 1\], not nan"),
        (Sparsify, {"positives": -2}, "`positives` must be a count, or -1 for all, not -2"),
        (Sparsify, {"negatives": -3}, "`negatives` must be a count, or -1 for all, not -3"),
        (Preparation, {"positives": -2}, "`positives` must be a count"),
        (
            Sparsify,
            {"sparsify": "uniform", "prefer": "larger"},
            "`prefer=larger` is for single positives, not for `sparsify=uniform`",
        ),
        (Preparation, {"validation": 1.0}, r"`validation` must be a share in \[0, 1\), not 1.0"),
        (Preparation, {"validation": -0.1}, r"`validation` must be a share in \[0, 1\), not -0.1"),
        (Preparation, {"keep_train": 0.0}, r"`keep_train` must be a share in \(0, 1\], not 0.0"),
        (Preparation, {"keep_test": 0.0}, r"`keep_test` must be a share in \(0, 1\], not 0.0"),
        (Preparation, {"keep_validation": 1.5}, r"`keep_validation` must be a share in \(0, 1\], not 1.5"),
        (Phase, {"epochs": -1}, "`phase.epochs` must not be negative, not -1"),
        (HeadPhase, {"epochs": -1}, "`head.epochs` must not be negative, not -1"),
        (FinetunePhase, {"weight_decay": -0.1}, "`finetune.weight_decay` must not be negative, not -0.1"),
        (FinetunePhase, {"weight_decay": math.nan}, "`finetune.weight_decay` must not be negative, not nan"),
        (HeadPhase, {"grad_clip": -1.0}, "`head.grad_clip` must not be negative, not -1.0"),
        (HeadPhase, {"patience": -1}, "`head.patience` must not be negative, not -1"),
        (HeadPhase, {"lr": 0.0}, "`head.lr` must be above 0, not 0.0"),
        (HeadPhase, {"lr": math.nan}, "`head.lr` must be above 0, not nan"),
        (HeadPhase, {"lr": math.inf}, "`head.lr` must be above 0, not inf"),
        (FinetunePhase, {"batch_size": 0}, "`finetune.batch_size` must be at least 1, not 0"),
        (FinetunePhase, {"ema_decay": 1.0}, r"`finetune.ema_decay` must be in \[0, 1\), not 1.0"),
        (Views, {"size": 15}, "`views.size` must be from 16 to 16,384 pixels, not 15"),
        (Views, {"size": 10**11}, "`views.size` must be from 16 to 16,384 pixels"),  # Pillow overflowed
        (Views, {"smallest_crop": 0.0}, r"`views.smallest_crop` must be in \(0, 1\], not 0.0"),
        (Views, {"flip": 1.5}, r"`views.flip` must be in \[0, 1\], not 1.5"),
        (
            TrainConfig,
            {"head": HeadPhase(epochs=0)},
            "nothing to train: `head.epochs` and `finetune.epochs` are both 0",
        ),
        (TrainConfig, {"seed": -1}, "`seed` must not be negative, not -1"),
        (TrainConfig, {"watch": -1}, "`watch` must not be negative, not -1"),
        (
            TrainConfig,
            {"frozen": True, "head": HeadPhase(epochs=0), "finetune": FinetunePhase(epochs=1)},
            "`frozen` trains the head on stored features: give `head.epochs`",
        ),
        (Machine, {"devices": 0}, "`devices` must be at least 1, not 0"),
        (Machine, {"workers": -1}, "`workers` must not be negative, not -1"),
    ],
)
def test_refusals(kind: type[Any], values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        kind(**values)


def test_phases_are_those_with_epochs() -> None:
    assert list(TrainConfig().phases) == ["head"]
    assert list(CHANGED.phases) == ["head", "finetune"]
    assert list(TrainConfig(head=HeadPhase(epochs=0), finetune=FinetunePhase(epochs=2)).phases) == [
        "finetune"
    ]
    assert CHANGED.epochs == 6


def documented(kind: type[Any]) -> dict[str, str]:
    """What a dataclass's docstring says of each parameter."""
    text = inspect.cleandoc(kind.__doc__ or "").partition("----------\n")[2]
    return dict(re.findall(r"^(\w+)\n((?:    .*\n?)+)", text, re.MULTILINE))


def test_settings_are_spelled_as_flags_or_as_parameters() -> None:
    config = TrainConfig(settings={"expected-positives": 2.9, "top_maps": 3})
    assert config.settings == {"expected_positives": 2.9, "top_maps": 3}


def test_keywords_find_their_configuration() -> None:
    base = TrainConfig(method="an", head=HeadPhase(epochs=3, lr=0.5), settings={"smoothing": 0.1})
    config, machine, handling = configure(
        {"backbone": "resnet18", "head": {"epochs": 5}, "finetune.epochs": 2, "weight": 3, "workers": 1,
         "quiet": True, "settings": {"preset": "x"}},
        base,
    )  # fmt: skip
    assert config == TrainConfig(
        method="an",
        backbone="resnet18",
        head=HeadPhase(epochs=5, lr=0.5),
        finetune=FinetunePhase(epochs=2),
        settings={"smoothing": 0.1, "weight": 3.0, "preset": "x"},
    )
    assert (machine, handling) == (Machine(workers=1), Handling(quiet=True))


def test_a_whole_phase_and_what_is_wrong() -> None:
    assert configure({"head": HeadPhase(epochs=7)})[0].head == HeadPhase(epochs=7)
    assert configure({})[0] == TrainConfig()
    with pytest.raises(ConfigError, match="unknown key 'epoch'"):
        configure({"head": {"epoch": 5}})
