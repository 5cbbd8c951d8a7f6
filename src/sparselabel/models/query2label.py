"""Query2Label: one learned query per class attends to the cells (Liu et al. 2021, §III-C).

    cell features ─▶ (1×1 projection) ─▶ encoder ─▶ decoder with the class queries ─▶ one logit per class

Its eq. 12 has self-attention between the queries of the decoder; the authors' code removes it by default,
and so do we. Names of layers are those of that code, which are DETR's.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from sparselabel.errors import ModelError, param
from sparselabel.models.classifier import Head, Output
from sparselabel.models.weights import describe_misfits, misfits, refuse_not_finite

TEMPERATURE = 10_000.0
DROPOUT = 0.1
SelfAttention = Literal["none", "first", "later", "all"]


class QueryHead(Head):
    """An encoder over cells, a decoder of class queries, one linear layer per class; for any size of view.

    ``width`` of the transformer is that of the features unless given; then a 1×1 convolution projects them.
    ``self_attention`` between queries: in the first decoder layer (where it adds the same to all of them, as
    their targets are still 0), in the later ones, or in all.
    """

    def __init__(
        self,
        features: int,
        classes: int,
        width: int | None = None,
        *,
        heads: int = 4,
        inner: int | None = None,
        encoder_layers: int = 1,
        decoder_layers: int = 2,
        self_attention: SelfAttention = "none",
    ) -> None:
        super().__init__()
        size = width or features
        step = math.lcm(4, heads)
        if size % step:
            raise ModelError(
                f"query2label needs a width that 4 and its {heads} heads divide, not {size}",
                f"give {param('query.width', max(size - size % step, step))}",
            )
        inner = inner or 4 * size
        self.input_proj = nn.Identity() if width is None else nn.Conv2d(features, size, kernel_size=1)
        self.encoder = nn.ModuleList(_EncoderLayer(size, heads, inner) for _ in range(encoder_layers))
        self.decoder = nn.ModuleList(
            _DecoderLayer(size, heads, inner, self_attention in ("all", "later" if number else "first"))
            for number in range(decoder_layers)
        )
        self.norm = nn.LayerNorm(size)
        self.query_embed = nn.Embedding(classes, size)
        self.weight = nn.Parameter(torch.empty(classes, size))
        self.bias = nn.Parameter(torch.empty(classes))
        bound = 1 / math.sqrt(size)
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)
        for layer in (*self.encoder, *self.decoder):
            for parameter in layer.parameters():
                if parameter.ndim > 1:
                    nn.init.xavier_uniform_(parameter)

    def forward(self, features: Tensor, maps: bool = False, token: Tensor | None = None) -> Output:
        """Logits of cell features (B, D, h, w).

        It has no maps and returns the attention of the last decoder layer instead, the mean over its heads.
        """
        logits, attention = self._decode(features, need_weights=maps)
        attention_maps = attention.reshape(*logits.shape, *features.shape[2:]) if maps else None
        return Output(logits, None, features, attention_maps)

    def _decode(self, features: Tensor, need_weights: bool) -> tuple[Tensor, Tensor]:
        """Logits (B, L) and, on request, attention (B, L, h·w)."""
        cells = self.input_proj(features)
        pos = sine_position_encoding(cells).flatten(2).transpose(1, 2)
        memory = cells.flatten(2).transpose(1, 2)
        for layer in self.encoder:
            memory = layer(memory, pos)
        # Not len(): torch.export would take the number of images for a constant.
        queries = self.query_embed.weight.expand(cells.shape[0], -1, -1)
        target, attention = torch.zeros_like(queries), queries
        for layer in self.decoder:
            target, attention = layer(target, queries, memory, pos, need_weights)
        # Not a product and its sum: OpenVINO adds a wrong bias to that.
        logits = torch.einsum("bld,ld->bl", self.norm(target), self.weight) + self.bias
        return logits, attention


def sine_position_encoding(cells: Tensor) -> Tensor:
    """(1, d, h, w) DETR's encoding: d/2 channels for the row, d/2 for the column, sines and cosines.

    Positions count from 1, and the last is 2π, so that views of any size have the same range. It is computed
    in float32 or better, then cast: in half precision the angles would be up to a degree off.
    """
    half = cells.shape[1] // 2
    precise = torch.promote_types(cells.dtype, torch.float32)
    channels = torch.arange(half, dtype=precise, device=cells.device)
    frequencies = TEMPERATURE ** (2 * (channels // 2) / half)

    def along(count: int) -> Tensor:
        positions = torch.arange(1, count + 1, dtype=precise, device=cells.device)
        angles = (positions / (count + 1e-6) * 2 * math.pi)[:, None] / frequencies
        return torch.stack([angles[:, 0::2].sin(), angles[:, 1::2].cos()], dim=2).flatten(1)  # (count, half)

    height, width = cells.shape[2:]
    down = along(height).T[:, :, None].expand(-1, -1, width)
    across = along(width).T[:, None, :].expand(-1, height, -1)
    return torch.cat([down, across])[None].to(cells.dtype)


class _EncoderLayer(nn.Module):
    """Self-attention over cells; the position encoding is added to queries and keys (post-norm)."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(width, heads, DROPOUT, batch_first=True)
        self.linear1, self.linear2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, cells: Tensor, pos: Tensor) -> Tensor:
        """(B, T, d) in and out."""
        with_pos = cells + pos
        attended = self.self_attn(with_pos, with_pos, cells, need_weights=False)[0]
        cells = self.norm1(cells + self.dropout(attended))
        return self.norm2(cells + self.dropout(_feed_forward(self, cells)))  # type: ignore[no-any-return]


