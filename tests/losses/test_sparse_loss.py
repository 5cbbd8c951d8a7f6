"""``SparseLoss`` in a training loop equals the method with its hooks called by hand."""

import copy
import io
import pickle
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import ConfigError, DataError, DataWarning
from sparselabel.losses.registry import METHODS, combinations, needs_of, settings_of
from sparselabel.losses.sparse_loss import ShardedSampler, SparseLoss
from sparselabel.losses.step import Progress, Step
from sparselabel.models.classifier import Output
from tests.losses.steps import build_method

COUNT, CLASSES, EPOCHS, BATCH = 20, 4, 4, 5
ALL = [*METHODS, *combinations()]
SOME = [
    "an",
    "en",
    "en+scl",
    "role",
    "ll-cp",
    "em+apl",
    "gr",
    "pu+scl",
    "patchml+cluster",
    "fixmatch",
    "wan+asl+cl",
]


def labels() -> Tensor:
    """A positive and a negative of most images, none of the last two."""
    random = torch.Generator().manual_seed(1)
    values = torch.full((COUNT, CLASSES), -1, dtype=torch.int8)
    for row in range(COUNT - 2):
        one, other = torch.randperm(CLASSES, generator=random)[:2].tolist()
        values[row, one], values[row, other] = 1, 0
    return values


OBSERVED = labels()
RANDOM = torch.randint(2, OBSERVED.shape, dtype=torch.int8, generator=torch.Generator().manual_seed(2))
TRUTH = torch.where(OBSERVED == -1, RANDOM, OBSERVED)
POINTS = SpatialLabels(
    np.arange(COUNT - 2, dtype=np.int64),
    (OBSERVED[: COUNT - 2] == 1).int().argmax(dim=1).numpy().astype(np.int32),
    np.full((COUNT - 2, 2), 0.3, np.float32),
    np.zeros((COUNT - 2, 2), np.float32),
)


class Model(nn.Module):
    """Cells' logits from 2 × 2 features of an image."""

    cells: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(6, CLASSES)
        self.register_buffer("cells", torch.randn(COUNT, 2, 2, 6))

    def forward(self, index: Tensor) -> Output:
        features = self.cells[index]
        maps = self.layer(features).permute(0, 3, 1, 2)
        return Output(maps.mean(dim=(2, 3)), maps, features.permute(0, 3, 1, 2))


def settings(name: str) -> dict[str, Any]:
    own: dict[str, Any] = {"expected_positives": 1.8} if "expected_positives" in settings_of(name) else {}
    if "warm_up" in settings_of(name):
        own["warm_up"] = 1
    return own


def criterion_of(name: str) -> SparseLoss:
    needs = needs_of(name, settings(name))
    own = settings(name)
    with pytest.warns(DataWarning, match="computes a head") if needs.solves else nullcontext():
        return SparseLoss(
            name,
            OBSERVED,
            epochs=EPOCHS,
            lr=0.1,
            truth=TRUTH if needs.truth else None,
            spatial_labels=POINTS if needs.spatial_labels else None,
            **own,
        )


def batches(epoch: int) -> Iterator[Tensor]:
    order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(epoch))
    return iter(torch.split(order, BATCH))


def geometry(index: Tensor) -> ViewGeometry:
    """Another crop of every image, half of them flipped."""
    left = index.float() % 3 / 6
    box = torch.stack([left, left, torch.full_like(left, 0.6), torch.full_like(left, 0.6)], dim=1)
    return ViewGeometry(box, index % 2 == 0)


def epoch_of(
    criterion: SparseLoss, model: Model, optimizer: torch.optim.Optimizer, epoch: int
) -> list[Tensor]:
    """The losses of an epoch of a plain training loop."""
    needs, losses = criterion.needs, []
    criterion.set_epoch(epoch)
    if needs.scan:
        criterion.scan(model)
    torch.manual_seed(epoch)
    for index in batches(epoch):
        output = model(index)
        logits = (output.logits, output.logits + 0.1) if needs.views > 1 else output.logits
        maps = output.maps if needs.maps else None
        loss = criterion(logits, index, maps, geometry(index), output.features)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def loop(criterion: SparseLoss, epochs: range = range(EPOCHS)) -> tuple[list[Tensor], Model]:
    model = Model()
    optimizer = torch.optim.SGD(model.layer.parameters(), lr=0.1)
    return [loss for epoch in epochs for loss in epoch_of(criterion, model, optimizer, epoch)], model


