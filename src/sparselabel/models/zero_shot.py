"""Zero-shot scores: an image-text model scores images by the names of the classes.

The library is open_clip. The model is NAME/WEIGHTS, as it lists them (ViT-B-32/laion2b_s34b_b79k), or one of
the Hugging Face hub (hf-hub:timm/ViT-B-16-SigLIP). Its weights are downloaded.
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from sparselabel.data.dataset import PreparedSplit
from sparselabel.data.loaders import worker_processes
from sparselabel.errors import ConfigError, ModelError, nearest

PROMPT = "a photo of a {}."
HUB = "hf-hub:"
BATCH = 64


class _Images(Dataset[Tensor]):
    """The images of a split, as the model takes them."""

    def __init__(self, split: PreparedSplit, preprocess: Callable[[Any], Tensor]) -> None:
        self.split, self.preprocess = split, preprocess

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, row: int) -> Tensor:
        return self.preprocess(self.split.image(row))


def require_text_model(name: str) -> Any:
    """The library; raises if it is not installed, or does not have the model."""
    try:
        library: Any = importlib.import_module("open_clip")
    except ImportError as error:
        raise ConfigError(
            f"text:{name} needs open_clip, which is not installed",
            "pip install 'sparselabel[text]'",
            "give a file of scores",
            what="settings.scores",
        ) from error
    if name.startswith(HUB):
        return library
    model, _, weights = name.partition("/")
    known = library.list_models()
    if model not in known:
        raise ConfigError(
            f"open_clip has no model {model!r}: {nearest(model, known)}",
            f"one of the Hugging Face hub is text:{HUB}OWNER/NAME",
            what="settings.scores",
            value=name,
        )
    tags = library.list_pretrained_tags_by_model(model)
    if weights not in tags:
        asked = f"no weights {weights!r}" if weights else "several weights"
        raise ConfigError(
            f"open_clip has {asked} of {model}, but {', '.join(tags)}",
            f"say which, as text:{model}/{tags[0]}" if tags else "take another model",
            what="settings.scores",
            value=name,
            allowed=tags,
        )
    return library


@torch.inference_mode()
def zero_shot_scores(
    name: str,
    split: PreparedSplit,
    classes: Sequence[str],
    device: torch.device,
    workers: int | None,
    report: Callable[[int], object],
) -> npt.NDArray[np.float32]:
    """(N, L) Cosines between images and class names; ``report`` gets the images of each batch."""
    library = require_text_model(name)
    model_name, weights = (name, None) if name.startswith(HUB) else name.split("/", 1)
    try:
        model, _, preprocess = library.create_model_and_transforms(model_name, pretrained=weights)
    except Exception as error:  # a download fails in many ways
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ModelError(
            f"text:{name} cannot be loaded ({reason})",
            "check the name and the connection to the hub",
            "give a file of scores",
            what="settings.scores",
            value=name,
        ) from error
    model = model.to(device).eval()
    prompts = [PROMPT.format(one.replace("_", " ")) for one in classes]
    tokens = library.get_tokenizer(model_name)(prompts).to(device)
    texts = model.encode_text(tokens, normalize=True).float()
    scores = []
    processes = worker_processes(workers, device)
    for images in DataLoader(_Images(split, preprocess), BATCH, num_workers=processes):
        scores.append((model.encode_image(images.to(device), normalize=True).float() @ texts.T).cpu())
        report(len(images))
    return torch.cat(scores).numpy()
