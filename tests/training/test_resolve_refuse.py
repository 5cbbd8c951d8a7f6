"""Impossible configurations are refused before training, with a remedy."""

from pathlib import Path

import pytest

from sparselabel.config import FinetunePhase, Handling, Machine, Views
from sparselabel.data.dataset import Dataset
from sparselabel.errors import ConfigError, ModelError
from sparselabel.training.resolve import resolve
from sparselabel.training.train_run import train_run
from tests.training.conftest import tiny

ALONE = FinetunePhase(epochs=0)


@pytest.mark.parametrize(
    ("views", "asked"),
    [
        (Views(size=32, rand_augment=2), r"`views=\{'rand_augment': 2\}`"),
        (Views(size=32, cutout=0.5), r"`views=\{'cutout': 0\.5\}`"),
        (
            Views(size=32, rand_augment=1, cutout=0.25),
            r"`views=\{'rand_augment': 1\}` and `views=\{'cutout': 0\.25\}`",
        ),
    ],
)
def test_changes_of_views_that_nothing_would_see(
    small: Dataset, tmp_path: Path, views: Views, asked: str
) -> None:
    config = tiny(frozen=True, finetune=ALONE, views=views)
    said = f"^{asked} would change training views, .* take 0, or train on images \\(`finetune\\.epochs`, or"
    with pytest.raises(ConfigError, match=said):
        train_run(small, config, tmp_path / "run", Machine("cpu", workers=0), Handling(quiet=True))
    assert not (tmp_path / "run").exists()


def test_changes_of_views_that_some_phase_sees(small: Dataset) -> None:
    views = Views(size=32, rand_augment=2, cutout=0.5)
    for seen in (tiny(frozen=True, views=views), tiny(finetune=ALONE, views=views)):
        assert resolve(small, seen).config.views == views
    # A magnitude alone asks for nothing.
    resolve(small, tiny(frozen=True, finetune=ALONE, views=Views(size=32, magnitude=5)))


@pytest.mark.parametrize("frozen", [True, False])
def test_a_backbone_without_cells(small: Dataset, tmp_path: Path, frozen: bool) -> None:
    config = tiny(backbone="coat_tiny", frozen=frozen, finetune=ALONE)
    with pytest.raises(ConfigError, match="backbone 'coat_tiny' gives no grid of cells"):
        train_run(small, config, tmp_path / "run", Machine("cpu", workers=0), Handling(quiet=True))
    assert not (tmp_path / "run").exists()


def test_weights_in_a_folder(small: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"weights file .*{tmp_path.name} is a folder: give a file, `pretr"):
        resolve(small, tiny(weights=str(tmp_path)))
