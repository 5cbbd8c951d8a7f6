"""The authors' released Query2Label checkpoints: names and shapes of the full-size models, without weights.

The names are those of the authors' program (SlongLiu/query2labels) and of the networks it takes its backbones
from: torchvision's ResNet, TResNet, Swin Transformer, CvT.
"""

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sparselabel.config import Query
from sparselabel.errors import ConfigError, DataWarning, ModelError
from sparselabel.models.backbone import Backbone, make_backbone
from sparselabel.models.classifier import Classifier
from sparselabel.models.query2label import QueryHead, head_like, released_head
from sparselabel.models.weights import is_released, load_weights, released_backbone
from sparselabel.training.network import Network
from tests.training.conftest import tiny

# Name of a released model: our backbone, its width, the side of its views, cells along it.
MODELS = {
    "Q2L-R101-448": ("resnet101", 2048, 448, 14),
    "Q2L-R101-576": ("resnet101", 2048, 576, 18),
    "Q2L-TResL-448": ("tresnet_l", 2432, 448, 14),
    "Q2L-TResL_22k-448": ("tresnet_v2_l", 2048, 448, 14),
    "Q2L-SwinL-384": ("swin_large_patch4_window12_384", 1536, 384, 12),
    "Q2L-CvT_w24-384": ("cvt_w24", 1024, 384, 24),
}


def on_paper(name: str, size: int) -> Backbone:
    """A full-size backbone that has shapes, but no numbers."""
    with torch.device("meta"):
        return make_backbone(name, "none", size=size)


def their_name(backbone: str, ours: str) -> str:
    """What a tensor of the backbone is called in a released file."""
    if backbone == "resnet101":
        return f"backbone.0.body.{ours}"
    if backbone.startswith("tresnet"):
        # A convolution and its norm are a Sequential, inside another one where a blur follows it.
        first = "layer2.0.conv1" if backbone == "tresnet_l" else "layer2.0.conv2"
        blurred = any(name in ours for name in (first, "layer3.0.conv2", "layer4.0.conv2"))
        inner = "0." if blurred else ""
        ours = re.sub(r"(conv\d)\.conv\.", rf"\1.{inner}0.", ours)
        ours = re.sub(r"(conv\d)\.bn\.", rf"\1.{inner}1.", ours)
        ours = re.sub(r"(downsample\.\d)\.conv\.", r"\1.0.", ours)
        ours = re.sub(r"(downsample\.\d)\.bn\.", r"\1.1.", ours)
        return f"backbone.0.body.{ours}"
    if backbone.startswith("swin"):
        return "backbone.0." + re.sub(
            r"layers\.(\d)\.downsample", lambda found: f"layers.{int(found[1]) - 1}.downsample", ours
        )
    patch = r"encoder\.stages\.(\d)\.embedding\.convolution_embeddings\."
    kind = r"attention\.attention\.convolution_projection_([qkv])\w+\.convolution_projection\."
    for theirs, here in (
        (r"stage\1.patch_embed.proj.", rf"{patch}projection\."),
        (r"stage\1.patch_embed.norm.", rf"{patch}normalization\."),
        (r"stage\1.blocks.", r"encoder\.stages\.(\d)\.layers\."),
        (r"stage\1.cls_token", r"encoder\.stages\.(\d)\.cls_token"),
        (r"attn.conv_proj_\1.bn.", rf"{kind}normalization\."),
        (r"attn.conv_proj_\1.conv.", rf"{kind}convolution\."),
        (r"attn.proj_\1.", r"attention\.attention\.projection_([qkv])\w+\."),
        ("attn.proj.", r"attention\.output\.dense\."),
        ("mlp.fc1.", r"intermediate\.dense\."),
        ("mlp.fc2.", r"output\.dense\."),
        ("norm1.", r"layernorm_before\."),
        ("norm2.", r"layernorm_after\."),
    ):
        ours = re.sub(here, theirs, ours)
    return f"backbone.0.{ours}"


def their_head(head: QueryHead) -> dict[str, Tensor]:
    named = {}
    for ours, value in head.state_dict().items():
        key = re.sub(r"^(encoder|decoder)\.", r"transformer.\1.layers.", ours)
        key = {
            "norm.weight": "transformer.decoder.norm.weight",
            "norm.bias": "transformer.decoder.norm.bias",
        }.get(key, key)
        if key in ("weight", "bias"):
            named[{"weight": "fc.W", "bias": "fc.b"}[key]] = value[None]
        else:
            named[key] = value
    return named


