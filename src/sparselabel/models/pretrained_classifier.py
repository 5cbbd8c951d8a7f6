"""Pretrained classifiers with their own heads, for evaluation only: timm's, and Query2Label's."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from sparselabel.errors import ConfigError, param
from sparselabel.models import cvt
from sparselabel.models.backbone import PRETRAINED, Backbone, known_network, make_backbone, own_size
from sparselabel.models.classifier import Classifier, Output
from sparselabel.models.query2label import from_released, released_head
from sparselabel.models.weights import read_tensors
from sparselabel.slow_imports import import_timm

WITH_CLASSIFIER = "choose a network with one, as resnet50.tv_in1k"


class PublishedClassifier(nn.Module):
    """Views (B, 3, S, S) uint8 -> Output with the network's own logits.

    Its views have the side ``size`` and show the share ``center`` of an image's short side (timm's crop_pct).
    """

    def __init__(self, backbone: Backbone, size: int, center: float) -> None:
        super().__init__()
        self.backbone = backbone
        self.size = size
        self.center = center

    @property
    def classes(self) -> int:
        """The number of classes of its head."""
        return int(self.backbone.network.num_classes)  # type: ignore[arg-type]

    def forward(self, views: Tensor) -> Output:
        return Output(self.backbone.network(self.backbone.normalized(views)))


def make_published(name: str, weights: str = PRETRAINED) -> PublishedClassifier:
    """A classifier by timm's name, with downloaded weights or those of a file."""
    if name == cvt.NAME:
        raise ConfigError(
            f"{name} with weights {weights} has no classifier",
            f"give a file of a whole Query2Label model on it ({param('weights', 'FILE')})",
            WITH_CLASSIFIER,
            value=weights,
        )
    config, size = known_network(name), own_size(name)
    center = (config.test_crop_pct or config.crop_pct) if config is not None else 0.875
    model = PublishedClassifier(make_backbone(name, weights, size=size, own_head=True), size, center)
    if not model.classes:
        raise ConfigError(f"{name} has no classifier of its own", WITH_CLASSIFIER, what=name)
    return model.requires_grad_(False).eval()


def make_released(name: str, file: Path, size: int | None = None) -> tuple[Classifier, int]:
    """A Query2Label model of its authors on the backbone they had for it, and the side of its views.

    Without ``size`` that is 448, or what the backbone was made for, if it takes no other.
    """
    tensors = read_tensors(file)
    if size is None:
        config = None if name == cvt.NAME else known_network(name)
        size = 448 if config is not None and not config.fixed_input_size else own_size(name)
    backbone = make_backbone(name, str(file), size=size)
    classes = len(from_released(tensors)["query_embed.weight"])
    head, _ = released_head(tensors, backbone.width, classes, file)
    return Classifier(backbone, head).requires_grad_(False).eval(), size


def imagenet_synsets() -> list[str]:
    """The synset ids of ImageNet's 1,000 classes, in the order of the networks' outputs."""
    import_timm()
    from timm.data.imagenet_info import ImageNetInfo

    info: Any = ImageNetInfo("imagenet-1k")
    return list(info.label_names())
