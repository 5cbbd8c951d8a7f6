"""CvT through transformers, with small models."""

import sys
from typing import Any

import pytest
import torch
from timm.layers.drop import DropPath

from sparselabel.errors import ConfigError, ModelError
from sparselabel.models import cvt
from sparselabel.models.backbone import frozen_parts, grad_checkpointing, make_backbone

SMALL: dict[str, Any] = {"embed_dim": [8, 16, 32], "num_heads": [1, 2, 4], "depth": [1, 2, 3]}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cvt, "W24", SMALL)


@pytest.mark.usefixtures("small")
def test_cells_of_16_pixels_normalized() -> None:
    torch.manual_seed(0)
    backbone = make_backbone("cvt_w24", "none", size=64).eval()
    with torch.no_grad():
        cells = backbone(torch.randint(0, 256, (2, 3, 64, 96), dtype=torch.uint8))
    assert cells.shape == (2, 32, 4, 6)
    assert backbone.grid(64) == (4, 4)
    torch.testing.assert_close(cells.mean(dim=1), torch.zeros(2, 4, 6), rtol=0, atol=1e-5)
    torch.testing.assert_close(cells.std(dim=1, correction=0), torch.ones(2, 4, 6), rtol=0, atol=1e-2)


@pytest.mark.usefixtures("small")
def test_computed_again_it_has_the_same_gradients() -> None:
    views = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    found = []
    for on in (False, True):
        torch.manual_seed(0)
        backbone = make_backbone("cvt_w24", "none", size=64).double()
        grad_checkpointing(backbone, on)
        backbone(views).square().sum().backward()
        found.append([value.grad for value in backbone.parameters() if value.grad is not None])
    for plain, again in zip(*found, strict=True):
        torch.testing.assert_close(plain, again, rtol=1e-10, atol=1e-12)
    grad_checkpointing(backbone, False)
    assert "forward" not in vars(backbone.network._layers()[0])  # type: ignore[operator]


@pytest.mark.usefixtures("small")
def test_its_first_stages() -> None:
    backbone = make_backbone("cvt_w24", "none", size=64)
    for part in frozen_parts(backbone, norm=False, stages=2):
        part.requires_grad_(False)
    trained = {
        name.split(".")[2]
        for name, value in backbone.network.named_parameters()
        if value.requires_grad and "stages" in name
    }
    assert trained == {"1", "2"}


def test_in_training_no_image_is_lost() -> None:
    torch.manual_seed(0)
    network = cvt.CvtNetwork(**SMALL, drop_path_rate=[0.0, 0.5, 0.9]).train()
    views = torch.randn(16, 3, 64, 64, requires_grad=True)
    cells = network.forward_features(views)
    asked = torch.randn_like(cells[0])
    for number, own in enumerate(cells):
        # Its own features to its own pixels: batch norm would carry those of others.
        (gradient,) = torch.autograd.grad((own * asked).sum(), views, retain_graph=True)
        assert gradient[number].abs().max() > 0


def test_a_dropped_layer_hands_on_what_it_was_given() -> None:
    torch.manual_seed(0)
    network = cvt.CvtNetwork(**SMALL, drop_path_rate=[0.0, 1.0, 0.0]).train()
    views = torch.randn(2, 3, 64, 64)
    found = network.forward_features(views)
    del network.encoder.stages[1].layers[1]  # both of its branches are always dropped
    torch.testing.assert_close(found, network.forward_features(views), rtol=0, atol=0)


def test_a_kept_branch_is_scaled_as_timm_does() -> None:
    torch.manual_seed(0)
    layer: Any = cvt.CvtNetwork(**SMALL, drop_path_rate=[0.0, 0.5, 0.0]).encoder.stages[1].layers[1]
    for name, part in layer.named_modules():
        part.train("dropout" in name)  # batch norm rests
    tokens = torch.randn(64, 16, 16)
    with torch.no_grad():
        found = layer(tokens, 4, 4)
        layer.eval()
        attention = layer.attention(layer.layernorm_before(tokens), 4, 4)
        ways = []
        for first in (0, 2):
            state = tokens + first * attention
            branch = layer.output(layer.intermediate(layer.layernorm_after(state)), torch.zeros(()))
            ways += [state, state + 2 * branch]
    off = torch.stack([(found - way).abs().amax(dim=(1, 2)) for way in ways])
    assert off.amin(dim=0).max() < 1e-5  # every image went one of the four ways
    assert {*off.argmin(dim=0).tolist()} == {0, 1, 2, 3}


def test_the_rate_rises_along_the_layers_of_a_stage_as_the_authors_have_it() -> None:
    """DROP_PATH_RATE [0.0, 0.0, 0.3] of their cvt-w24-384x384.yaml, from 0 on in each stage."""
    with torch.device("meta"):
        network = cvt.CvtNetwork(**cvt.W24)
    rates = [
        [
            [part.drop_prob for part in branch.modules() if isinstance(part, DropPath)]
            for layer in stage.layers
            for branch in (layer.attention.output, layer.output)
        ]
        for stage in network.encoder.stages
    ]
    assert rates[:2] == [[[0.0]] * 4] * 2
    expected = torch.linspace(0, 0.3, 20).repeat_interleave(2)[:, None]
    torch.testing.assert_close(torch.tensor(rates[2]), expected)
    assert all(isinstance(layer.drop_path, torch.nn.Identity) for layer in network._layers())


def test_judged_it_is_what_transformers_has_but_for_the_activation() -> None:
    config, model = cvt._transformers()
    torch.manual_seed(0)
    network = cvt.CvtNetwork(**SMALL, drop_path_rate=[0.0, 0.5, 0.9]).eval()
    plain = model(config(**SMALL), add_pooling_layer=False).eval()
    for layer in [layer for stage in plain.encoder.stages for layer in stage.layers]:
        layer.intermediate.activation = cvt.QuickGELU()
    own = {name: value for name, value in network.state_dict().items() if not name.startswith("norm.")}
    plain.load_state_dict(own)  # under the same names
    views = torch.randn(2, 3, 64, 96)
    with torch.no_grad():
        expected = network.norm(plain(views).last_hidden_state.movedim(1, 3)).movedim(3, 1)
        torch.testing.assert_close(network.forward_features(views), expected, rtol=0, atol=0)


def test_the_authors_activation() -> None:
    numbers = torch.tensor([-1.0, 0.0, 2.0])
    expected = numbers / (1 + torch.exp(-1.702 * numbers))
    torch.testing.assert_close(cvt.QuickGELU()(numbers), expected)


def test_without_transformers_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModelError, match=r"cvt_w24 needs a package .*: pip install 'sparselabel\[cvt\]'"):
        make_backbone("cvt_w24", "none", size=64)


def test_what_it_has_not() -> None:
    with pytest.raises(ConfigError, match="'cvt_w24' has cells of 16 pixels, always"):
        make_backbone("cvt_w24", "none", size=64, output_stride=8)
