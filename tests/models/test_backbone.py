import socket
import time
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import timm
import torch
from safetensors.torch import save_file

from sparselabel.errors import ConfigError, ModelError, param
from sparselabel.models.backbone import Backbone, make_backbone, refuse_without_cells


@pytest.mark.parametrize(
    ("name", "near"), [("resent50", "resnet50"), ("test_vitt", "test_vit"), ("resne", "resnet")]
)
def test_an_unknown_name_names_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"timm has no backbone '{name}': did you mean .*{near}"):
        make_backbone(name, "none", size=64)


@pytest.mark.parametrize("name", ["", "qqqqqqqqqq"])
def test_a_name_that_is_like_none(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"timm has no backbone '{name}': timm.list_models\(\) names all"):
        make_backbone(name, "none", size=64)


@pytest.mark.parametrize("weights", ["none", "pretrained"])
def test_an_unknown_tag_names_those_there_are(weights: str) -> None:
    with pytest.raises(ConfigError, match=r"no backbone 'test_vit.foo' .*: it has test_vit.r160_in1k"):
        make_backbone("test_vit.foo", weights, size=64)


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing listens where the hub should be, and nothing was downloaded before."""
    constants = huggingface_hub.constants
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{found.getsockname()[1]}"
    url = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, nowhere)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url)
    monkeypatch.setattr(constants, "ENDPOINT", nowhere)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))


@pytest.mark.usefixtures("no_hub")
def test_a_hub_that_does_not_answer_is_not_asked_again_and_again() -> None:
    began = time.monotonic()
    said = r"weights of 'test_resnet' cannot be downloaded \(Connect\w*Error: .*refused\)"
    with pytest.raises(ModelError, match=said):
        make_backbone("test_resnet", size=64)
    assert time.monotonic() - began < 5


@pytest.mark.usefixtures("no_hub")
def test_weights_that_were_downloaded_before_need_no_hub(tmp_path: Path) -> None:
    torch.manual_seed(0)
    whole = timm.create_model("test_resnet").state_dict()
    snapshot = tmp_path / "models--timm--test_resnet.r160_in1k" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    save_file(whole, snapshot / "model.safetensors")
    (tmp_path / "models--timm--test_resnet.r160_in1k" / "refs").mkdir()
    (tmp_path / "models--timm--test_resnet.r160_in1k" / "refs" / "main").write_text("0" * 40)
    loaded = make_backbone("test_resnet", size=64).network.state_dict()
    assert all(torch.equal(value, whole[key]) for key, value in loaded.items())


def test_weights_that_cannot_be_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    create = timm.create_model

    def offline(name: str, pretrained: bool, **others: Any) -> Any:
        if pretrained:
            raise OSError("no route to host")
        return create(name, pretrained=False, **others)

    monkeypatch.setattr(timm, "create_model", offline)
    monkeypatch.setattr("sparselabel.models.backbone._ask_hub", lambda about: None)
    with pytest.raises(
        ModelError, match=r"'test_resnet' cannot be downloaded \(OSError: no route to host"
    ) as error:
        make_backbone("test_resnet", size=64)
    assert (error.value.what, error.value.parameters) == ("weights", ["weights", "weights"])
    assert param("weights", "none") in error.value.remedies[1]
    assert make_backbone("test_resnet", "none", size=64).width == 96


@pytest.mark.parametrize(("name", "stride"), [("test_vit", 16), ("test_resnet", 7)])
@pytest.mark.parametrize("weights", ["none", "pretrained"])
def test_an_output_stride_that_cannot_be(
    name: str, stride: int, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparselabel.models.backbone._ask_hub", lambda about: None)
    with pytest.raises(ConfigError, match=f"'{name}' .* convolutional networks have 8, 16 or 32") as error:
        make_backbone(name, weights, size=64, output_stride=stride)
    assert (error.value.what, error.value.value) == ("output_stride", stride)


def test_other_errors_of_timm_stay_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise TypeError("a bug")

    monkeypatch.setattr(timm, "create_model", broken)
    with pytest.raises(TypeError, match="a bug"):
        make_backbone("test_resnet", "none", size=64)


def test_a_transformer_takes_the_size_of_the_views() -> None:
    backbone = make_backbone("test_vit", "none", size=48).eval()
    with torch.no_grad():
        cells = backbone(torch.zeros(1, 3, 48, 48, dtype=torch.uint8))
    assert cells.shape == (1, backbone.width, 3, 3)


def test_tokens_go_back_to_their_places() -> None:
    backbone = make_backbone("test_vit", "none", size=64)
    skipped = 1  # the class token
    assert backbone.network.num_prefix_tokens == skipped
    tokens = torch.arange(float(skipped + 16)).view(1, -1, 1).expand(2, -1, backbone.width)
    cells = backbone._cells(tokens)
    assert cells.shape == (2, backbone.width, 4, 4)
    assert (cells[1, 5].flatten() - skipped).tolist() == list(range(16))


@torch.no_grad()
def test_a_distilled_deit_has_two_tokens_before_its_cells(tmp_path: Path) -> None:
    """Also with the weights of its whole network, which has two classifiers."""
    name = "deit_tiny_distilled_patch16_224"
    torch.manual_seed(0)
    whole: Any = timm.create_model(name, img_size=48).eval()
    save_file(whole.state_dict(), tmp_path / "w.safetensors")
    backbone = make_backbone(name, str(tmp_path / "w.safetensors"), size=48).eval()
    views = torch.randint(0, 256, (2, 3, 48, 48), dtype=torch.uint8)
    cells, token = backbone.with_token(views)
    tokens = whole.forward_features(backbone.normalized(views))
    assert tokens.shape == (2, 2 + 9, 192)
    torch.testing.assert_close(cells.flatten(2).transpose(1, 2), tokens[:, 2:])
    torch.testing.assert_close(token, tokens[:, 0])
    assert make_backbone(name, "none", size=48, own_head=True).network.num_classes == 1000


@torch.no_grad()
@pytest.mark.parametrize("name", ["xcit_nano_12_p16_224", "convit_tiny"])
def test_a_class_token_that_is_not_announced_is_no_cell(name: str) -> None:
    torch.manual_seed(0)
    backbone = make_backbone(name, "none", size=48).eval()
    assert not hasattr(backbone.network, "num_prefix_tokens")
    views = torch.randint(0, 256, (2, 3, 48, 48), dtype=torch.uint8)
    cells, token = backbone.with_token(views)
    network: Any = backbone.network
    tokens = network.forward_features(backbone.normalized(views))
    assert tokens.shape == (2, 1 + 9, backbone.width)
    assert cells.shape == (2, backbone.width, 3, 3)
    assert torch.equal(cells.flatten(2).transpose(1, 2), tokens[:, 1:])
    assert torch.equal(token, tokens[:, 0])


@pytest.mark.parametrize(
    ("name", "size", "grid"),
    [("inception_next_atto", 64, (2, 2)), ("efficientvit_b0", 64, (2, 2)), ("lambda_resnet26t", 128, (4, 4))],
)
def test_networks_that_must_pool_or_have_weights_of_five_axes(
    name: str, size: int, grid: tuple[int, int]
) -> None:
    assert make_backbone(name, "none", size=size).grid(size) == grid


@pytest.mark.parametrize(
    ("name", "size", "remedies"),
    [
        (
            "coat_tiny",
            64,
            (
                f"take another {param('backbone')}",
                f"perhaps {param('views.size', 224)}, which it was made for",
            ),
        ),
        ("pit_ti_224", 224, (f"take another {param('backbone')}",)),
    ],
)
def test_a_network_without_one_grid_of_cells(name: str, size: int, remedies: tuple[str, ...]) -> None:
    said = rf"^backbone '{name}' gives no grid of cells for views of {size} pixels \(\w+Error: .*\): "
    made = make_backbone(name, "none", size=size)
    with pytest.raises(ConfigError, match=said) as error:
        refuse_without_cells(made, name, size)
    assert (error.value.value, error.value.remedies) == (name, remedies)


def test_too_little_memory_is_not_the_backbones_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def grid(self: Backbone, size: int) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    made = make_backbone("test_resnet", "none", size=64)
    monkeypatch.setattr(Backbone, "grid", grid)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        refuse_without_cells(made, "test_resnet", 64)


def test_weights_of_a_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    whole = timm.create_model("test_resnet", num_classes=10)
    torch.save(
        {"state_dict": {f"module.{key}": value for key, value in whole.state_dict().items()}},
        tmp_path / "w.pth",
    )
    backbone = make_backbone("test_resnet", str(tmp_path / "w.pth"), size=64)
    loaded = backbone.network.state_dict()
    assert set(loaded) == {key for key in whole.state_dict() if not key.startswith("fc.")}
    assert all(torch.equal(value, whole.state_dict()[key]) for key, value in loaded.items())


def test_a_file_of_another_backbone(tmp_path: Path) -> None:
    torch.save(timm.create_model("test_vit").state_dict(), tmp_path / "vit.pth")
    with pytest.raises(
        ModelError, match=r"vit.pth fits 0 of the .* missing or of another shape: conv1.0.weight, "
    ):
        make_backbone("test_resnet", str(tmp_path / "vit.pth"), size=64)
    with pytest.raises(
        ModelError, match="weights file Pretrained does not exist: give a file, `pretrained` or `none`"
    ):
        make_backbone("test_resnet", "Pretrained", size=64)
