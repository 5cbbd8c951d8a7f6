"""Scores of the classes' names by open_clip: the library is a stub, as its weights cannot be had in tests."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from sparselabel.errors import ConfigError, ModelError
from sparselabel.models.zero_shot import require_text_model, zero_shot_scores

COLORS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue_ish": (0, 0, 255)}


class ColorModel(torch.nn.Module):
    """Sees the mean color of an image, and reads colors' names."""

    def encode_image(self, images: Tensor, normalize: bool = False) -> Tensor:
        assert normalize
        return torch.nn.functional.normalize(images.mean(dim=(2, 3)))

    def encode_text(self, tokens: Tensor, normalize: bool = False) -> Tensor:
        assert normalize
        return torch.nn.functional.normalize(tokens.float())


def stub(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    asked = SimpleNamespace(prompts=None, made=None)

    def to_tensor(image: Image.Image) -> Tensor:
        return torch.from_numpy(np.asarray(image, dtype=np.float32) / 255).permute(2, 0, 1)

    def create(name: str, pretrained: str | None) -> tuple[Any, None, Any]:
        asked.made = (name, pretrained)
        if name == "hf-hub:nobody/nothing":
            raise OSError("there is no such repository\nand more")
        return ColorModel(), None, to_tensor

    def tokenizer(prompts: list[str]) -> Tensor:
        asked.prompts = prompts
        names = [next(name for name in COLORS if name.replace("_", " ") in prompt) for prompt in prompts]
        return torch.tensor([COLORS[name] for name in names])

    library = SimpleNamespace(
        asked=asked,
        list_models=lambda: ["ViT-B-32", "ViT-L-14"],
        list_pretrained_tags_by_model=lambda name: ["openai", "laion2b_s34b_b79k"],
        create_model_and_transforms=create,
        get_tokenizer=lambda name: tokenizer,
    )
    monkeypatch.setitem(sys.modules, "open_clip", library)
    return library


class Colored:
    """A split of images of one color each."""

    def __init__(self, colors: list[str]) -> None:
        self.colors = colors

    def __len__(self) -> int:
        return len(self.colors)

    def image(self, row: int) -> Image.Image:
        return Image.new("RGB", (8, 8), COLORS[self.colors[row]])


def test_images_get_the_cosines_with_their_classes_names(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    library = stub(monkeypatch)
    split: Any = Colored(["green", "red", "blue_ish"])
    scores = zero_shot_scores("ViT-B-32/openai", split, [*COLORS], torch.device("cpu"), 0, told.append)
    assert scores.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
    assert library.asked.made == ("ViT-B-32", "openai")
    assert library.asked.prompts == ["a photo of a red.", "a photo of a green.", "a photo of a blue ish."]
    assert sum(told) == 3
    zero_shot_scores("hf-hub:timm/ViT-B-16-SigLIP", split, [*COLORS], torch.device("cpu"), 0, told.append)
    assert library.asked.made == ("hf-hub:timm/ViT-B-16-SigLIP", None)


@pytest.mark.parametrize(
    ("name", "words"),
    [("ViT-B-23/openai", "ViT-B-32"), ("ViT-B-32", "laion2b_s34b_b79k"), ("ViT-B-32/nothing", "openai")],
)
def test_a_model_that_there_is_not_is_refused_early(
    name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(monkeypatch)
    with pytest.raises(ConfigError, match=words) as error:
        require_text_model(name)
    assert (error.value.what, error.value.value) == ("settings.scores", name)


def test_without_the_library_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(ConfigError, match=r"sparselabel\[text\]"):
        require_text_model("ViT-B-32/openai")


def test_a_failed_download_is_an_error_with_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    stub(monkeypatch)
    split: Any = Colored(["red"])
    with pytest.raises(ModelError, match="there is no such repository") as error:
        zero_shot_scores("hf-hub:nobody/nothing", split, ["red"], torch.device("cpu"), 0, lambda count: None)
    assert "and more" not in str(error.value)
