"""TS-CAM against the numbers of its authors' program."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from timm.models.beit import Beit
from timm.models.deit import VisionTransformerDistilled
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from timm.models.vision_transformer_relpos import VisionTransformerRelPos

from sparselabel.errors import ModelError
from sparselabel.models.backbone import Backbone, make_backbone
from sparselabel.models.classifier import Classifier
from sparselabel.models.heads import make_head
from sparselabel.models.tscam import PatchHead, TokenHead, coupled, with_attention
from tests.conftest import Golden


@pytest.fixture(scope="module")
def tscam() -> Golden:
    return Golden("tscam")


class Unscaled(Backbone):
    """A backbone for the golden images, which are normalized floats already."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__(network, (0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255))


def model_of(case: dict[str, Any]) -> Classifier:
    hyper = case["hyper"]
    network = VisionTransformer(
        img_size=hyper["img_size"],
        patch_size=hyper["patch_size"],
        embed_dim=hyper["embed_dim"],
        depth=hyper["depth"],
        num_heads=hyper["num_heads"],
        mlp_ratio=hyper["mlp_ratio"],
        num_classes=0,
        global_pool="",
    )
    weights = {
        role.removeprefix("sd:"): torch.from_numpy(value)
        for role, value in case["inputs"].items()
        if role.startswith("sd:")
    }
    head = PatchHead(hyper["embed_dim"], hyper["num_classes"])
    head.convolution.load_state_dict({"weight": weights.pop("head.weight"), "bias": weights.pop("head.bias")})
    network.load_state_dict(weights)
    return Classifier(Unscaled(network), head).eval()


@pytest.mark.parametrize("number", [0, 1])
@torch.no_grad()
def test_equals_the_authors_program(tscam: Golden, number: int) -> None:
    case = tscam.cases[f"tscam/deit_tscam{number}"]
    model, out = model_of(case), {key: torch.from_numpy(value) for key, value in case["outputs"].items()}
    images = torch.from_numpy(case["inputs"]["images"])
    found = model(images, maps=True)
    torch.testing.assert_close(found.logits, out["logits32"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.maps, out["semantic_map32"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model(images).logits, found.logits)
    grid = tuple(case["hyper"]["grid"])
    _, attention = with_attention(model.backbone, lambda: model.backbone(images))
    assert attention.shape == (len(images), *grid)
    torch.testing.assert_close(attention, out["attention32"].reshape(attention.shape), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(coupled(model, images).maps, out["cams32"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(coupled(model, images).logits, found.logits)
    double = model.double()
    torch.testing.assert_close(double(images.double()).logits, out["logits64"], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(coupled(double, images.double()).maps, out["cams64"], rtol=1e-9, atol=1e-12)


def views(size: int) -> torch.Tensor:
    return torch.randint(0, 256, (2, 3, size, size), dtype=torch.uint8, generator=torch.manual_seed(1))


@pytest.mark.parametrize(("size", "cells"), [(64, 4), (96, 6)])
@torch.no_grad()
def test_any_size_of_view(size: int, cells: int) -> None:
    backbone = make_backbone("test_vit", "none", size=size).eval()
    output = Classifier(backbone, make_head("tscam", backbone.width, 3)).eval()(views(size), maps=True)
    assert output.maps.shape == (2, 3, cells, cells)
    torch.testing.assert_close(output.maps.mean(dim=(2, 3)), output.logits)


@torch.no_grad()
def test_a_class_token_gives_the_logits_and_the_same_layer_the_maps() -> None:
    backbone = make_backbone("test_vit", "none", size=64).eval()
    head = TokenHead(backbone.width, 3)
    output = Classifier(backbone, head).eval()(views(64), maps=True)
    cells, token = backbone.with_token(views(64))
    torch.testing.assert_close(output.logits, head.linear(token))
    assert output.maps.shape == (2, 3, 4, 4)
    torch.testing.assert_close(output.maps[:, :, 1, 2], head.linear(cells[:, :, 1, 2]))


SMALL: dict[str, Any] = {"img_size": 24, "patch_size": 8, "embed_dim": 32, "depth": 3, "num_heads": 2}
TURNED: dict[str, Any] = {
    "use_rot_pos_emb": True,
    "rope_type": "dinov3",
    "num_reg_tokens": 2,
    "use_abs_pos_emb": False,
}
RELATIVE: dict[str, Any] = {"rel_pos_type": "bias", "class_token": True}


@pytest.mark.parametrize(
    "network",
    [
        lambda: VisionTransformer(**SMALL, qk_norm=True, reg_tokens=2, num_classes=0),
        lambda: Eva(**SMALL, use_rot_pos_emb=True, num_classes=0),
        lambda: Eva(**SMALL, **TURNED, qkv_fused=False, num_classes=0),
        lambda: Beit(**SMALL, use_rel_pos_bias=True, use_abs_pos_emb=False, num_classes=0),
        lambda: Beit(**SMALL, use_shared_rel_pos_bias=True, num_classes=0),
        lambda: VisionTransformerDistilled(**SMALL, num_classes=0),  # type: ignore[no-untyped-call]
        lambda: VisionTransformerRelPos(**SMALL, **RELATIVE, num_classes=0),
    ],
    ids=["vit", "eva02", "dinov3", "beit", "beit-shared", "deit-distilled", "relative"],
)
@torch.no_grad()
def test_attention_is_what_the_blocks_themselves_weigh_by(network: Callable[[], Any]) -> None:
    made = network().eval()
    for parameter in made.parameters():  # positions and biases begin at zero: let them count
        parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.manual_seed(parameter.numel())))
    backbone = Unscaled(made)
    images = torch.randn(2, 3, 24, 24, generator=torch.manual_seed(0))
    output, attention = with_attention(backbone, lambda: backbone(images))
    weights: list[torch.Tensor] = []
    for block in made.blocks:  # timm's slow attention has its weights pass through a dropout
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(lambda _, given, __: weights.append(given[0]))
    torch.testing.assert_close(backbone(images), output, rtol=1e-4, atol=1e-4)
    expected = torch.stack(weights).mean(dim=2)[:, :, 0, made.num_prefix_tokens :].sum(dim=0)
    torch.testing.assert_close(attention, expected.reshape(2, 3, 3), rtol=1e-4, atol=1e-6)
    with pytest.raises(ModelError, match="TIMM_FUSED_ATTN"):
        with_attention(backbone, lambda: backbone(images))


def test_blocks_with_two_attentions_are_refused() -> None:
    network = VisionTransformer(**SMALL, attn_layer="diff", num_classes=0)
    backbone = Unscaled(network.eval())
    with pytest.raises(ModelError, match=r"6 attentions in 3 blocks"):
        with_attention(backbone, lambda: backbone(torch.zeros(1, 3, 24, 24)))


def test_a_network_without_class_token_says_so() -> None:
    backbone = make_backbone("test_resnet", "none", size=64).eval()
    with pytest.raises(ModelError, match="no class token"):
        Classifier(backbone, TokenHead(backbone.width, 3))(views(64))
    with pytest.raises(ModelError, match="take a ViT or DeiT"):
        with_attention(backbone, lambda: backbone(views(64)))
