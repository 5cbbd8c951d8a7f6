import json
import pickle
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from sparselabel.errors import DataWarning, ModelError
from sparselabel.models.weights import load_weights, no_larger_than, read_tensors


def small(width: int = 4) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, width, 1), nn.BatchNorm2d(width))


@pytest.fixture
def trained() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {
        key: torch.randn_like(value) if value.is_floating_point() else torch.tensor(7)
        for key, value in small().state_dict().items()
    }


def assert_loaded(network: nn.Module, trained: dict[str, Tensor]) -> None:
    state = network.state_dict()
    assert {key for key in state if torch.equal(state[key], trained[key])} == set(state)


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pth", "weights.pt", "weights.bin"])
@pytest.mark.parametrize(
    "prefix",
    ["", "module.", "model.", "backbone.", "network.", "encoder.", "module.model.", "model.backbone."],
)
def test_any_file_and_prefix(name: str, prefix: str, trained: dict[str, Tensor], tmp_path: Path) -> None:
    content = {prefix + key: value for key, value in trained.items()}
    content |= {f"{prefix}fc.weight": torch.zeros(10, 4), f"{prefix}fc.bias": torch.zeros(10)}  # ignored
    if name.endswith("safetensors"):
        save_file(content, tmp_path / name)
    else:
        torch.save(content, tmp_path / name)
    network = small()
    load_weights(network, tmp_path / name)
    assert_loaded(network, trained)


@pytest.mark.parametrize("wrapper", ["state_dict", "model", "model_ema", "state_dict_ema"])
def test_weights_inside_a_checkpoint(wrapper: str, trained: dict[str, Tensor], tmp_path: Path) -> None:
    content: dict[str, Any] = {
        "epoch": 3,
        "best": 0.5,
        wrapper: {f"module.{k}": v for k, v in trained.items()},
    }
    torch.save(content, tmp_path / "checkpoint.pth")
    network = small()
    load_weights(network, tmp_path / "checkpoint.pth")
    assert_loaded(network, trained)


def test_keys_that_are_no_names_and_values_that_are_no_tensors(
    trained: dict[str, Tensor], tmp_path: Path
) -> None:
    content: dict[Any, Any] = {0: torch.zeros(2), "epoch": 3, **trained}
    torch.save(content, tmp_path / "weights.pth")
    assert set(read_tensors(tmp_path / "weights.pth")) == set(trained)


def test_batch_counters_may_be_missing(trained: dict[str, Tensor], tmp_path: Path) -> None:
    del trained["1.num_batches_tracked"]
    save_file(trained, tmp_path / "weights.safetensors")
    network = small()
    load_weights(network, tmp_path / "weights.safetensors")
    assert torch.equal(network.state_dict()["0.weight"], trained["0.weight"])


@pytest.fixture
def misfit(trained: dict[str, Tensor], tmp_path: Path) -> Path:
    """A file with one tensor missing, one of another shape, and one that nobody knows."""
    del trained["0.bias"]
    trained["1.weight"] = torch.ones(9)
    trained["stem.weight"] = torch.ones(1)
    save_file(trained, tmp_path / "misfit.safetensors")
    return tmp_path / "misfit.safetensors"


def test_a_file_that_does_not_fit_is_refused(misfit: Path) -> None:
    network = small()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    said = (
        "misfit.safetensors fits 4 of the 6 tensors of this backbone; missing or of another shape: 0.bias, "
        "1.weight (9,) instead of (4,); in the file but unknown: stem.weight"
    )
    with pytest.raises(ModelError, match=re.escape(said)) as error:
        load_weights(network, misfit)
    assert (error.value.what, error.value.parameters) == (misfit, ["backbone", "partial_weights"])
    assert_loaded(network, before)


