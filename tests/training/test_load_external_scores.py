"""Another model's scores in a run: read, copied into it, and reused on resume."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file

from sparselabel import SparseLabelClassifier
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import POSITIVE
from sparselabel.errors import ConfigError, DataError, RunError
from sparselabel.run import Run
from sparselabel.training.callbacks import Callback
from sparselabel.training.train import train
from tests.models.test_zero_shot import stub

TINY: dict[str, Any] = {
    "backbone": "test_efficientnet",
    "weights": "none",
    "views": {"size": 32},
    "frozen": True,
    "head": {"epochs": 3, "batch_size": 8, "lr": 1e-2},
    "expected_positives": 2.5,
    "watch": 0,
    "workers": 0,
    "accelerator": "cpu",
    "quiet": True,
}


def truthful(data: Dataset, noise: float = 0.3) -> npt.NDArray[np.float32]:
    truth = data.train.truth.values == POSITIVE
    scores = truth + noise * np.random.default_rng(0).standard_normal(truth.shape)
    return np.asarray(scores, dtype=np.float32)


def table_of(data: Dataset, scores: npt.NDArray[Any], file: Path) -> Path:
    rows = [",".join(["image", *data.classes])]
    for image, values in zip(data.train.paths, scores, strict=True):
        rows.append(
            ",".join([str(image), *("" if np.isnan(value) else repr(float(value)) for value in values)])
        )
    file.write_text("\n".join(rows) + "\n")
    return file


def weights(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.model_file)


def test_a_table_and_an_array_are_the_same_scores(small: Dataset, tmp_path: Path) -> None:
    scores = truthful(small)
    scores[0, 0] = np.nan
    table = table_of(small, scores, tmp_path / "scores.csv")
    of_table = train(small, tmp_path / "table", scores=table, **TINY)
    of_array = train(small, tmp_path / "array", scores=scores, **TINY)
    plain = train(small, tmp_path / "plain", **TINY)
    assert of_table.config().method == "pu"  # what auto is for evidence
    kept = np.load(of_table.given_scores_file)
    assert np.array_equal(kept, scores, equal_nan=True)
    assert all(torch.equal(value, weights(of_array)[name]) for name, value in weights(of_table).items())
    assert not all(torch.equal(value, weights(plain)[name]) for name, value in weights(of_table).items())
    assert not plain.given_scores_file.exists()


@pytest.mark.parametrize("method", ["pu", "en"])
def test_a_killed_run_goes_on_with_the_scores_it_was_begun_with(
    small: Dataset, tmp_path: Path, method: str
) -> None:
    class Killed(Callback):
        def on_epoch_end(self, trainer: Any, record: dict[str, Any]) -> None:
            if record["epoch"] == 2:
                raise KeyboardInterrupt

    settings = TINY | {"method": method, "scores": table_of(small, truthful(small), tmp_path / "scores.csv")}
    whole = train(small, tmp_path / "whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        train(small, tmp_path / "killed", callbacks=[Killed()], **settings)
    resumed = train(small, tmp_path / "killed", resume=True, **settings)
    assert all(torch.equal(value, weights(resumed)[name]) for name, value in weights(whole).items())
    table_of(small, truthful(small, 1.0), tmp_path / "scores.csv")
    with pytest.raises(RunError, match="a file of scores of the same name"):
        train(small, tmp_path / "whole", resume=True, **settings)


def test_names_of_classes_are_scored_once_and_kept_beside_the_data(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = stub(monkeypatch)
    random = np.random.default_rng(0).standard_normal((len(small.classes), 3))
    library.get_tokenizer = lambda name: lambda prompts: torch.from_numpy(random)
    run = train(small, tmp_path / "first", scores="text:ViT-B-32/openai", **TINY)
    kept = np.load(run.given_scores_file)
    assert kept.shape == (len(small.train), len(small.classes))
    library.asked.made = None
    again = train(small, tmp_path / "second", scores="text:ViT-B-32/openai", **TINY)
    assert library.asked.made is None
    assert np.array_equal(np.load(again.given_scores_file), kept)


def test_what_cannot_be_used_is_refused_before_there_is_a_run(small: Dataset, tmp_path: Path) -> None:
    scores = truthful(small)
    with pytest.raises(ConfigError, match="no setting 'scores'") as refused:
        train(small, tmp_path / "run", scores=scores, **TINY | {"method": "an", "expected_positives": None})
    assert refused.value.what == "settings.scores"
    with pytest.raises(ConfigError, match="there is no file") as missing:
        train(small, tmp_path / "run", scores=tmp_path / "none.csv", **TINY)
    assert missing.value.what == "settings.scores"
    (tmp_path / "other.csv").write_text(f"image,{small.classes[0]}\nelsewhere.jpg,0.5\n")
    with pytest.raises(DataError, match="no score for any"):
        train(small, tmp_path / "run", scores=tmp_path / "other.csv", **TINY)
    with pytest.raises(DataError) as shape:
        train(small, tmp_path / "run", scores=scores[:-1], **TINY)
    assert shape.value.allowed == scores.shape
    assert not (tmp_path / "run").exists()
    assert "open_clip" not in sys.modules


def test_the_estimator_takes_scores() -> None:
    random = np.random.default_rng(0)
    truth = (random.random((1500, 6)) < 0.3).astype(np.int64)
    features = truth @ random.standard_normal((6, 24)) + 2 * random.standard_normal((1500, 24))
    observed = np.where(truth * (random.random(truth.shape) < 0.2), 1, -1)
    scores = truth[:1000] + 0.5 * random.standard_normal((1000, 6))
    probe = SparseLabelClassifier("pu", expected_positives=1.8, random_state=0)
    plain = probe.fit(features[:1000], observed[:1000]).score(features[1000:], truth[1000:])
    told = probe.fit(features[:1000], observed[:1000], scores).score(features[1000:], truth[1000:])
    assert told > plain + 0.005
    for wrong, method, what in ((scores[1:], "pu", "scores"), (scores, "gr", "scores")):
        with pytest.raises((ConfigError, DataError)) as error:
            SparseLabelClassifier(method, expected_positives=1.8).fit(features[:1000], observed[:1000], wrong)
        assert error.value.what == what