class _DecoderLayer(nn.Module):
    """Cross-attention of class queries to cells, after optional self-attention among them (post-norm)."""

    def __init__(self, width: int, heads: int, inner: int, self_attention: bool) -> None:
        super().__init__()
        if self_attention:
            self.self_attn = nn.MultiheadAttention(width, heads, DROPOUT, batch_first=True)
            self.norm1 = nn.LayerNorm(width)
        self.has_self_attention = self_attention
        self.multihead_attn = nn.MultiheadAttention(width, heads, DROPOUT, batch_first=True)
        self.linear1, self.linear2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm2, self.norm3 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(
        self, target: Tensor, queries: Tensor, memory: Tensor, pos: Tensor, need_weights: bool
    ) -> tuple[Tensor, Tensor]:
        """The targets (B, L, d), and attention (B, L, T) if ``need_weights``."""
        if self.has_self_attention:
            with_query = target + queries
            attended = self.self_attn(with_query, with_query, target, need_weights=False)[0]
            target = self.norm1(target + self.dropout(attended))
        attended, attention = self.multihead_attn(
            target + queries, memory + pos, memory, need_weights=need_weights, average_attn_weights=True
        )
        target = self.norm2(target + self.dropout(attended))
        output = self.norm3(target + self.dropout(_feed_forward(self, target)))
        return output, attention if need_weights else target


def _feed_forward(layer: "_EncoderLayer | _DecoderLayer", inputs: Tensor) -> Tensor:
    inner = layer.dropout(torch.relu(layer.linear1(inputs)))
    outer: Tensor = layer.linear2(inner)
    return outer


def from_released(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The head's weights of a checkpoint that the authors released, under our names."""
    ours = {}
    for name, value in tensors.items():
        key = name.removeprefix("module.")
        if key.startswith("backbone."):
            continue
        key = key.removeprefix("transformer.")
        key = key.replace("encoder.layers.", "encoder.").replace("decoder.layers.", "decoder.")
        key = {"decoder.norm.weight": "norm.weight", "decoder.norm.bias": "norm.bias"}.get(key, key)
        if key in ("fc.W", "fc.b"):
            ours[{"fc.W": "weight", "fc.b": "bias"}[key]] = value[0]
        else:
            ours[key] = value
    return ours


def released_head(
    tensors: dict[str, Tensor], features: int, classes: int, file: Path
) -> tuple[QueryHead, bool]:
    """The head of a released model for this number of classes, and whether its class queries were loaded.

    If the file has another number of classes, queries and last layers start anew. All the rest must fit.
    """
    released = from_released(tensors)
    same_classes = len(released["query_embed.weight"]) == classes
    head = head_like(released, features, classes)
    wanted = head.state_dict()
    if not same_classes:
        for name in ("query_embed.weight", "weight", "bias"):
            del released[name], wanted[name]
    missing, unknown = misfits(released, wanted)
    if missing or unknown:
        raise ModelError(
            f"{file} has no Query2Label head for a backbone of {features} features: "
            f"{describe_misfits(missing, unknown)} (is it for another backbone, or of a changed program?)",
            f"name the {param('backbone')} it was trained with",
            "take another file",
            f"take its backbone alone, with another {param('classifier')}",
        )
    head.load_state_dict(released, strict=same_classes)
    loaded = head.state_dict()
    refuse_not_finite({name: loaded[name] for name in released}, file)
    return head, same_classes


def head_like(weights: Mapping[str, Tensor], features: int, classes: int) -> QueryHead:
    """A head with the layers and widths of these weights, which have our names."""

    def layers(kind: str) -> int:
        return len({name.split(".")[1] for name in weights if name.startswith(f"{kind}.")})

    # Of any layer, and at least one decoder layer: loading names what a file lacks.
    inner = [value.shape[0] for name, value in weights.items() if name.endswith("linear1.weight")]
    first, later = (any(name.startswith(f"decoder.{at}.self_attn") for name in weights) for at in (0, 1))
    self_attention: dict[tuple[bool, bool], SelfAttention] = {
        (False, False): "none",
        (True, False): "first",
        (False, True): "later",
        (True, True): "all",
    }
    return QueryHead(
        features,
        classes,
        weights["query_embed.weight"].shape[1] if "input_proj.weight" in weights else None,
        inner=inner[0] if inner else None,
        encoder_layers=layers("encoder"),
        decoder_layers=max(layers("decoder"), 1),
        self_attention=self_attention[first, later],
    )
