"""Heads by name: the values of ``classifier``."""

from sparselabel.config import Query
from sparselabel.errors import ConfigError, nearest, param
from sparselabel.models.backbone import Backbone
from sparselabel.models.classifier import Head, LinearHead, LogitsHead
from sparselabel.models.query2label import QueryHead
from sparselabel.models.tscam import PatchHead, TokenHead

HEADS = ("linear", "tscam", "token", "query2label", "none")


def make_head(
    name: str, width: int, classes: int, boost: float | None = None, query: Query | None = None
) -> Head:
    """A head for this number of features and classes, with random weights."""
    match name:
        case "linear":
            return LinearHead(width, classes, boost)
        case "tscam":
            return PatchHead(width, classes, boost)
        case "token":
            return TokenHead(width, classes)
        case "query2label":
            query = query or Query()
            return QueryHead(width, classes, query.width, self_attention=query.self_attention)
        case "none":
            return LogitsHead()
    raise ConfigError(f"there is no {param('classifier')} {name!r}", nearest(name, HEADS))


def check_head(head: Head, backbone: Backbone) -> None:
    """Raise where a head and a backbone do not go together."""
    if head.reads_token and not backbone.has_token:
        raise ConfigError(
            f"{param('classifier', 'token')} reads a class token, and this backbone has none",
            "take a transformer such as deit_base_patch16_224",
            f"another {param('classifier')}",
        )
