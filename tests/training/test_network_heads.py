"""Runs with every classifier head."""

from pathlib import Path

import numpy as np
import pytest

from sparselabel.config import FinetunePhase, Handling, Machine, Query
from sparselabel.data.dataset import Dataset
from sparselabel.errors import ConfigError, ResourceError
from sparselabel.inference.evaluate import evaluate_run
from sparselabel.inference.maps import write_maps
from sparselabel.inference.scorer import load_classifier
from sparselabel.models.query2label import QueryHead
from sparselabel.models.tscam import PatchHead, TokenHead
from sparselabel.run import Run
from sparselabel.training.network import Network
from sparselabel.training.phases import does_not_fit
from sparselabel.training.train_run import train_run
from tests.training.conftest import tiny

HERE = Machine(accelerator="cpu", workers=0)
QUIET = Handling(quiet=True)


@pytest.mark.parametrize(("classifier", "kind"), [("tscam", PatchHead), ("token", TokenHead)])
def test_a_transformer_trains_with_either_head(
    small: Dataset, tmp_path: Path, classifier: str, kind: type
) -> None:
    settings = {"expected_positives": 2.5}
    config = tiny("en+scl", backbone="test_vit", classifier=classifier, settings=settings)
    result = train_run(small, config, tmp_path / "run", HERE, QUIET)
    assert isinstance(load_classifier(Run(tmp_path / "run")).head, kind)
    measured = evaluate_run(Run(tmp_path / "run"), "test")["mean_average_precision"]["sklearn"]["mean"]
    assert measured == pytest.approx(result["test"]["value"], abs=1e-6)


def test_class_queries_train_and_show_where_they_looked(small: Dataset, tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = tiny(
        "asl",
        classifier="query2label",
        query=Query(width=32, self_attention="all"),
        finetune=FinetunePhase(epochs=1, optimizer="adamw", batch_size=16),
    )
    result = train_run(small, config, run, HERE, QUIET)
    head = load_classifier(Run(run)).head
    assert isinstance(head, QueryHead)
    assert head.query_embed.weight.shape == (12, 32)
    assert [layer.has_self_attention for layer in head.decoder] == [True, True]
    measured = evaluate_run(Run(run), "test")["mean_average_precision"]["sklearn"]["mean"]
    assert measured == pytest.approx(result["test"]["value"], abs=1e-6)
    write_maps(Run(run), "test", [0, 3], [1, 2])
    with np.load(Run(run).maps_file("test")) as kept:
        shares = 1 / (1 + np.exp(-kept["cells"]))
    np.testing.assert_allclose(shares.sum(axis=(1, 2)), 1, atol=1e-4)


def test_what_does_not_fit_is_refused_before_a_folder_is_made(small: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    for config, why in (
        (tiny(classifier="token"), "this backbone has none: take a transformer"),
        (tiny(classifier="token", frozen=True), "`classifier=token` reads the class token"),
        (tiny(classifier="token", boost=5.0, backbone="test_vit"), "`classifier=token` adds none up"),
        (tiny("an+scl", classifier="query2label"), "query2label has none"),
    ):
        with pytest.raises(ConfigError, match=why):
            train_run(small, config, out, HERE, QUIET)
        assert not out.exists()


def test_queries_that_do_not_fit_into_memory_name_their_width(monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(classifier="query2label", query=Query(width=400_000))
    network = Network(config, classes=3, feature_width=lambda: 32)

    def full(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 3 bytes.")

    monkeypatch.setattr("sparselabel.training.network.make_head", full)
    said = r"a head of `query=\{'width': 400000\}` needs more memory than there is: give a smaller one"
    with pytest.raises(ResourceError, match=said):
        _ = network.head
    assert ", or a `query.width` below 400000, or a smaller" in str(
        does_not_fit(config, "finetune", MemoryError())
    )
    network.config = tiny(classifier="query2label")
    with pytest.raises(RuntimeError, match="can't allocate"):
        _ = network.head


def test_how_queries_are_built_is_for_queries() -> None:
    with pytest.raises(ConfigError, match="`query` is for `classifier=query2label`, not for linear: leave"):
        tiny(query=Query(width=32))
    with pytest.raises(
        ConfigError, match=r"query\.width` must be .* of 4 above 0, as its four attention heads .* not 30"
    ):
        Query(width=30)
