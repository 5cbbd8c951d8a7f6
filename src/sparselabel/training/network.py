"""The network under training: a backbone that is made only when it is needed, and a head."""

import copy
import warnings
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from sparselabel.config import Query, TrainConfig
from sparselabel.errors import ConfigError, DataWarning, ResourceError, is_out_of_memory, param
from sparselabel.models.backbone import (
    NONE,
    OWN,
    PRETRAINED,
    Backbone,
    frozen_parts,
    grad_checkpointing,
    make_backbone,
    refuse_without_cells,
)
from sparselabel.models.classifier import HEAD, Classifier, Head, LinearHead
from sparselabel.models.heads import check_head, make_head
from sparselabel.models.query2label import released_head
from sparselabel.models.weights import is_released, read_tensors


class LazyBackbone:
    """The backbone of a configuration, made when it is first called, unless ``made`` is given."""

    def __init__(self, config: TrainConfig, made: Backbone | None = None) -> None:
        self.config, self.made = config, made

    def __call__(self) -> Backbone:
        """The backbone, with its weights."""
        if self.made is None:
            config = self.config
            torch.manual_seed(config.seed)
            size, stride, partial = config.views.size, config.output_stride, config.partial_weights
            made = make_backbone(
                config.backbone, config.weights, size=size, output_stride=stride, partial_weights=partial
            )
            refuse_without_cells(made, config.backbone, size)
            self.made = made
        return self.made

    def for_another_run(self, config: TrainConfig) -> "LazyBackbone":
        """The untrained backbone for another run: made anew, or a copy of the user's module."""
        own = self.config.backbone.startswith(f"{OWN}:")
        return LazyBackbone(config, copy.deepcopy(self.made) if own else None)


class Network:
    """Backbone, head and both together, each made when it is first used.

    ``feature_width`` returns the number of stored features, so that a head on them needs no backbone.
    ``standardize`` is called with a new linear head.
    """

    def __init__(
        self,
        config: TrainConfig,
        classes: int,
        backbone: LazyBackbone | None = None,
        feature_width: Callable[[], int] | None = None,
        standardize: Callable[[LinearHead], None] | None = None,
    ) -> None:
        self.config, self.classes = config, classes
        self._backbone, self._feature_width = backbone or LazyBackbone(config), feature_width
        self._standardize = standardize

    @property
    def backbone(self) -> Backbone:
        """The backbone, with its weights."""
        return self._backbone()

    @cached_property
    def head(self) -> Head:
        """The head; the same at the start of every run with this seed."""
        width = self.backbone.width if self._feature_width is None else self._feature_width()
        torch.manual_seed(self.config.seed)
        if self.config.classifier == "query2label" and self.config.weights not in (PRETRAINED, NONE):
            tensors = read_tensors(Path(self.config.weights))
            if is_released(tensors):
                return self._released_head(tensors, width)
        config = self.config
        try:
            head = make_head(config.classifier, width, self.classes, config.boost, config.query)
        except (MemoryError, RuntimeError) as error:
            if config.query.width is None or not is_out_of_memory(error):
                raise
            problem = f"a head of {param('query.width', config.query.width)} needs more memory than there is"
            raise ResourceError(problem, "give a smaller one", "leave it out") from error
        if self._standardize is not None and isinstance(head, LinearHead):
            self._standardize(head)
        return head

    def _released_head(self, tensors: dict[str, Tensor], width: int) -> Head:
        if self.config.query != Query():
            raise ConfigError(
                f"{param('query')} is for a head that starts anew, and that of {self.config.weights} is as "
                "it was trained",
                "leave it out",
                f"take other {param('weights')}",
            )
        head, whole = released_head(tensors, width, self.classes, Path(self.config.weights))
        if not whole:
            problem = f"{self.config.weights} is of other classes than these {self.classes}"
            taken = "their queries and last layers start anew, all else is taken over"
            warnings.warn(DataWarning(f"{problem}: {taken}"), stacklevel=2)
        return head

    @cached_property
    def classifier(self) -> Classifier:
        """Backbone and head together."""
        check_head(self.head, self.backbone)
        return Classifier(self.backbone, self.head)

    def classifier_of(self, phase: str) -> Classifier:
        """The classifier with the layers frozen that the phase freezes, and gradient checkpointing set."""
        classifier, finetune = self.classifier, self.config.finetune
        if phase == "head":
            classifier.freeze(True)
        else:
            parts = frozen_parts(self.backbone, norm=finetune.frozen_norm, stages=finetune.frozen_stages)
            classifier.freeze(False, parts)
        grad_checkpointing(self.backbone, phase == "finetune" and finetune.grad_checkpointing)
        return classifier

    def load(self, weights: dict[str, Tensor]) -> None:
        """Load weights named as in the classifier: those of the head, or all."""
        if all(name.startswith(HEAD) for name in weights):
            self.head.load_state_dict({name.removeprefix(HEAD): value for name, value in weights.items()})
        else:
            self.classifier.load_state_dict(weights)


def freeze_unused_parameters(classifier: Classifier, size: int) -> None:
    """Freeze parameters that no logit depends on: DDP would wait for their gradients.

    Some timm networks have parameters that only their own classifier uses.
    """
    trained = [parameter for parameter in classifier.parameters() if parameter.requires_grad]
    view = torch.zeros(1, 3, size, size, dtype=torch.uint8, device=trained[0].device)
    logits = classifier.eval()(view).logits  # batch norm must not count this view
    gradients = torch.autograd.grad(logits.sum(), trained, allow_unused=True)
    for parameter, gradient in zip(trained, gradients, strict=True):
        parameter.requires_grad_(gradient is not None)


def weights_of(module: nn.Module, head_only: bool) -> dict[str, Tensor]:
    """A module's weights, named as in the classifier; with ``head_only`` those of the head."""
    prefix = HEAD if isinstance(module, Head) else ""
    named = {prefix + name: value for name, value in module.state_dict().items()}
    return {name: value for name, value in named.items() if not head_only or name.startswith(HEAD)}


def load_into(module: nn.Module, weights: dict[str, Tensor]) -> None:
    """Load weights from ``weights_of``."""
    if isinstance(module, Head):
        weights = {name.removeprefix(HEAD): value for name, value in weights.items()}
    module.load_state_dict(module.state_dict() | weights)
