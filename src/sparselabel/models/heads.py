"""The heads by name, as `--classifier` names them."""

from sparselabel.config import Query
from sparselabel.errors import ConfigError
from sparselabel.models.backbone import Backbone
from sparselabel.models.classifier import Head, LinearHead
from sparselabel.models.query2label import QueryHead
from sparselabel.models.tscam import PatchHead, TokenHead


def make_head(
    name: str, width: int, classes: int, boost: float | None = None, query: Query | None = None
) -> Head:
    """A head for so many features and classes, with random weights."""
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
    raise ConfigError(f"there is no classifier {name!r}: it is linear, tscam, token or query2label")


def check_head(head: Head, backbone: Backbone) -> None:
    """Raise where a head and a backbone do not go together."""
    if head.reads_token and not backbone.has_token:
        raise ConfigError(
            "--classifier token reads a class token, which this backbone has not: take a transformer such "
            "as deit_base_patch16_224, or another classifier"
        )