def test_positions_of_another_image_size_are_resampled(tmp_path: Path) -> None:
    trained = timm.create_model("test_vit", img_size=96, num_classes=0)
    positions = nn.init.normal_(trained.get_parameter("pos_embed"))
    path = tmp_path / "half.safetensors"
    save_file({key: value.half() for key, value in trained.state_dict().items()}, path)
    network = timm.create_model("test_vit", img_size=160, num_classes=0)
    load_weights(network, path)
    table = positions.detach().half().float()
    prefix, grid = table[:, :1], table[:, 1:]
    larger = F.interpolate(
        grid.reshape(1, 6, 6, -1).permute(0, 3, 1, 2), (10, 10), mode="bicubic", antialias=True
    )
    expected = torch.cat([prefix, larger.flatten(2).transpose(1, 2)], dim=1)
    torch.testing.assert_close(network.get_parameter("pos_embed").detach(), expected)


def test_partial_takes_what_fits_and_says_so(misfit: Path, trained: dict[str, Tensor]) -> None:
    network = small()
    nn.init.constant_(network.get_parameter("0.bias"), 5.0)
    with pytest.warns(DataWarning, match="fits 4 of the 6 tensors"):
        load_weights(network, misfit, partial=True)
    assert torch.equal(network.get_parameter("0.weight"), trained["0.weight"])
    assert network.get_parameter("0.bias").tolist() == [5.0] * 4


@pytest.mark.parametrize("partial", [False, True])
def test_a_file_of_which_nothing_fits_is_always_refused(partial: bool, tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "other.safetensors")
    with pytest.raises(
        ModelError, match=r"fits 0 of the 6 tensors of this backbone.*in the file but unknown: a"
    ):
        load_weights(small(), tmp_path / "other.safetensors", partial=partial)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_no_numbers(wrong: float, trained: dict[str, Tensor], tmp_path: Path) -> None:
    file = tmp_path / "nan.pt"
    torch.save(trained | {"fc.weight": torch.full((2, 4), wrong)}, file)
    load_weights(small(), file)  # what is not taken over does no harm
    trained["0.weight"][1, 2] = wrong
    torch.save(trained, file)
    said = r"nan.pt: tensor 0.weight has values that are not finite \(1 of 12\): take another file$"
    with pytest.raises(ModelError, match=said):
        load_weights(small(), file)
    torch.save({"0.weight": trained["0.weight"]}, file)
    with pytest.warns(DataWarning, match="fits 1 of"), pytest.raises(ModelError, match=said):
        load_weights(small(), file, partial=True)


