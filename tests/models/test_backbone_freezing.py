from functools import partial

import pytest
import torch
from torch import nn

from sparselabel.errors import ConfigError
from sparselabel.models.backbone import frozen_parts, grad_checkpointing, make_backbone, norms
from sparselabel.models.classifier import Classifier, LinearHead


def classifier(name: str, size: int = 64) -> Classifier:
    torch.manual_seed(0)
    backbone = make_backbone(name, "none", size=size)
    return Classifier(backbone, LinearHead(backbone.width, 3))


def test_the_stem_and_first_stage_of_a_resnet_and_its_norms() -> None:
    """As Query2Label freezes ResNets: all but layers 2 to 4, and every batch norm (the authors' program)."""
    model = classifier("resnet18")
    model.freeze(False, frozen_parts(model.backbone, norm=True, stages=2))
    trained = {name for name, value in model.backbone.network.named_parameters() if value.requires_grad}
    assert trained == {
        name
        for name, _ in model.backbone.network.named_parameters()
        if name.startswith(("layer2", "layer3", "layer4")) and "bn" not in name and "downsample.1" not in name
    }
    model.train()
    assert not any(layer.training for layer in norms(model))
    assert model.backbone.network.layer2.training  # type: ignore[union-attr]
    model.freeze(False)
    model.train()
    assert all(layer.training for layer in norms(model))
    assert all(value.requires_grad for value in model.parameters())


def test_a_frozen_stage_rests_with_its_norms() -> None:
    model = classifier("test_resnet")
    model.freeze(False, frozen_parts(model.backbone, norm=False, stages=2))
    model.train()
    network = model.backbone.network
    resting = {name for name, part in network.named_modules() if name and not part.training}
    assert "layer1.0.bn1" in resting
    assert not any(name.startswith("layer2") for name in resting)


def test_the_token_and_places_of_a_transformer_rest_with_its_stem() -> None:
    model = classifier("test_vit")
    model.freeze(False, frozen_parts(model.backbone, norm=False, stages=2))
    network = model.backbone.network
    resting = {name for name, value in network.named_parameters() if not value.requires_grad}
    assert {"cls_token", "pos_embed", "patch_embed.proj.weight", "blocks.0.attn.qkv.weight"} <= resting
    assert not any(name.startswith(("blocks.1", "norm")) for name in resting)
    model.freeze(False)
    assert all(value.requires_grad for value in network.parameters())


@pytest.mark.parametrize(("name", "stages"), [("test_vit", 7), ("resnet18", 5)])
def test_too_many_stages(name: str, stages: int) -> None:
    backbone = make_backbone(name, "none", size=64)
    with pytest.raises(ConfigError, match=rf"would leave nothing .* which has {stages} stages") as error:
        frozen_parts(backbone, norm=False, stages=stages)
    assert (error.value.what, error.value.value) == ("finetune.frozen_stages", stages)
    assert error.value.allowed == stages - 1
    assert frozen_parts(backbone, norm=False, stages=stages - 1)


def test_a_backbone_without_batch_norm() -> None:
    with pytest.raises(ConfigError, match="this backbone has none: leave it out"):
        frozen_parts(make_backbone("test_vit", "none", size=64), norm=True, stages=0)


def test_a_network_that_cannot_be_computed_again() -> None:
    backbone = make_backbone("test_resnet", "none", size=64)
    backbone.network = nn.Conv2d(3, 8, 1)
    with pytest.raises(ConfigError, match="Conv2d has no gradient checkpointing") as error:
        grad_checkpointing(backbone, True)
    assert error.value.parameters == ["finetune.micro_batches", "finetune.batch_size", "backbone"]
    grad_checkpointing(backbone, False)


def counting(sizes: list[int], saved: torch.Tensor) -> torch.Tensor:
    sizes.append(saved.numel())
    return saved


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_efficientnet", "test_convnext"])
def test_computing_again_gives_the_same_gradients_of_fewer_kept_numbers(name: str) -> None:
    views = torch.randint(0, 256, (4, 3, 64, 64), dtype=torch.uint8, generator=torch.manual_seed(1))
    found, kept = [], []
    for on in (False, True):
        model = classifier(name).double().train()
        grad_checkpointing(model.backbone, on)
        sizes: list[int] = []
        torch.manual_seed(2)
        with torch.autograd.graph.saved_tensors_hooks(partial(counting, sizes), lambda saved: saved):
            loss = model(views).logits.square().sum()
        kept.append(sum(sizes))
        loss.backward()
        found.append([value.grad for value in model.parameters()])
    for plain, again in zip(*found, strict=True):
        torch.testing.assert_close(plain, again, rtol=1e-12, atol=1e-12)
    assert kept[1] < 0.7 * kept[0]
