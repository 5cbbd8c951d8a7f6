"""The classifier: a backbone and a head that returns logits per image and, on request, logits of cells.

The image logit is the mean of the cell logits. As the layer is linear, pooling the features first gives the
same image logits with less work (Verelst 2023 supplement J), so maps are computed only on request. A boosted
head is not linear, so it always uses the cells.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sparselabel.errors import ConfigError, param
from sparselabel.models.backbone import Backbone, refuse_other_shape, refuse_unit_range


class Output(NamedTuple):
    """Logits (never scores) of one view of every image in a batch.

    Parameters
    ----------
    logits
        (B, L)
    maps
        (B, L, h, w) cell logits, on request; their mean over the cells is ``logits``, except for a head on
        the class token.
    features
        (B, D, h, w) cell features, or (B, D) pooled ones.
    attention
        (B, L, h, w) of a head that has no maps: the attention of each class, with sum 1 over the cells.
    """

    logits: Tensor
    maps: Tensor | None = None
    features: Tensor | None = None
    attention: Tensor | None = None


HEAD = "head."  # prefix of the head's weights in a classifier's state dict
LOGIT_STEP = 100
"""A step of Adam on D standardized features moves a logit by up to about so many times the learning rate."""
SMALLEST_DEVIATION = 1e-6  # a feature that varies less is constant


class Head(nn.Module):
    """Computes logits from features; ``heads.make_head`` makes one by name."""

    reads_token: ClassVar[bool] = False
    """Whether the logits come from the class token."""

    def forward(self, features: Tensor, maps: bool = False, token: Tensor | None = None) -> Output:
        """Logits, and on request maps, from cell features (B, D, h, w)."""
        raise TypeError(f"{type(self).__name__} does not say how to make logits")


class LinearHead(Head):
    """A linear layer from D features to L logits, on pooled features or on every cell (Verelst 2023 §3,
    Verelst 2023 supplement J).

    With ``boost``, cell logits above 0 are multiplied by it before the mean, in training and in evaluation:
    BoostLU (Kim et al. 2023, Bridging the Gap between Model Explanations in Partially Annotated Multi-label
    Classification), which uses 5.

    The layer's input is (features − ``center``) / ``scale``: 0 and 1, until ``standardize`` is called. This
    also sets ``unit_norm``: an image's pooled features are scaled to norm 1 first.
    """

    center: Tensor
    scale: Tensor
    unit_norm: Tensor

    def __init__(self, width: int, classes: int, boost: float | None = None) -> None:
        super().__init__()
        self.linear = nn.Linear(width, classes)
        self.boost = boost
        self.register_buffer("center", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))
        self.register_buffer("unit_norm", torch.tensor(False))

    @torch.no_grad()
    def standardize(self, features: Tensor, positive_share: Tensor) -> None:
        """Start from the share of positives of every class (L,); standardize inputs by these features (N, D).

        The norm of an image's features says little about what it shows, so it becomes 1. Weights start at 0:
        random ones would be noise that features of little variance never unlearn. A step of Adam moves a
        logit by up to the sum of the features times the rate, so they are divided by D, and a rate means the
        same for any D.
        """
        self.unit_norm.fill_(True)
        deviation, mean = standard_deviation_and_mean(F.normalize(features))
        self.center.copy_(mean)
        self.scale.copy_(deviation * (features.shape[1] / LOGIT_STEP))
        self.linear.weight.zero_()
        self.linear.bias.copy_(torch.logit(positive_share))

    def standardized(self, features: Tensor) -> Tensor:
        """(N, D) Pooled features as the layer sees them."""
        return (self._normalized(features, features) - self.center) / self.scale

    def _normalized(self, features: Tensor, pooled: Tensor) -> Tensor:
        """Features of images or cells, divided by the norm of the image's pooled ones."""
        norm = torch.linalg.vector_norm(pooled, dim=1).clamp(min=SMALLEST_DEVIATION)
        norm = torch.where(self.unit_norm, norm, 1.0)
        return features / norm.view(-1, *(1,) * (features.ndim - 1))

    def of_standardized(self, features: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Logits of pooled features (B, D) that ``standardized`` has seen, as a leaf of autograd's graph.

        The function takes a loss of them and sets the layer's gradients. It is autograd's work by hand, in
        fewer calls: they are most of the time of so small a layer.
        """
        layer = self.linear
        logits = F.linear(features, layer.weight.detach(), layer.bias.detach())

        def backward(loss: Tensor) -> None:
            (slopes,) = torch.autograd.grad(loss, logits)
            layer.weight.grad, layer.bias.grad = slopes.mT @ features, slopes.sum(0)

        return logits.requires_grad_(), backward

    def forward(self, features: Tensor, maps: bool = False, token: Tensor | None = None) -> Output:
        """Logits of cell features (B, D, h, w), or of pooled features (B, D), which have no maps."""
        if self.boost is not None and features.ndim == 2:
            raise ConfigError(
                "a boosted head multiplies the logits of cells, which pooled features do not have",
                f"give it the features of cells (no {param('frozen')})",
                f"leave {param('boost')} out",
            )
        pooled = features.mean(dim=(2, 3)) if features.ndim == 4 else features
        if maps or self.boost is not None:
            weight = self.linear.weight / self.scale
            bias = self.linear.bias - weight @ self.center
            cells = F.conv2d(self._normalized(features, pooled), weight[:, :, None, None], bias)
            if self.boost is not None:
                cells = boosted(cells, self.boost)
            return Output(cells.mean(dim=(2, 3)), cells if maps else None, features)
        return Output(self.linear(self.standardized(pooled)), None, features)


class LogitsHead(Head):
    """No head: the backbone is a user's own module that returns logits, as those of one cell.

    Maps have that one cell.
    """

    def forward(self, features: Tensor, maps: bool = False, token: Tensor | None = None) -> Output:
        return Output(features[:, :, 0, 0], features if maps else None)


def standard_deviation_and_mean(features: Tensor) -> tuple[Tensor, Tensor]:
    """(D,) Standard deviation and mean of features (N, D); a constant feature has the deviation 1."""
    deviation, mean = torch.std_mean(features, dim=0, correction=0)
    constant = deviation <= SMALLEST_DEVIATION * (mean.abs() + SMALLEST_DEVIATION)
    return torch.where(constant, 1.0, deviation), mean


def boosted(cells: Tensor, boost: float) -> Tensor:
    """BoostLU: logits of cells above 0 are multiplied before their mean (Kim et al. 2023).

    By ``boost``, 5 in the paper, in training and in evaluation.
    """
    return torch.where(cells > 0, boost * cells, cells)


class Classifier(nn.Module):
    """Backbone and head: views (B, 3, S, S) uint8 -> Output."""

    def __init__(self, backbone: Backbone, head: Head) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.frozen = False
        self.frozen_modules: list[nn.Module] = []

    def freeze(self, frozen: bool, parts: Sequence[nn.Module] = ()) -> None:
        """Freeze the backbone, or some parts of it: no gradients, and evaluation mode also in training."""
        self.frozen = frozen
        self.frozen_modules = [self.backbone] if frozen else list(parts)
        self.backbone.requires_grad_(True)
        for module in self.frozen_modules:
            module.requires_grad_(False)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Training mode, except for what is frozen."""
        super().train(mode)
        for module in self.frozen_modules:
            module.eval()
        return self

    def forward(self, views: Tensor, maps: bool = False) -> Output:
        """Logits, and on request maps, of a batch of views."""
        if not torch.compiler.is_compiling():
            refuse_other_shape(views)
            if views.is_floating_point() and self.backbone.mean.any():
                refuse_unit_range(views)
        token = None
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            if self.head.reads_token:
                features, token = self.backbone.with_token(views)
            else:
                features = self.backbone(views)
        return self.head(features, maps=maps, token=token)  # type: ignore[no-any-return]