def their_file(backbone: str, network: nn.Module, head: QueryHead, classes: int = 80) -> dict[str, Tensor]:
    own = {
        their_name(backbone, name): value
        for name, value in network.state_dict().items()
        if backbone != "resnet101" or not name.endswith("num_batches_tracked")  # its batch norm is frozen
    }
    if backbone.startswith("swin"):
        own["backbone.0.layers.0.blocks.1.attn_mask"] = torch.zeros(1, device="meta")
        own["backbone.0.layers.0.blocks.0.attn.relative_position_index"] = torch.zeros(1, device="meta")
    own["backbone.1.pe"] = torch.zeros(1, 4, 2, 2)  # the code of places, which nobody learns
    return {f"module.{name}": value for name, value in (own | their_head(head)).items()}


@pytest.mark.parametrize("released", MODELS)
def test_every_name_and_shape_finds_its_place(released: str) -> None:
    name, width, size, cells = MODELS[released]
    backbone = on_paper(name, size)
    assert backbone.width == width
    with torch.device("meta"):
        head = QueryHead(width, 80)
        file = their_file(name, backbone.network, head)
        again = head_like(released_names(file), width, 80)
        features = backbone.eval()(torch.zeros(1, 3, size, size, dtype=torch.uint8))
    assert features.shape == (1, width, cells, cells)
    assert is_released(file)
    assert "module.backbone.1.pe" in file
    assert not [key for key in released_names(file) if key.endswith("pe")]
    found = released_backbone(file, backbone.network)
    assert "pe" not in found
    wanted = {
        key: value.shape
        for key, value in backbone.network.state_dict().items()
        if name != "resnet101" or not key.endswith("num_batches_tracked")
    }
    assert {key: value.shape for key, value in found.items()} == wanted
    assert {key: value.shape for key, value in again.state_dict().items()} == {
        key: value.shape for key, value in head.state_dict().items()
    }


def released_names(file: dict[str, Tensor]) -> dict[str, Tensor]:
    from sparselabel.models.query2label import from_released

    return from_released(file)


def test_names_of_the_authors_files() -> None:
    """A few names as they are in the programs, so that the inverse above is not its own judge."""
    assert their_name("resnet101", "layer3.22.bn2.running_var") == "backbone.0.body.layer3.22.bn2.running_var"
    assert their_name("tresnet_l", "body.conv1.conv.weight") == "backbone.0.body.body.conv1.0.weight"
    assert (
        their_name("tresnet_l", "body.layer1.2.conv2.bn.bias") == "backbone.0.body.body.layer1.2.conv2.1.bias"
    )
    swin = "swin_large_patch4_window12_384"
    assert their_name(swin, "layers.1.downsample.norm.bias") == "backbone.0.layers.0.downsample.norm.bias"
    cvt = "encoder.stages.2.layers.19.attention.attention."
    key = f"{cvt}convolution_projection_key.convolution_projection.normalization.running_mean"
    assert their_name("cvt_w24", key) == "backbone.0.stage2.blocks.19.attn.conv_proj_k.bn.running_mean"
    assert their_name("cvt_w24", "norm.weight") == "backbone.0.norm.weight"


@pytest.fixture
def small_file(tmp_path: Path) -> tuple[Path, Backbone, QueryHead]:
    """A released file of a small ResNet, with what the authors' program keeps beside weights."""
    torch.manual_seed(1)
    backbone = make_backbone("resnet18", "none", size=64)
    head = QueryHead(512, 12, inner=64)
    tensors = their_file("resnet101", backbone.network, head)
    path = tmp_path / "checkpoint.pkl"
    best: Any = np.float64(0.849)
    torch.save({"epoch": 3, "arch": "Q2L-R101-448", "state_dict": tensors, "best_mAP": best}, path)
    return path, backbone, head


def test_a_whole_model_is_taken_over(small_file: tuple[Path, Backbone, QueryHead]) -> None:
    path, backbone, head = small_file
    config = tiny(backbone="resnet18", weights=str(path), classifier="query2label")
    network = Network(config, 12)
    views = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    with torch.no_grad():
        wanted = Classifier(backbone, head).eval()(views).logits
        torch.testing.assert_close(network.classifier.eval()(views).logits, wanted)
    assert isinstance(network.head, QueryHead)
    assert network.head.state_dict()["decoder.0.linear1.weight"].shape == (64, 512)


