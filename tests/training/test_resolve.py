"""The method that ``auto`` chooses."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Setting, TrainConfig, Views
from sparselabel.data.dataset import Dataset
from sparselabel.expected_positives.class_counts import ClassCounts
from sparselabel.losses.soft_ridge import SolvedOnFeatures
from sparselabel.run import Run
from sparselabel.training.resolve import method_of, nothing_unknown, resolve, with_chosen_method
from sparselabel.training.train_run import train_run
from tests.training.conftest import tiny

ALL, ALONE = FinetunePhase(epochs=2, batch_size=16), FinetunePhase(epochs=0)


@pytest.mark.parametrize(
    ("config", "method"),
    [
        (TrainConfig(), "pu"),
        (TrainConfig(frozen=True), "soft"),
        (TrainConfig(frozen=True, head=HeadPhase(lr=1e-4)), "gr"),  # who sets how steps are made wants them
        (TrainConfig(frozen=True, head=HeadPhase(raw_features=True)), "pu"),
        (TrainConfig(finetune=ALL), "en+scl"),
        (TrainConfig(head=HeadPhase(epochs=0), finetune=ALL), "en+scl"),
        (TrainConfig(finetune=ALL, frozen=True), "en+scl"),
        (TrainConfig(finetune=ALL, classifier="tscam"), "en+scl"),
        (TrainConfig(finetune=ALL, boost=5), "en+scl"),
        (TrainConfig(finetune=ALL, views=Views(geometry="imagenet")), "en+scl"),
        # Here maps would be refused: no logits of cells, or cells of the image's middle alone.
        (TrainConfig(finetune=ALL, classifier="token"), "pu"),
        (TrainConfig(finetune=ALL, classifier="query2label"), "pu"),
        (TrainConfig(finetune=ALL, frozen=True, views=Views(geometry="imagenet")), "pu"),
        (TrainConfig(method="an", finetune=ALL), "an"),
    ],
)
def test_auto_keeps_heat_maps_where_everything_is_trained(config: TrainConfig, method: str) -> None:
    assert with_chosen_method(config).method == method
    assert with_chosen_method(with_chosen_method(config)) == with_chosen_method(config)


def test_settings_of_steps_are_said_to_have_no_effect_on_a_head_that_is_computed(small: Dataset) -> None:
    alone = tiny("soft", frozen=True, head=HeadPhase(epochs=5, lr=0.1), finetune=ALONE)
    (note,) = resolve(small, alone).notes
    assert (
        note
        == "soft computes the head, without steps: nothing comes of `head={'epochs': 5}`, `head={'lr': 0.1}`"
    )
    assert resolve(small, replace(alone, head=HeadPhase(epochs=1))).notes == ()


def test_auto_solves_the_head_of_as_many_images_as_were_measured() -> None:
    chosen = {
        (images, classes): with_chosen_method(TrainConfig(frozen=True), images, classes).method
        for images, classes in ((100_000, 100), (100_001, 10), (10_000, 1001), (10_000, 1000))
    }
    assert [*chosen.values()] == ["soft", "gr", "gr", "soft"]


@pytest.mark.parametrize("classifier", ["linear", "tscam", "query2label"])
@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("geometry", ["squashed", "imagenet"])
def test_auto_is_never_refused(small: Dataset, classifier: str, frozen: bool, geometry: str) -> None:
    views = Views(size=32, geometry=geometry)  # type: ignore[arg-type]
    everything = tiny("auto", classifier=classifier, frozen=frozen, views=views)
    assert resolve(small, everything).needs.maps == (
        classifier != "query2label" and not (frozen and geometry == "imagenet")
    )
    assert not resolve(small, replace(everything, finetune=ALONE)).needs.maps


def test_auto_has_a_use_for_k_that_is_given_or_counted(small: Dataset) -> None:
    k: dict[str, Setting] = {"expected_positives": 2.0}
    assert with_chosen_method(TrainConfig(frozen=True, settings=k)) == TrainConfig(
        method="soft", frozen=True, settings=k
    )
    assert with_chosen_method(TrainConfig(frozen=True, settings=k, head=HeadPhase(lr=1e-4))).method == "pu"
    alone = replace(tiny("auto"), frozen=True, finetune=ALONE, head=HeadPhase())
    counted = {"expected_positives": round(float(small.split("val").truth.per_image(1).mean()), 3)}
    unvalidated = replace(small, splits={"train": small.train})
    assert resolve(small, alone).config.settings == counted
    assert resolve(unvalidated, alone).config.settings == {}
    estimated = TrainConfig(method="soft", settings={"expected_positives": "auto"})
    expected, interval = np.full(3, 40.0), (1.0, 1.4)
    for trusted, told in ((True, (40.0,) * 3), (False, None)):
        counts = ClassCounts(
            "counted",
            ("a", "b", "c"),
            100,
            np.full(3, 30),
            expected,
            expected,
            expected,
            interval,
            trusted,
            "",
        )
        label_loss = method_of(estimated, counts).label_loss
        assert isinstance(label_loss, SolvedOnFeatures)
        assert label_loss.expected == told
    given = with_chosen_method(TrainConfig(frozen=True, settings={"expected_positives": 2.0, "margin": 0.1}))
    assert given.method == "pu"
    wanted = {"unknown_weight": 1.0, "entropy_weight": 0.0, "margin": 0.1, "expected_positives": 2.0}
    assert given.settings == wanted
    assert with_chosen_method(TrainConfig(frozen=True, settings={"belief_slope": 3.0})).method == "gr"


@pytest.mark.parametrize(("finetune", "method"), [(ALL, "en+scl"), (ALONE, "pu")])
def test_a_run_says_and_keeps_what_auto_was(
    small: Dataset,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    finetune: FinetunePhase,
    method: str,
) -> None:
    out, machine = tmp_path / "run", Machine("cpu", workers=0)
    result = train_run(small, tiny("auto", finetune=finetune), out, machine)
    assert f"method {method}, chosen by auto for these epochs and this head\n" in capsys.readouterr().err
    assert Run(out).config().method == method
    # Who asks for it again goes on with the same run, by either name.
    for name in ("auto", method):
        again = Handling(resume=True, quiet=True)
        assert train_run(small, tiny(name, finetune=finetune), out, machine, again) == result


def test_labels_of_which_nothing_is_unknown_are_noted(small: Dataset) -> None:
    labels = small.train.truth
    told = replace(small, splits=small.splits | {"train": replace(small.train, observed=labels)})
    config = TrainConfig(method="an", finetune=ALL)
    assert [note for note in resolve(told, config).notes if "all training labels are known" in note]
    assert resolve(small, config).notes == ()
    assert resolve(told, replace(config, method="bce")).notes == ()


@pytest.mark.parametrize(("values", "notes"), [((1, 1), 0), ((1, 0), 1), ((1, -1), 0)])
@pytest.mark.filterwarnings("ignore::sparselabel.errors.DataWarning")
def test_a_zero_is_spoken_of_where_there_is_one(values: tuple[int, int], notes: int) -> None:
    images = np.zeros((4, 8, 8, 3), np.uint8)
    data = Dataset.from_arrays(images, np.array([values] * 4), validation=0)
    assert len([*nothing_unknown("pu", data)]) == notes
