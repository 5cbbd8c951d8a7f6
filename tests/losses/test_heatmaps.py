"""Heat maps: equal to a slow reference, at the right place, without stalling, and nothing else is touched."""

from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparselabel.data.view_geometry import ViewGeometry
from sparselabel.errors import ConfigError, ResourceError
from sparselabel.losses import heatmaps
from sparselabel.losses.base import ComposedLoss
from sparselabel.losses.heatmaps import HeatMaps
from sparselabel.losses.memory.row_store import FileRowStore, make_row_store
from sparselabel.losses.registry import make_method
from sparselabel.losses.step import Layout, Progress, Step
from sparselabel.models.classifier import Output
from tests.losses import spatial_reference as slow
from tests.losses.steps import build_method

WHERE: tuple[Literal["ram", "file"], ...] = ("ram", "file")


def make(observed: Tensor, method: str = "an+scl", **settings: Any) -> tuple[ComposedLoss, HeatMaps]:
    made = build_method(method, observed, **settings)
    return made, next(part for part in made.parts() if isinstance(part, HeatMaps))


def step_of(maps: Tensor, observed: Tensor, geometry: ViewGeometry, rows: Tensor, epoch: int = 1) -> Step:
    output = Output(maps.mean(dim=(2, 3)), maps)
    return Step(rows, observed[rows.clamp(min=0)], (output,), (geometry,), Progress(epoch, 100, 0, 1e-3))


def learn(method: ComposedLoss, step: Step) -> None:
    method(step)
    method.update(step)