def test_a_released_head_is_as_it_was_trained(small_file: tuple[Path, Backbone, QueryHead]) -> None:
    config = tiny(
        backbone="resnet18", weights=str(small_file[0]), classifier="query2label", query=Query(width=64)
    )
    with pytest.raises(ConfigError, match=r"`query` is for a head that starts anew, and that of .*\.pkl is"):
        _ = Network(config, 12).head


def test_other_classes_keep_all_but_queries(small_file: tuple[Path, Backbone, QueryHead]) -> None:
    path, _, head = small_file
    config = tiny(backbone="resnet18", weights=str(path), classifier="query2label")
    with pytest.warns(DataWarning, match="other classes than these 5: their queries and last layers"):
        other = Network(config, 5).head
    assert other.state_dict()["query_embed.weight"].shape == (5, 512)
    for name, value in head.state_dict().items():
        if name not in ("query_embed.weight", "weight", "bias"):
            assert torch.equal(other.state_dict()[name], value)


@pytest.mark.parametrize("classes", [12, 5])
def test_a_head_that_does_not_fit_names_what_does_not(
    small_file: tuple[Path, Backbone, QueryHead], classes: int
) -> None:
    path, backbone, head = small_file
    whole = their_file("resnet101", backbone.network, head)
    norm, out = "module.transformer.decoder.layers.1.norm2.bias", "module.transformer.decoder.norm.weight"
    config = tiny(backbone="resnet18", weights=str(path), classifier="query2label")

    def said(tensors: dict[str, Tensor]) -> str:
        torch.save({"state_dict": tensors}, path)
        with pytest.raises(ModelError) as raised:
            _ = Network(config, classes).head
        assert raised.value.parameters == ["backbone", "classifier"]
        return raised.value.problem

    missing = said({name: value for name, value in whole.items() if name != norm})
    assert missing == (
        f"{path} has no Query2Label head for a backbone of 512 features: missing or of another shape: "
        "decoder.1.norm2.bias; in the file but unknown: none (is it for another backbone, or of a changed "
        "program?)"
    )
    unknown = said(whole | {"module.transformer.scale": torch.ones(1)})
    assert "another shape: none; in the file but unknown: scale (is it" in unknown
    shape = said(whole | {out: torch.ones(256)})
    assert "another shape: norm.weight (256,) instead of (512,); in the file but unknown: none (" in shape
    bare = said({name: value for name, value in whole.items() if ".decoder.layers." not in name})
    assert "another shape: decoder.0.multihead_attn.in_proj_weight, " in bare
    assert "decoder.0.linear1.weight and 7 more; in the file but unknown: none (" in bare


def test_a_head_of_another_backbone_names_the_width(small_file: tuple[Path, Backbone, QueryHead]) -> None:
    path, _, head = small_file
    said = r"for a backbone of 256 features: .*\(512,\) instead of \(256,\)"
    for classes in (12, 5):
        with pytest.raises(ModelError, match=said):
            released_head(their_head(head), 256, classes, path)


def test_a_head_that_is_no_numbers(small_file: tuple[Path, Backbone, QueryHead]) -> None:
    path, _, head = small_file
    wrong = their_head(head) | {"module.transformer.decoder.norm.weight": torch.full((512,), torch.nan)}
    with pytest.raises(ModelError, match=r"norm.weight has values that are not finite \(512 of 512\): take"):
        released_head(wrong, 512, 12, path)


def test_the_backbone_alone_serves_any_head(small_file: tuple[Path, Backbone, QueryHead]) -> None:
    path, backbone, _ = small_file
    again = make_backbone("resnet18", str(path), size=64)
    for name, value in backbone.network.state_dict().items():
        assert torch.equal(again.network.state_dict()[name], value)


def test_a_file_of_another_backbone_names_what_does_not_fit(
    small_file: tuple[Path, Backbone, QueryHead],
) -> None:
    for name in ("resnet34", "test_vit"):
        network = make_backbone(name, "none", size=64).network
        with pytest.raises(ModelError, match=r"missing or of another shape: .*; in the file but unknown: "):
            load_weights(network, small_file[0])


def test_what_is_not_released(small_file: tuple[Path, Backbone, QueryHead]) -> None:
    _, backbone, head = small_file
    assert not is_released(backbone.network.state_dict())
    assert not is_released(head.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, whole = released_head(their_head(head), 512, 12, Path("checkpoint.pkl"))
    assert whole
    assert torch.equal(found.weight, head.weight)
