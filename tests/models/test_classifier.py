import pytest
import torch

from sparselabel.errors import ConfigError
from sparselabel.models.backbone import Backbone, make_backbone
from sparselabel.models.classifier import Classifier, LinearHead
from tests.conftest import Golden


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    torch.manual_seed(0)
    return make_backbone("test_resnet", "none", size=64).eval()


def views(batch: int = 3, size: int = 64) -> torch.Tensor:
    return torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8, generator=torch.manual_seed(1))


def test_pooling_first_gives_the_same_logits(backbone: Backbone) -> None:
    model = Classifier(backbone, LinearHead(backbone.width, 5)).eval()
    with torch.no_grad():
        fast, full = model(views()), model(views(), maps=True)
    assert fast.maps is None
    assert full.maps.shape == (3, 5, 2, 2)
    torch.testing.assert_close(full.maps.mean(dim=(2, 3)), full.logits)
    torch.testing.assert_close(fast.logits, full.logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(model.head(full.features.mean(dim=(2, 3))).logits, full.logits)


class Recorder(torch.nn.Module):
    """A network that gives back what it is fed."""

    num_features = 3

    def forward_features(self, pixels: torch.Tensor) -> torch.Tensor:
        return pixels


def test_normalization_is_inside() -> None:
    backbone = Backbone(Recorder(), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    gray = torch.full((1, 3, 4, 4), 128, dtype=torch.uint8)
    expected = (128 / 255 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    torch.testing.assert_close(backbone(gray)[0, :, 0, 0], expected)


def test_a_frozen_backbone_stays_as_it_is(backbone: Backbone) -> None:
    model = Classifier(backbone, LinearHead(backbone.width, 5))
    model.freeze(True)
    model.train()
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    model(views()).logits.sum().backward()
    assert all(p.grad is not None for p in model.head.parameters())
    assert all(p.grad is None for p in backbone.parameters())
    assert all(torch.equal(before[key], value) for key, value in backbone.state_dict().items())
    model.freeze(False)
    assert backbone.network.training
    model(views()).logits.sum().backward()
    assert all(p.grad is not None for p in backbone.parameters())
    backbone.eval()


@pytest.mark.parametrize(("name", "cells"), [("test_vit", 4), ("test_efficientnet", 2), ("test_convnext", 2)])
def test_other_families_give_cells(name: str, cells: int) -> None:
    backbone = make_backbone(name, "none", size=64).eval()
    with torch.no_grad():
        features = backbone(views(2))
    assert features.shape == (2, backbone.width, cells, cells)


def test_smaller_cells_by_output_stride() -> None:
    backbone = make_backbone("mobilenetv2_035", "none", size=64, output_stride=16).eval()
    with torch.no_grad():
        assert backbone(views(1)).shape == (1, 1280, 4, 4)


def identity_head(classes: int, boost: float) -> LinearHead:
    """A head whose cell logits are the features themselves."""
    head = LinearHead(classes, classes, boost).double()
    with torch.no_grad():
        head.linear.weight.copy_(torch.eye(classes))
        head.linear.bias.zero_()
    return head


@pytest.mark.parametrize("number", range(3))
def test_a_boosted_head_has_the_authors_numbers(reweighting: Golden, number: int) -> None:
    case = reweighting.cases[f"boost/boostlu{number}"]
    cells = torch.from_numpy(case["inputs"]["cam"]).double().requires_grad_()
    output = identity_head(cells.shape[1], case["hyper"]["alpha"])(cells, maps=True)
    assert output.maps is not None
    for logits in (output.logits, output.maps.mean(dim=(2, 3))):
        torch.testing.assert_close(
            logits, torch.from_numpy(case["outputs"]["logits64"]), rtol=1e-9, atol=1e-12
        )
    total = (torch.from_numpy(case["inputs"]["upstream"]) * output.logits).sum()
    (gradient,) = torch.autograd.grad(total, cells)
    wanted = torch.from_numpy(case["outputs"]["grad_cam64"])
    torch.testing.assert_close(gradient, wanted, rtol=1e-9, atol=1e-12)


def test_a_boosted_head_never_pools_first(backbone: Backbone) -> None:
    torch.manual_seed(0)
    model = Classifier(backbone, LinearHead(backbone.width, 5, boost=5.0)).eval()
    with torch.no_grad():
        plain, with_maps = model(views()), model(views(), maps=True)
    assert plain.maps is None
    torch.testing.assert_close(plain.logits, with_maps.logits, rtol=0, atol=0)
    with pytest.raises(
        ConfigError, match="multiplies the logits of cells, which pooled features do not have"
    ):
        model.head(torch.zeros(2, backbone.width))


def test_a_standardized_head_begins_with_the_shares_and_gives_maps_that_agree() -> None:
    generator = torch.Generator().manual_seed(0)
    features = 5 + 3 * torch.randn(200, 4, generator=generator)
    features[:, 3] = 0.0  # constant
    head = LinearHead(4, 2)
    head.standardize(features, torch.tensor([0.25, 0.5]))
    torch.testing.assert_close(
        torch.sigmoid(head(features).logits), torch.tensor([[0.25, 0.5]]).expand(200, 2)
    )
    seen = head.standardized(features)
    torch.testing.assert_close(seen.mean(0), torch.zeros(4), atol=1e-4, rtol=0)
    torch.testing.assert_close(seen.std(0, correction=0), torch.tensor([25.0, 25.0, 25.0, 0.0]))  # 100 / D
    with torch.no_grad():
        head.linear.weight.copy_(torch.randn(2, 4, generator=generator))
    cells = 5 + 3 * torch.randn(3, 4, 2, 2, generator=generator)
    output = head(cells, maps=True)
    torch.testing.assert_close(output.logits, head(cells).logits, atol=1e-3, rtol=1e-4)
    # Cells are divided by the norm of their image's pooled features, so that brighter images are no surer.
    torch.testing.assert_close(head(3 * cells, maps=True).maps, output.maps, atol=1e-3, rtol=1e-4)
    again = LinearHead(4, 2)
    again.load_state_dict(head.state_dict())
    torch.testing.assert_close(again(features).logits, head(features).logits)
