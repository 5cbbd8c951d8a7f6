"""CvT through transformers, small ones in numbers."""

import sys

import pytest
import torch

from sparselabel.errors import ConfigError, ModelError
from sparselabel.model import cvt
from sparselabel.model.backbone import make_backbone
from sparselabel.model.freezing import frozen_parts, recompute

SMALL = {"embed_dim": [8, 16, 32], "num_heads": [1, 2, 4], "depth": [1, 2, 3]}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cvt, "W24", SMALL)


@pytest.mark.usefixtures("small")
def test_cells_of_16_pixels_normalised() -> None:
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
        recompute(backbone, on)
        backbone(views).square().sum().backward()
        found.append([value.grad for value in backbone.parameters() if value.grad is not None])
    for plain, again in zip(*found, strict=True):
        torch.testing.assert_close(plain, again, rtol=1e-10, atol=1e-12)
    recompute(backbone, False)
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


def test_the_authors_activation() -> None:
    numbers = torch.tensor([-1.0, 0.0, 2.0])
    expected = numbers / (1 + torch.exp(-1.702 * numbers))
    torch.testing.assert_close(cvt.QuickGELU()(numbers), expected)


def test_without_transformers_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModelError, match=r"cvt_w24 needs a package .*: pip install 'sparselabel\[cvt\]'"):
        make_backbone("cvt_w24", "none", size=64)


def test_what_it_has_not() -> None:
    with pytest.raises(ConfigError, match="'cvt_w24' comes as it is: it has cells of 16 pixels"):
        make_backbone("cvt_w24", "none", size=64, output_stride=8)
