import pytest

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, TrainConfig, configure
from sparselabel.errors import ConfigError


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