def by_hand(name: str) -> list[Tensor]:
    """The same loop with the method itself: its hooks called one by one, after the optimizer."""
    method, model = build_method(name, OBSERVED, **settings(name)), Model()
    optimizer = torch.optim.SGD(model.layer.parameters(), lr=0.1)
    needs, losses = method.needs, []

    def step_of(index: Tensor, output: Output, views: ViewGeometry, progress: Progress) -> Step:
        outputs = (replace_maps(output, needs.maps), Output(output.logits + 0.1))[: needs.views]
        located = POINTS.take(index.numpy()) if needs.spatial_labels else None
        return Step(
            index,
            OBSERVED[index],
            outputs,
            (views,) * len(outputs),
            progress,
            located,
            TRUTH[index],
            check=False,
        )

    for epoch in range(EPOCHS):
        progress = Progress(epoch, EPOCHS, 0, 0.1)
        method.begin_epoch(progress)
        if needs.scan:

            def steps(rows: Tensor | None, progress: Progress = progress) -> Iterator[Step]:
                for index in torch.split(torch.arange(COUNT) if rows is None else rows, 64):
                    with torch.no_grad():
                        whole = ViewGeometry.whole(len(index))
                        output = model(index)
                        yield replace(step_of(index, output, whole, progress), outputs=(output,), check=False)

            method.scan(steps)
        torch.manual_seed(epoch)
        for index in batches(epoch):
            step = step_of(index, model(index), geometry(index), progress)
            loss = torch.stack([*method(step).values()]).sum()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            method.update(step)
            losses.append(loss.detach())
    return losses


def replace_maps(output: Output, maps: bool) -> Output:
    return output if maps else output._replace(maps=None)


@pytest.mark.parametrize("name", ALL)
def test_it_is_the_method_with_its_hooks_called_by_hand(name: str) -> None:
    found, _ = loop(criterion_of(name))
    wanted = by_hand(name)
    assert torch.equal(torch.stack(found), torch.stack(wanted))


@pytest.mark.parametrize("name", SOME)
def test_a_checkpoint_goes_on_to_the_same_bits(name: str) -> None:
    whole, _ = loop(criterion_of(name))
    criterion, model = criterion_of(name), Model()
    optimizer = torch.optim.SGD(model.layer.parameters(), lr=0.1)
    found = [loss for epoch in range(2) for loss in epoch_of(criterion, model, optimizer, epoch)]
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "criterion": criterion.state_dict()}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    again, model = criterion_of(name), Model()
    model.load_state_dict(state["model"])
    again.load_state_dict(state["criterion"])
    optimizer = torch.optim.SGD(model.layer.parameters(), lr=0.1)
    found += [loss for epoch in range(2, EPOCHS) for loss in epoch_of(again, model, optimizer, epoch)]
    assert torch.equal(torch.stack(found), torch.stack(whole))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
@pytest.mark.parametrize("name", ["en+scl", "role", "ll-cp"])
def test_copies_go_on_by_themselves(name: str, copied: Any) -> None:
    criterion, model = criterion_of(name), Model()
    optimizer = torch.optim.SGD(model.layer.parameters(), lr=0.1)
    epoch_of(criterion, model, optimizer, 0)
    other = copied(criterion)
    before = other.state_dict()["_extra_state"]["stores"]
    states = [copy.deepcopy(model.state_dict()) for _ in range(2)]
    losses = []
    for one, state in zip((criterion, other), states, strict=True):
        model.load_state_dict(state)
        losses.append(torch.stack(epoch_of(one, model, torch.optim.SGD(model.layer.parameters(), lr=0.1), 1)))
    assert torch.equal(*losses)
    assert before.keys() == criterion.state_dict()["_extra_state"]["stores"].keys()


def test_validation_leaves_no_trace() -> None:
    criterion = criterion_of("en+scl")
    loop(criterion)
    before = copy.deepcopy(criterion.state_dict()["_extra_state"]["stores"])
    criterion.eval()
    model, index = Model(), torch.arange(4)
    criterion(model(index).logits, index, model(index).maps, ViewGeometry.whole(4))
    after = criterion.state_dict()["_extra_state"]["stores"]
    assert all(
        torch.equal(value, after[name][key]) for name, state in before.items() for key, value in state.items()
    )


def test_the_terms_of_the_last_step() -> None:
    criterion = criterion_of("en+scl")
    losses, _ = loop(criterion)
    assert list(criterion.last) == ["labels", "consistency"]
    assert float(sum(criterion.last.values())) == pytest.approx(float(losses[-1]))


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (torch.ones(2, 3, dtype=torch.bool), "booleans, which say nothing of what is unknown"),
        (torch.ones(3), r"labels must be \(N, L\)"),
        (np.array([[0.0, 0.7]]), "row 0, column 1 has"),
        (
            np.array([[1, 0, "a.jpg"]], dtype=object),
            r"row 0, column 2 has 'a\.jpg': leave columns of names out",
        ),
        (torch.tensor([[1, 3], [0, 0]]).to_sparse(), "row 0, column 1 has 3"),
        ([[0, 2], [1]], "not lists of different lengths"),
        ("labels.csv", "not one object"),
    ],
)
def test_labels_that_cannot_be(given: object, what: str) -> None:
    with pytest.raises(DataError, match=what):
        SparseLoss("an", given)