def random_frame(generator: torch.Generator, batch: int, smallest: float = 0.2) -> ViewGeometry:
    size = smallest + (1 - smallest) * torch.rand(batch, 2, generator=generator, dtype=torch.float64)
    corner = (1 - size) * torch.rand(batch, 2, generator=generator, dtype=torch.float64)
    return ViewGeometry(torch.cat([corner, size], dim=1), torch.rand(batch, generator=generator) < 0.5)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_equal_to_the_slow_reference(seed: int, high: int, wide: int, scale: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    observed = torch.randint(-1, 2, (5, 3), generator=generator).to(torch.int8)
    method, heat_maps = make(observed, map_scale=scale)
    rows = torch.tensor([3, 0, 4])
    for epoch in (1, 2):
        geometry = random_frame(generator, 3)
        maps = 3 * torch.randn(3, 3, high, wide, generator=generator, dtype=torch.float64)
        step = step_of(maps, observed, geometry, rows, epoch)
        losses = method(step)
        before = heat_maps.logged_state(rows)["heat_maps"]
        views = [
            slow.View(box[0], box[1], box[2], box[3], flip)
            for box, flip in zip(geometry.box.tolist(), geometry.flip.tolist(), strict=True)
        ]
        scores = torch.sigmoid(maps)
        wanted = torch.tensor(
            [[slow.seen(before[b, c] / 255, views[b], (high, wide)) for c in range(3)] for b in range(3)],
            dtype=torch.float64,
        )
        torch.testing.assert_close(heat_maps(step), wanted, rtol=0, atol=1e-6)
        assert float(losses["consistency"]) == pytest.approx(float((scores - wanted).abs().mean()), abs=1e-6)
        method.update(step)
        after = heat_maps.logged_state(rows)["heat_maps"].double()
        for b in range(3):
            for c in range(3):
                known = observed[rows[b], c] == 0
                said = torch.zeros_like(scores[b, c]) if known else scores[b, c]
                blended = torch.tensor(slow.averaged(before[b, c].double(), 255 * said, views[b], 0.8))
                assert ((after[b, c] - blended).abs() < 1).all()  # rounded up or down, never further
                untouched = blended == before[b, c]
                assert torch.equal(after[b, c][untouched], before[b, c].double()[untouched])


def test_start_and_one_step_by_hand() -> None:
    observed = torch.tensor([[1, -1, 0]], dtype=torch.int8)
    method, heat_maps = make(observed, map_scale=2)
    # One cell, the left half of the image, mirrored: with one cell the mirror does not show.
    geometry = ViewGeometry(torch.tensor([[0.0, 0.0, 0.5, 1.0]]), torch.tensor([True]))
    maps = torch.tensor([0.5, 0.5, 0.5], dtype=torch.float64).logit().view(1, 3, 1, 1)
    step = step_of(maps, observed, geometry, torch.tensor([0]))
    assert heat_maps(step).flatten().tolist() == [1.0, 0.0, 0.0]
    losses = method(step)
    assert float(losses["consistency"]) == pytest.approx((0.5 + 0.5 + 0.5) / 3, abs=1e-12)
    method.update(step)
    kept = heat_maps.logged_state(torch.tensor([0]))["heat_maps"][0].float()
    # Annotated: 255·(.8 + .2·.5) = 229.5, up or down; unknown: 25.5; observed negative: 0 for good.
    assert kept[0, :, 0].tolist()[0] in (229, 230)
    assert kept[1, :, 0].tolist()[0] in (25, 26)
    assert kept[0, :, 1].tolist() == [255, 255]
    assert kept[1, :, 1].tolist() == [0, 0]
    assert kept[2].tolist() == [[0, 0], [0, 0]]


def blob(size: int, across: float, down: float) -> Tensor:
    centers = (torch.arange(size) + 0.5) / size
    distance = (centers[None, :] - across) ** 2 + (centers[:, None] - down) ** 2
    return 0.05 + 0.85 * torch.exp(-distance / 0.05)


@pytest.mark.parametrize("momentum", [0.8, 0.99])
def test_a_painted_object_appears_at_its_place_without_stalling(momentum: float) -> None:
    cells, classes = 7, 2
    objects = torch.stack([blob(14, 0.3, 0.6), blob(14, 0.8, 0.2)])
    observed = torch.tensor([[1, -1]], dtype=torch.int8)
    method, heat_maps = make(observed, momentum=momentum)
    generator = torch.Generator().manual_seed(0)
    epochs = 2000 if momentum > 0.9 else 300
    kept, visits = torch.zeros(classes, 14, 14), torch.zeros(14, 14)
    for epoch in range(epochs):
        geometry = random_frame(generator, 1, smallest=0.5).to(dtype=torch.float32)
        said = geometry.crop_maps(objects[None], (cells, cells)).clamp(0.001, 0.999)
        step = step_of(said.logit(), observed, geometry, torch.tensor([0]), epoch)
        method(step)
        method.update(step)
        if epoch >= epochs // 2:
            kept += heat_maps.logged_state(torch.tensor([0]))["heat_maps"][0].float() / (255 * (epochs // 2))
        else:
            visits += geometry.uncrop_maps(said, (14, 14))[1][0]
    often = visits > 5 / (1 - momentum)  # the start is forgotten there: corners are seldom in a crop
    assert often.float().mean() > 0.5
    # Cutting and pasting smooth a little; nearest rounding would end .006 (μ .8) or .2 (μ .99) too low.
    for number in range(classes):
        assert int(kept[number].argmax()) == int(objects[number].argmax())
    assert float((kept - objects)[:, often].abs().mean()) < 0.02
    away = (objects < 0.06) & often
    assert float((kept - objects)[away].mean().abs()) < 0.004


@pytest.mark.parametrize(("momentum", "epochs"), [(0.8, 60), (0.99, 700)])
def test_a_constant_is_reached_to_a_tenth_of_a_level(momentum: float, epochs: int) -> None:
    rows = torch.arange(30)
    observed = torch.ones(30, 1, dtype=torch.int8)
    method, heat_maps = make(observed, momentum=momentum)
    maps = torch.tensor(0.9).logit().expand(30, 1, 8, 8)
    levels = []
    for epoch in range(epochs + 100):
        step = step_of(maps, observed, ViewGeometry.whole(30), rows, epoch)
        method(step)
        method.update(step)
        if epoch >= epochs:
            levels.append(heat_maps.logged_state(rows)["heat_maps"].float().mean())
    assert float(torch.stack(levels).mean()) == pytest.approx(0.9 * 255, abs=0.1)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_cells_outside_the_crop_stay_byte_for_byte(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    observed = torch.full((2, 4), -1, dtype=torch.int8)
    method, heat_maps = make(observed)
    rows = torch.tensor([1])
    learn(
        method, step_of(torch.randn(1, 4, 5, 5, generator=generator), observed, ViewGeometry.whole(1), rows)
    )
    before = heat_maps.logged_state(torch.arange(2))["heat_maps"]
    geometry = random_frame(generator, 1, smallest=0.1).to(dtype=torch.float32)
    learn(method, step_of(torch.randn(1, 4, 5, 5, generator=generator), observed, geometry, rows, 2))
    after = heat_maps.logged_state(torch.arange(2))["heat_maps"]
    _, visible = geometry.uncrop_maps(torch.zeros(1, 1, 5, 5), (10, 10))
    assert torch.equal(after[1][:, ~visible[0]], before[1][:, ~visible[0]])
    assert torch.equal(after[0], before[0])  # the other image


def test_padding_is_not_remembered() -> None:
    observed = torch.full((3, 2), -1, dtype=torch.int8)
    method, heat_maps = make(observed)
    maps = torch.full((2, 2, 3, 3), 2.0)
    learn(method, step_of(maps, observed, ViewGeometry.whole(2), torch.tensor([2, -1])))
    kept = heat_maps.logged_state(torch.arange(3))["heat_maps"].flatten(1).float().mean(dim=1)
    assert kept[:2].tolist() == [0, 0]
    assert kept[2] > 40


def test_rounding_depends_on_seed_epoch_and_row_not_on_the_batch() -> None:
    observed = torch.full((6, 3), -1, dtype=torch.int8)
    maps = torch.randn(6, 3, 4, 4, generator=torch.manual_seed(0))
    kept = []
    for batches in ([[0, 1, 2, 3, 4, 5]], [[5, 0], [2, 1, 3], [4]]):
        method, heat_maps = make(observed)
        for batch in batches:
            rows = torch.tensor(batch)
            learn(method, step_of(maps[rows], observed, ViewGeometry.whole(len(rows)), rows))
        kept.append(heat_maps.logged_state(torch.arange(6))["heat_maps"])
    assert torch.equal(*kept)


def test_only_the_best_classes_have_maps_and_the_others_count_as_zero() -> None:
    observed = torch.tensor([[-1, 1, -1, -1, 0]], dtype=torch.int8)
    method, heat_maps = make(observed, top_maps=2, momentum=0.5)
    rows = torch.tensor([0])
    warm = Progress(0, 4, 1, 1e-3)
    said = torch.tensor([0.4, 0.1, 0.8, 0.2, 0.9]).logit().view(1, 5, 1, 1).expand(-1, -1, 3, 3)
    step = Step(rows, observed, (Output(said.mean((2, 3)), said),), (ViewGeometry.whole(1),), warm)
    method.begin_epoch(warm)
    learn(method, step)
    assert "terms.consistency.heat_maps.maps" not in method.row_stores()  # nothing is kept in the warm-up
    warmed_up = Progress(1, 4, 1, 1e-3)
    method.begin_epoch(warmed_up)
    again = Step(rows, observed, step.outputs, step.geometries, warmed_up)
    targets = heat_maps(again)[0, :, 0, 0]
    # The annotated class starts at 1, the best other one at its running score .5·0 + .5·.8, in 255 levels.
    torch.testing.assert_close(targets, torch.tensor([0, 1, round(255 * 0.4) / 255, 0, 0]))
    learn(method, again)
    assert heat_maps.logged_state(rows)["heat_map_classes"].tolist() == [[1, 2]]
    kept = heat_maps.logged_state(rows)["heat_maps"][0].float().mean(dim=(1, 2)) / 255
    torch.testing.assert_close(kept, torch.tensor([0, 0.55, 0.6, 0, 0]), atol=0.005, rtol=0)
    state = {name: memory.state() for name, memory in method.row_stores().items()}
    assert state["terms.consistency.heat_maps.maps"]["values"].shape == (1, 2 * 6 * 6)


def test_an_epoch_that_nobody_began_is_refused_where_classes_are_chosen() -> None:
    observed = torch.tensor([[1, -1]], dtype=torch.int8)
    method, _ = make(observed, top_maps=1)
    step = step_of(torch.zeros(1, 2, 2, 2), observed, ViewGeometry.whole(1), torch.tensor([0]))
    said = r"a step of epoch 2 came .*criterion\.set_epoch\(1\), which counts from 0"
    with pytest.raises(ConfigError, match=said):
        method(step)


def test_maps_that_do_not_fit_are_refused_before_training_with_the_ways_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def small_machine(*arguments: Any, **options: Any) -> Any:
        return make_row_store(*arguments, **options, memory=lambda: 8 * 10**9, disk=lambda _: 5 * 10**9)

    monkeypatch.setattr(heatmaps, "make_row_store", small_machine)
    method = make_method("an+scl")
    observed = torch.full((1, 80), -1, dtype=torch.int8).expand(65_665, 80)
    with pytest.raises(ResourceError) as refused:
        method.prepare(Layout(torch.arange(65_665), observed, 65_665, folder=tmp_path, grid=(14, 14)))
    message = str(refused.value)
    assert "heat-maps-0 (65,665 rows × 62,720 numbers) needs 4.12 GB of memory" in message
    assert "or 8.24 GB of disk (two slots); 5.00 GB are free" in message
    assert "top_maps" in message
    assert "map_scale" in message


def test_in_a_file_they_are_the_same(tmp_path: Path) -> None:
    observed = torch.full((4, 3), -1, dtype=torch.int8)
    kept = []
    for keep in WHERE:
        method = make_method("an+scl")
        layout = Layout(torch.arange(4), observed, 4, folder=tmp_path, keep=keep, grid=(2, 2))
        method.prepare(layout)
        heat_maps = next(part for part in method.parts() if isinstance(part, HeatMaps))
        assert isinstance(heat_maps.maps, FileRowStore) == (keep == "file")
        generator = torch.Generator().manual_seed(1)
        for epoch in range(3):
            for batch in ([0, 3], [2, 1]):
                method.prefetch(torch.tensor([*batch, -1]))
                maps = torch.randn(2, 3, 2, 2, generator=generator)
                geometry = random_frame(generator, 2).to(dtype=torch.float32)
                learn(method, step_of(maps, observed, geometry, torch.tensor(batch), epoch))
        kept.append(heat_maps.logged_state(torch.arange(4))["heat_maps"])
    assert torch.equal(*kept)


def test_wrong_settings_are_refused() -> None:
    for scale in (0, 65, 100_000):
        with pytest.raises(ConfigError, match=f"map_scale must be 1 to 64, .* not {scale}"):
            make_method("an+scl", map_scale=scale)
    with pytest.raises(ConfigError, match=r"momentum must be in \[0, 1\], not 1\.5"):
        make_method("an+scl", momentum=1.5)
    with pytest.raises(ConfigError, match="top_maps must be at least 1, not 0"):
        make_method("an+scl", top_maps=0)
    observed = torch.tensor([[1, -1]], dtype=torch.int8)
    method, _ = make(observed)
    step = Step(
        torch.tensor([0]),
        observed,
        (Output(torch.zeros(1, 2)),),
        (ViewGeometry.whole(1),),
        Progress(1, 2, 0, 0.1),
    )
    with pytest.raises(ConfigError, match="scl compares cells: give maps="):
        method(step)


def test_every_observed_class_needs_a_map() -> None:
    observed = torch.tensor([[1, 1, 1, -1]], dtype=torch.int8)
    with pytest.raises(ConfigError, match="top_maps is 2, but an image has 3 observed classes"):
        make(observed, top_maps=2)


def test_more_maps_than_classes_are_refused() -> None:
    observed = torch.tensor([[1, -1, -1]], dtype=torch.int8)
    said = "top_maps must be at most 3, the number of classes, not 4: leave it out to keep the maps of all"
    with pytest.raises(ConfigError, match=said):
        make(observed, top_maps=4)
    assert make(observed, top_maps=3)[1].depth == 3


def test_ties_go_to_the_lower_class_and_observed_negatives_come_last() -> None:
    observed = torch.tensor([[0, 0, -1, -1, 1, -1]], dtype=torch.int8)
    method, heat_maps = make(observed, top_maps=3)
    method.begin_epoch(Progress(1, 2, 0, 1e-3))
    maps = torch.zeros(1, 6, 2, 2)
    learn(method, step_of(maps, observed, ViewGeometry.whole(1), torch.tensor([0])))
    assert heat_maps.classes.read(torch.tensor([0])).tolist() == [[4, 2, 3]]


def test_cells_under_a_hole_stay_byte_for_byte() -> None:
    observed = torch.tensor([[1, -1, -1]] * 2, dtype=torch.int8)
    whole = ViewGeometry.whole(2)
    method, heat_maps = make(observed, map_scale=2)
    rows = torch.tensor([0, 1])
    generator = torch.Generator().manual_seed(3)
    learn(method, step_of(torch.randn(2, 3, 4, 4, generator=generator), observed, whole, rows, 1))
    before = heat_maps.logged_state(rows)["heat_maps"].clone()
    # Of the second image a hole hides the view's top left quarter; it was mirrored: the top right.
    cutout = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]])
    geometry = ViewGeometry(whole.box, torch.tensor([False, True]), cutout)
    learn(method, step_of(torch.full((2, 3, 4, 4), -9.0), observed, geometry, rows, 2))
    after = heat_maps.logged_state(rows)["heat_maps"]
    moved = (after != before).any(dim=1)
    quarter = torch.zeros(8, 8, dtype=torch.bool)
    quarter[:4, 4:] = True
    assert torch.equal(after[1, :, :4, 4:], before[1, :, :4, 4:])
    assert moved[0].all()
    assert torch.equal(moved[1], ~quarter)


def test_cells_under_a_hole_are_not_asked() -> None:
    observed = torch.tensor([[1, -1]] * 3, dtype=torch.int8)
    method, _ = make(observed)
    # The maps start at 1 and 0, scores are ½: each cell is off by ½. The gradient tells which were asked.
    maps = torch.zeros(3, 2, 2, 2, requires_grad=True)
    cutout = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.5, 0.0, 0.5, 0.5], [0.0, 0.0, 1.0, 1.0]])
    geometry = ViewGeometry(ViewGeometry.whole(3).box, torch.zeros(3, dtype=torch.bool), cutout)
    step = step_of(maps, observed, geometry, torch.arange(3), 1)
    method.begin_epoch(step.progress)
    loss = method.terms["consistency"](step)
    loss.backward()
    assert loss.item() == pytest.approx((0.5 + 0.5 + 0) / 3, abs=1e-6)
    assert maps.grad is not None
    asked = [[[1, 1], [1, 1]], [[1, 0], [1, 1]], [[0, 0], [0, 0]]]
    assert (maps.grad[:, 0] != 0).int().tolist() == asked
    # ∂|σ − 1|/∂logit = −σ(1 − σ) = −¼, shared among the cells that were asked, the classes and the images.
    assert maps.grad[:, 0, 0, 0].tolist() == pytest.approx([-0.25 / 4 / 6, -0.25 / 3 / 6, 0], abs=1e-7)
