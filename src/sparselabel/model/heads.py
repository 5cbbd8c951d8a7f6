"""The heads by name, as `--classifier` names them."""

from sparselabel.errors import ConfigError
from sparselabel.model.backbone import Backbone
from sparselabel.model.classifier import Head, LinearHead
from sparselabel.model.tscam import PatchHead, TokenHead

HEADS: dict[str, type[LinearHead | PatchHead | TokenHead]] = {
    "linear": LinearHead,
    "tscam": PatchHead,
    "token": TokenHead,
}


def make_head(name: str, width: int, classes: int) -> Head:
    """A head for so many features and classes, with random weights."""
    return HEADS[name](width, classes)


def check_head(name: str, backbone: Backbone) -> None:
    """Raise where a head and a backbone do not go together."""
    if HEADS[name].reads_token and not backbone.has_token:
        raise ConfigError(
            f"classifier {name!r} reads a class token, which this backbone does not have: take a transformer "
            "such as deit_base_patch16_224, or another classifier"
        )