@pytest.mark.parametrize(
    ("name", "given", "missing"),
    [
        ("bce", {}, "truth"),
        ("gr", {}, "epochs"),
        ("role", {"expected_positives": 2.0}, "lr"),
        ("patchml", {}, "spatial_labels"),
    ],
)
def test_what_a_method_needs_and_is_not_given(name: str, given: dict[str, Any], missing: str) -> None:
    with pytest.raises(ConfigError) as raised:
        SparseLoss(name, OBSERVED, **given)
    assert (raised.value.what, raised.value.parameters) == (missing, [missing])


def test_a_step_that_lacks_something_names_it() -> None:
    criterion, index = criterion_of("en+scl"), torch.arange(4)
    output = Model()(index)
    with pytest.raises(ConfigError, match="set_epoch was not called"):
        criterion(output.logits, index, output.maps, ViewGeometry.whole(4))
    criterion.set_epoch(0)
    for arguments, what in (
        ((output.logits, index), "maps"),
        ((output.logits, index, output.maps), "geometry"),
        ((output.logits[:, :3], index, output.maps, ViewGeometry.whole(4)), "logits"),
        ((output.logits, index + COUNT, output.maps, ViewGeometry.whole(4)), "index"),
    ):
        with pytest.raises(DataError) as raised:
            criterion(*arguments)
        assert raised.value.what == what
    two = criterion_of("fixmatch")
    two.set_epoch(0)
    with pytest.raises(DataError, match="compares 2 views of every image, not 1"):
        two(output.logits, index)


@pytest.mark.parametrize("name", ["en", "gr"])
def test_epochs_that_nobody_tells_of_are_noticed(name: str) -> None:
    criterion, model = criterion_of(name), Model()
    criterion.set_epoch(0)
    steps = [index for epoch in range(3) for index in batches(epoch)]
    with pytest.warns(DataWarning, match="epoch 0 has seen twice as many images as there are") as warned:
        assert [criterion(model(index).logits, index).ndim for index in steps] == [0] * 12
    assert [one.filename for one in warned] == [__file__]