class Malicious:
    """Unpickling this makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.marker,))


@pytest.mark.parametrize("by_torch", [False, True])
def test_a_file_is_never_executed(by_torch: bool, tmp_path: Path) -> None:
    marker, file = tmp_path / "marker", tmp_path / "weights.pth"
    if by_torch:
        torch.save({"state_dict": Malicious(marker)}, file)
    else:
        file.write_bytes(pickle.dumps(Malicious(marker), protocol=2))
    with pytest.raises(
        ModelError, match=r"weights.pth cannot be read as weights .*it must be a safetensors"
    ) as error:
        load_weights(small(), file)
    assert not marker.exists()
    assert "(it holds more than tensors and numbers, as " in str(error.value)
    assert "and is not run): it must be" in str(error.value)
    assert "weights_only" not in str(error.value)  # torch's advice to run it after all
    torch.load(file, weights_only=False) if by_torch else pickle.loads(file.read_bytes())
    assert marker.exists()  # the file was dangerous indeed


@pytest.mark.filterwarnings("ignore")  # of torch, about TorchScript
def test_a_file_that_is_not_run_is_said_in_our_words(tmp_path: Path) -> None:
    """Files of which torch speaks in other words: a newer pickle, an archive of an old torch, TorchScript."""
    file = tmp_path / "weights.pt"
    file.write_bytes(pickle.dumps({"a": tmp_path}, protocol=4))
    with tarfile.open(tmp_path / "weights.tar", "w") as archive:
        archive.add(file)
    torch.jit.save(torch.jit.script(small()), tmp_path / "script.pt")
    for one in (file, tmp_path / "weights.tar", tmp_path / "script.pt"):
        with pytest.raises(ModelError, match="holds other things than tensors and numbers") as error:
            read_tensors(one)
        assert "and is not run): it must be a safetensors file" in str(error.value)
        assert not {"weights_only", "arbitrary", "torch.load"} & {*re.findall(r"[\w.]+", str(error.value))}


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pth"])
@pytest.mark.parametrize("content", [b"", b"not weights at all"])
def test_a_broken_file(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, match=f"{name} cannot be read as weights"):
        read_tensors(tmp_path / name)


def test_a_small_file_of_large_tensors(tmp_path: Path) -> None:
    """Of 2 KB and 13 MB: whoever looked at all of their values had no memory left."""
    torch.save({"state_dict": {"a": torch.zeros(1).expand(50_000, 50_000)}}, tmp_path / "expanded.pt")
    with pytest.raises(ModelError, match="would take 10,000,000,000") as error:
        read_tensors(tmp_path / "expanded.pt")
    assert (error.value.what, error.value.value) == (tmp_path / "expanded.pt", 10**10)
    torch.save({"a": torch.zeros(2)}, tmp_path / "plain.pt")
    with zipfile.ZipFile(tmp_path / "plain.pt") as plain:
        members = {name: plain.read(name) for name in plain.namelist()}
    with zipfile.ZipFile(tmp_path / "packed.pt", "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
        with packed.open("archive/data/1", "w", force_zip64=True) as member:
            for _ in range(1100):
                member.write(bytes(1 << 20))
    with pytest.raises(ModelError, match="it is compressed"):
        read_tensors(tmp_path / "packed.pt")


def test_a_file_without_names(tmp_path: Path) -> None:
    torch.save([torch.ones(1)], tmp_path / "list.pth")
    with pytest.raises(ModelError, match=r"list.pth holds a list, not tensors by name: save a model's own"):
        read_tensors(tmp_path / "list.pth")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none.pth does not exist: give a file, `pretrained` or `none`"):
        read_tensors(tmp_path / "none.pth")
    with pytest.raises(ModelError, match=f"{tmp_path.name} is a folder: give a file, `pretrained` or `none`"):
        read_tensors(tmp_path)


ODD = {
    "meta": lambda: torch.empty(3, device="meta"),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "csr": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(torch.zeros(2), 0.1, 0, torch.qint8),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.filterwarnings("ignore")
def test_tensors_that_are_no_plain_numbers_are_refused(tmp_path: Path, kind: str) -> None:
    torch.save({"fc.weight": ODD[kind](), "a": torch.zeros(2)}, tmp_path / "w.pt")
    with pytest.raises(
        ModelError, match=r"w\.pt has tensors that are no plain numbers .*fc\.weight \(torch\."
    ):
        read_tensors(tmp_path / "w.pt")


def test_numbers_of_half_a_byte_are_refused(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}}).encode()
    (tmp_path / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(2))
    with pytest.raises(ModelError, match=r"w\.safetensors .*"):
        read_tensors(tmp_path / "w.safetensors")


@pytest.mark.parametrize("packed", [False, True])
def test_a_class_with_a_long_name_is_soon_refused(tmp_path: Path, packed: bool) -> None:
    torch.save({"a": torch.zeros(2)}, tmp_path / "w.pt", _use_new_zipfile_serialization=packed)
    name, long = b"ctorch._utils\n", b"c" + b"x" * 1_000_000 + b"\n"
    if packed:
        with zipfile.ZipFile(tmp_path / "w.pt") as archive:
            members = {one: archive.read(one) for one in archive.namelist()}
        with zipfile.ZipFile(tmp_path / "w.pt", "w") as archive:
            for one, content in members.items():
                archive.writestr(one, content.replace(name, long))
    else:
        content = (tmp_path / "w.pt").read_bytes()
        assert name in content
        (tmp_path / "w.pt").write_bytes(content.replace(name, long))
    with pytest.raises(ModelError, match=r"w\.pt cannot be read .*it names a class by 1,000,019 letters"):
        read_tensors(tmp_path / "w.pt")


def test_a_network_much_larger_than_its_weights_is_not_made(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(bytes(100))
    with no_larger_than(file):
        nn.Linear(100, 100)
    with (
        pytest.raises(
            ModelError, match=r"model\.safetensors has 100 bytes, and the network of its run takes more"
        ),
        no_larger_than(file),
    ):
        timm.create_model("vit_7b_patch16_dinov3")
    nn.Linear(10_000, 10_000)  # nothing is counted afterwards