def test_half_precision_and_an_optimizers_rate() -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.layer.parameters(), lr=0.5)
    criterion = SparseLoss("role", OBSERVED, expected_positives=1.5, lr=optimizer)
    criterion.set_epoch(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = criterion(model(torch.arange(4)).logits, torch.arange(4))
    assert loss.dtype == torch.float32
    assert criterion._pending is not None
    assert criterion._pending.progress.lr == 0.5


def test_a_state_of_other_labels_is_refused() -> None:
    state = criterion_of("en").state_dict()
    for labels in (OBSERVED[:-1], OBSERVED[:, :-1]):
        with pytest.raises(DataError) as raised:
            SparseLoss("en", labels, expected_positives=1.8).load_state_dict(state)
        assert (raised.value.value, raised.value.allowed) == (tuple(labels.shape), (COUNT, CLASSES))


def test_the_sampler_shows_every_image_once() -> None:
    sampler = ShardedSampler(COUNT, seed=3)
    first = list(sampler)
    sampler.set_epoch(1)
    assert sorted(first) == sorted(sampler) == list(range(COUNT))
    assert first != list(sampler)
    assert len(sampler) == COUNT


WHOLE = ViewGeometry.whole(4)
MAPS = torch.zeros(4, CLASSES, 2, 2)


@pytest.mark.parametrize("epoch", ["a", -1, 0.5, True, None])
def test_an_epoch_is_a_whole_number(epoch: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        criterion_of("an").set_epoch(epoch)
    assert (raised.value.what, raised.value.value) == ("epoch", epoch)


def test_the_method_comes_first() -> None:
    with pytest.raises(ConfigError, match="method first") as raised:
        SparseLoss(OBSERVED, "an")  # type: ignore[arg-type]
    assert raised.value.what == "method"


def test_settings_are_named_as_they_are_given() -> None:
    with pytest.raises(ConfigError, match="did you mean `expected_positives`") as raised:
        SparseLoss("en", OBSERVED, expectedpositives=2.0)
    assert raised.value.parameters == ["expected_positives"]
    assert raised.value.what == "expectedpositives"


@pytest.mark.parametrize("name", ["en+cl", "en+scl", "role", "pu+cl", "ll-cp", "wan+cl"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nothing_is_remembered_of_a_step_that_is_not_finite(name: str, bad: float) -> None:
    def state(with_bad_step: bool) -> dict[str, Any]:
        criterion, model, index = criterion_of(name), Model(), torch.arange(4)
        for epoch in range(2):
            criterion.set_epoch(epoch)
            output = model(index)
            criterion(output.logits, index, output.maps, WHOLE)
            if with_bad_step:
                logits, maps = output.logits.clone(), model(index).maps.clone()
                logits[0, 1] = maps[0, 1, 0, 0] = bad
                loss = criterion(logits, index, maps, WHOLE)
                assert loss.isnan() or bad == float("inf")  # which an entry that is left out may hide
        assert criterion(output.logits, index, output.maps, WHOLE).isfinite()
        stores: dict[str, Any] = criterion.state_dict()["_extra_state"]["stores"]
        return stores

    wanted, found = state(False), state(True)
    for store, values in wanted.items():
        for key, value in values.items():
            torch.testing.assert_close(found[store][key], value, rtol=0, atol=0)


@pytest.mark.parametrize("expected", [0.2, [0.05] * CLASSES])
def test_fewer_positives_than_are_observed(expected: Any) -> None:
    with pytest.warns(DataWarning, match="already") as warned:
        criterion = SparseLoss("en", OBSERVED, expected_positives=expected)
    warning = warned[0].message
    assert isinstance(warning, DataWarning)
    assert warning.what == "expected_positives"
    assert warning.value < warning.allowed  # type: ignore[operator]
    assert warning.remedies
    copy.deepcopy(criterion)  # says nothing again


def test_labels_with_nothing_unknown() -> None:
    with pytest.warns(DataWarning, match="nothing is unknown") as warned:
        SparseLoss("an", TRUTH)
    assert warned[0].message.what == "labels"  # type: ignore[union-attr]
    SparseLoss("bce", TRUTH, truth=TRUTH)
    SparseLoss("iu", TRUTH)


@pytest.mark.parametrize("name", ["iu", "fixmatch"])
def test_a_method_that_needs_negatives_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} leaves unknown labels out") as raised:
        SparseLoss(name, torch.where(OBSERVED == 0, -1, OBSERVED))
    assert raised.value.what == "labels"
    assert "sparsify" not in str(raised.value)


@pytest.mark.parametrize("other", ["an", "en+cl", "role"])
def test_a_state_of_another_method_is_refused_by_name(other: str) -> None:
    with pytest.raises(ConfigError) as raised:
        criterion_of("en").load_state_dict(criterion_of(other).state_dict())
    assert (raised.value.what, raised.value.value, raised.value.allowed) == ("method", other, "en")
    with pytest.raises(ConfigError) as raised:
        criterion_of("en").load_state_dict({"_extra_state": 3})
    assert raised.value.value is None


@pytest.mark.parametrize(
    ("given", "what"),
    [({"epochs": 0}, "epochs"), ({"head_epochs": -1}, "head_epochs"), ({"seed": "a"}, "seed")],
)
def test_numbers_that_are_none(given: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError) as raised:
        SparseLoss("an", OBSERVED, **given)
    assert (raised.value.what, raised.value.value) == (what, given[what])


def test_truth_of_another_shape() -> None:
    with pytest.raises(DataError) as raised:
        SparseLoss("bce", OBSERVED, truth=TRUTH[1:])
    assert (raised.value.what, raised.value.allowed) == ("truth", (COUNT, CLASSES))


def test_nothing_known_is_nothing_to_learn_from() -> None:
    with pytest.raises(DataError) as raised:
        SparseLoss("an", np.full((4, 2), -1))
    assert raised.value.what == "labels"


def test_an_output_is_no_logits() -> None:
    criterion = criterion_of("an")
    criterion.set_epoch(0)
    with pytest.raises(DataError, match=r"output\.logits") as raised:
        criterion(Model()(torch.arange(4)), torch.arange(4))
    assert (raised.value.what, raised.value.value) == ("logits", "Output")


@pytest.mark.parametrize("count", [0, -1, 2.5, [1, 2]])
def test_a_sampler_takes_the_number_of_images(count: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        ShardedSampler(count)
    assert (raised.value.what, raised.value.value) == ("count", count)


def test_a_setting_that_an_epoch_refuses_is_named_as_given() -> None:
    criterion = SparseLoss("em+apl", OBSERVED, epochs=2)
    with pytest.raises(ConfigError) as raised:
        criterion.set_epoch(0)
    assert raised.value.parameters == ["warm_up"]


def test_it_says_what_it_is() -> None:
    images, classes = OBSERVED.shape
    assert f"'en', {images} images, {classes} classes" in repr(criterion_of("en"))


def test_a_head_that_is_computed_is_no_loss() -> None:
    with pytest.warns(DataWarning, match="take SparseLabelClassifier") as warned:
        SparseLoss("soft", OBSERVED)
    assert warned[0].filename == __file__
