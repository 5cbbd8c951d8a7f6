"""Backbones, from timm or CvT: uint8 views (B, 3, S, S) in, features of cells (B, D, h, w) out.

The cells are the spatial grid of the last feature map: 7 × 7 for a ResNet at 224 pixels, 14 × 14 patches for
a ViT-B/16.
"""

import hashlib
import math
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from sparselabel.errors import ConfigError, ModelError, is_out_of_memory, listing, param
from sparselabel.models import cvt
from sparselabel.models.weights import load_weights
from sparselabel.slow_imports import import_timm

PRETRAINED = "pretrained"
NONE = "none"
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HUB_FILES = ("model.safetensors", "pytorch_model.bin")  # names of weights on the Hugging Face hub


class Backbone(nn.Module):
    """A timm network without its classifier, on views (B, 3, S, S) in uint8.

    It includes the normalization of its input, also in an exported model.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, mean: Iterable[float], std: Iterable[float]) -> None:
        super().__init__()
        self.network = network
        # Channels last: measured ten times as fast for convolutions on a CPU, and what tensor cores want.
        for weight in network.parameters():
            if weight.ndim == 4:  # network.to(memory_format=...) fails where a weight has five axes
                weight.data = weight.data.to(memory_format=torch.channels_last)
        # timm gives mean and std for pixels in 0..1; views have 0..255.
        self.register_buffer("mean", torch.tensor([*mean]).view(1, 3, 1, 1) * 255, persistent=False)
        self.register_buffer("std", torch.tensor([*std]).view(1, 3, 1, 1) * 255, persistent=False)

    @property
    def width(self) -> int:
        """D, the number of features of a cell: timm's ``num_features``."""
        return int(self.network.num_features)  # type: ignore[arg-type]

    def forward(self, views: Tensor) -> Tensor:
        """Cell features (B, D, h, w)."""
        return self._cells(self._features(views))

    def with_token(self, views: Tensor) -> tuple[Tensor, Tensor]:
        """Cell features (B, D, h, w) and the class token (B, D) of a transformer."""
        if not self.has_token:
            raise ModelError("this backbone has no class token: only transformers such as ViT and DeiT do")
        features = self._features(views)
        return self._cells(features), features[:, 0]

    @property
    def has_token(self) -> bool:
        """Whether the network has a class token."""
        return getattr(self.network, "cls_token", None) is not None

    def _features(self, views: Tensor) -> Tensor:
        return self.network.forward_features(self.normalized(views))  # type: ignore[operator, no-any-return]

    def normalized(self, views: Tensor) -> Tensor:
        """Views as the network takes them: by the mean and std of its pretraining."""
        return ((views - self.mean) / self.std).contiguous(memory_format=torch.channels_last)

    @torch.no_grad()
    def grid(self, size: int) -> tuple[int, int]:
        """(h, w) The grid of cells for views of this size, found by a forward pass."""
        training = self.training
        cells = self.eval()(torch.zeros(1, 3, size, size, dtype=torch.uint8, device=self.mean.device))
        self.train(training)
        return cells.shape[2], cells.shape[3]

    def _cells(self, features: Tensor) -> Tensor:
        """The result of ``forward_features`` as (B, D, h, w): patch tokens are arranged in their grid."""
        if features.ndim == 3:
            # XCiT, CaiT, ConViT and VOLO have a class token and no num_prefix_tokens.
            tokens = features[:, getattr(self.network, "num_prefix_tokens", int(self.has_token)) :]
            side = math.isqrt(int(tokens.shape[1]))  # a number also while a converter traces it
            # Not len(): torch.export would take the number of images for a constant.
            return tokens.transpose(1, 2).reshape(tokens.shape[0], -1, side, side)
        if features.shape[1] != self.width and features.shape[-1] == self.width:  # NHWC, as Swin
            return features.permute(0, 3, 1, 2)
        return features


def refuse_other_shape(views: object) -> None:
    """Raise unless this is a batch of views: not an array, a single view, or channels last."""
    shape = tuple(views.shape) if isinstance(views, Tensor) else None
    if shape is None or len(shape) != 4 or shape[1] != 3:
        raise ModelError(
            "the model takes a tensor of views (B, 3, S, S), not "
            + (type(views).__name__ if shape is None else f"one of shape {shape}"),
            "take run.predict(images) for images of other kinds",
            what="images",
            value=shape or type(views).__name__,
            allowed=("B", 3, "S", "S"),
        )


def refuse_unit_range(views: Tensor) -> None:
    """Raise for floats in 0..1, which would look like black images, and for normalized ones."""
    low, high = (float(value) for value in views.detach().aminmax())
    if low < 0 or 0 < high <= 1:
        raise ModelError(
            f"the model takes pixels in 0..255 (uint8, or floats) and normalizes them itself, not pixels in "
            f"{low:.3g}..{high:.3g}",
            "multiply pixels in 0..1 by 255",
            "leave normalization out",
            what="images",
            value=(low, high),
            allowed=(0, 255),
        )


OWN = "own"
"""Prefix of the name of a user's own module as a backbone; its digest follows."""


class OwnNetwork(nn.Module):
    """A user's own module for feature maps (B, D, h, w), with the interface of timm's networks.

    Logits (B, L) become the features of one cell.
    """

    def __init__(self, model: nn.Module, width: int) -> None:
        super().__init__()
        self.model, self.num_features = model, width

    def forward_features(self, images: Tensor) -> Tensor:
        """Feature maps of normalized images."""
        features: Tensor = self.model(images)
        return features if features.ndim == 4 else features[:, :, None, None]


class OwnBackbone(NamedTuple):
    """A user's own module as a backbone, with a unique name and the form of its output."""

    backbone: Backbone
    name: str
    gives_logits: bool


def own_backbone(model: nn.Module, size: int, classes: int) -> OwnBackbone:
    """A backbone of a module of the user's own.

    The module takes images (B, 3, S, S), normalized by ImageNet's mean and std, or by those of a
    ``pretrained_cfg`` as timm's networks have it, and returns feature maps (B, D, h, w) or logits (B, L).
    """
    if not isinstance(model, nn.Module):
        kind = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        remedy = "make one, as Model()" if isinstance(model, type) else "wrap it in a torch.nn.Module"
        raise ModelError(f"model must be a torch.nn.Module, not {kind}", remedy, what="model", value=kind)
    device = next((one.device for one in model.parameters()), torch.device("cpu"))
    training = model.training
    with torch.no_grad():
        given = model.eval()(torch.zeros(2, 3, size, size, device=device))  # two show what becomes of a batch
    model.train(training)
    is_float = isinstance(given, Tensor) and given.is_floating_point()
    shape = tuple(given.shape) if is_float else getattr(given, "dtype", type(given).__name__)
    if shape != (2, classes) and not (is_float and given.ndim == 4 and len(given) == 2):
        raise ModelError(
            f"a model of your own returns feature maps (B, D, h, w), or logits (B, {classes}) of the data's "
            f"classes, but it returned {shape} for images of shape (2, 3, {size}, {size})",
            "leave its pooling and classifier out, as torch.nn.Sequential(*list(model.children())[:-2])",
            f"give it a last layer of {classes} outputs",
            what="model",
            value=shape,
            allowed=(2, classes),
        )
    config = getattr(model, "pretrained_cfg", None) or {}
    mean, std = config.get("mean", IMAGENET_MEAN), config.get("std", IMAGENET_STD)
    backbone = Backbone(OwnNetwork(model.cpu(), given.shape[1]), mean, std)
    return OwnBackbone(backbone, f"{OWN}:{type(model).__name__}:{weights_digest(model)}", given.ndim == 2)


def weights_digest(model: nn.Module) -> str:
    """A digest of a module's weights."""
    digest = hashlib.blake2b(digest_size=8)
    for name, value in model.state_dict().items():
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def make_backbone(
    name: str,
    weights: str = PRETRAINED,
    *,
    size: int,
    output_stride: int | None = None,
    partial_weights: bool = False,
    own_head: bool = False,
) -> Backbone:
    """A backbone by timm's name.

    ``weights`` is ``pretrained`` (downloaded), ``none`` (random) or a file; ``partial_weights`` allows a file
    that does not fit the whole network. ``output_stride`` makes the cells of a convolutional network smaller
    than its usual 32 pixels. ``own_head`` keeps the network's classifier.
    """
    if name == cvt.NAME:
        return _cvt(weights, output_stride, partial_weights, own_head)
    if name.startswith(f"{OWN}:"):
        raise ModelError(
            f"the backbone is a module of your own ({name}), of which a run keeps the weights alone",
            "give the module, as Run.open(folder, model=module) or Run.from_pretrained(name, model=module)",
            what="model",
        )
    pretrained_cfg = known_network(name)
    arguments: dict[str, Any] = {} if own_head else {"num_classes": 0, "global_pool": ""}
    if output_stride is not None:
        arguments["output_stride"] = output_stride
    if pretrained_cfg is not None and pretrained_cfg.fixed_input_size:
        arguments["img_size"] = size
    try:
        if weights == PRETRAINED:
            _ask_hub(pretrained_cfg)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # timm's remarks on renamed models
            network = _create_model(name, weights == PRETRAINED, arguments)
    except (TypeError, AssertionError) as error:  # how timm says that an argument does not fit the network
        if output_stride is None:
            raise
        raise ConfigError(
            f"backbone {name!r} cannot have an {param('output_stride')} of {output_stride}: convolutional "
            "networks have 8, 16 or 32, transformers none",
            what="output_stride",
            value=output_stride,
        ) from error
    except Exception as error:  # whatever the hub's client raises
        if weights != PRETRAINED:
            raise
        raise _no_weights(name, error) from error
    config: Any = network.pretrained_cfg
    backbone = Backbone(network, config["mean"], config["std"])
    if weights not in (PRETRAINED, NONE):
        load_weights(network, Path(weights), partial=partial_weights)
    return backbone


def _create_model(name: str, pretrained: bool, arguments: dict[str, Any]) -> nn.Module:
    """``timm.create_model``; a network that cannot do without pooling keeps it, but cells bypass it."""
    import_timm()
    import timm

    try:
        return timm.create_model(name, pretrained=pretrained, **arguments)
    except AssertionError:
        if "global_pool" not in arguments:
            raise
    arguments = {key: value for key, value in arguments.items() if key != "global_pool"}
    return timm.create_model(name, pretrained=pretrained, **arguments)


def refuse_without_cells(backbone: Backbone, name: str, size: int) -> None:
    """Raise unless the network returns one grid of cells: some return class tokens, or several grids."""
    try:
        backbone.grid(size)
    except Exception as error:  # a user's network may raise anything
        if is_out_of_memory(error):
            raise
        first_line = "".join(str(error).strip().splitlines()[:1])
        own = own_size(name)
        remedies = [f"take another {param('backbone')}"]
        if size != own:
            remedies.append(f"perhaps {param('views.size', own)}, which it was made for")
        raise ConfigError(
            f"backbone {name!r} gives no grid of cells for views of {size} pixels ({type(error).__name__}: "
            f"{first_line})",
            *remedies,
            what="backbone",
            value=name,
        ) from error


def _cvt(weights: str, output_stride: int | None, partial_weights: bool, own_head: bool) -> Backbone:
    """CvT-w24, the one backbone that is not timm's."""
    if output_stride is not None or own_head:
        raise ConfigError(
            f"backbone {cvt.NAME!r} has cells of 16 pixels, always, and no classifier of its own"
        )
    network = _pretrained_cvt() if weights == PRETRAINED else cvt.CvtNetwork(**cvt.W24)
    if weights not in (PRETRAINED, NONE):
        load_weights(network, Path(weights), partial=partial_weights)
    return Backbone(network, cvt.MEAN, cvt.STD)


def _pretrained_cvt() -> nn.Module:
    try:
        return cvt.pretrained_cvt()
    except ModelError:
        raise
    except Exception as error:  # whatever the hub's client raises
        raise _no_weights(cvt.NAME, error) from error


def _no_weights(name: str, error: Exception) -> ModelError:
    return ModelError(
        f"the pretrained weights of {name!r} cannot be downloaded ({type(error).__name__}: {error})",
        f"give a file ({param('weights', 'FILE')}, safetensors or torch)",
        f"start from random weights ({param('weights', NONE)})",
        what="weights",
        value=PRETRAINED,
    )


def _ask_hub(pretrained_cfg: Any) -> None:
    """Raise at once if weights are not cached and the hub does not answer: timm would try for a minute."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError

    repository = pretrained_cfg.hf_hub_id if pretrained_cfg is not None else None
    if not repository or any(isinstance(try_to_load_from_cache(repository, f), str) for f in HUB_FILES):
        return
    with suppress(HfHubHTTPError):  # any answer, even a refusal: timm may find the weights elsewhere
        get_hf_file_metadata(hf_hub_url(repository, HUB_FILES[0]))


def own_size(name: str) -> int:
    """A network's own input size: timm's test input size."""
    if name == cvt.NAME:
        return cvt.SIZE
    pretrained_cfg = known_network(name)
    if pretrained_cfg is None:
        return 224
    return int((pretrained_cfg.test_input_size or pretrained_cfg.input_size)[-1])


def known_network(name: str) -> Any:
    """The ``pretrained_cfg`` of a network by timm; an error names those nearest to an unknown name or tag."""
    import difflib

    import_timm()
    import timm

    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=5)
        hint = f"did you mean {listing(near)}?" if near else "timm.list_models() names all there are"
        raise ConfigError(f"timm has no backbone {name!r}", hint, what="backbone", value=name, allowed=near)
    try:
        return timm.models.get_pretrained_cfg(name)
    except RuntimeError as error:  # the tag, after the dot
        known = timm.list_pretrained(f"{name.partition('.')[0]}.*")
        raise ConfigError(
            f"timm has no backbone {name!r} ({error}): it has {listing(known)}",
            what="backbone",
            value=name,
            allowed=known,
        ) from error


Norm = _BatchNorm


def norms(module: nn.Module) -> list[Norm]:
    """All layers of batch norm, of any dimension."""
    return [layer for layer in module.modules() if isinstance(layer, Norm)]


def frozen_parts(backbone: Backbone, *, norm: bool, stages: int) -> list[nn.Module]:
    """The modules that fine-tuning freezes: batch norm, if asked for, and the first stages of a backbone.

    Stages are those of timm's ``group_matcher``: the stem, then the stages or blocks. Raises where there is
    no batch norm, or not enough stages.
    """
    frozen: list[nn.Module] = []
    if norm:
        frozen += norms(backbone)
        if not frozen:
            raise ConfigError(
                f"{param('finetune.frozen_norm')} keeps batch norm as it is, and this backbone has none",
                "leave it out",
            )
    return frozen + (_first_stages(backbone.network, stages) if stages else [])


def _first_stages(network: Any, count: int) -> list[nn.Module]:
    """The largest modules whose parameters all belong to the first ``count`` stages.

    The network's own parameters, as the class token and position embedding of a ViT, come in a list.
    """
    import_timm()
    from timm.models import group_parameters

    groups = group_parameters(network, network.group_matcher(coarse=True))
    stages = [names for number, names in sorted(groups.items()) if number < float("inf")]
    if count >= len(stages):
        raise ConfigError(
            f"{param('finetune.frozen_stages', count)} would leave nothing of this backbone to train, which "
            f"has {len(stages)} stages, the stem included",
            "give fewer",
            f"train the head alone ({param('head.epochs')})",
            what="finetune.frozen_stages",
            value=count,
            allowed=len(stages) - 1,
        )
    frozen = {name for stage in stages[:count] for name in stage}
    modules: dict[str, nn.Module] = {name: module for name, module in network.named_modules() if name}
    covered: list[str] = []
    for name, module in modules.items():  # a module comes before those inside it
        inside_covered = any(name.startswith(f"{other}.") for other in covered)
        parameters = [f"{name}.{key}" for key, _ in module.named_parameters()]
        if parameters and not inside_covered and frozen.issuperset(parameters):
            covered.append(name)
    largest = [modules[name] for name in covered]
    in_modules = {id(parameter) for module in largest for parameter in module.parameters()}
    loose = [
        parameter
        for name, parameter in network.named_parameters()
        if name in frozen and id(parameter) not in in_modules
    ]
    return [*largest, nn.ParameterList(loose)] if loose else largest


def grad_checkpointing(backbone: Backbone, on: bool) -> None:
    """Switch gradient checkpointing: the backward pass computes activations again instead of keeping them."""
    network: Any = backbone.network
    try:
        network.set_grad_checkpointing(on)
    except (AssertionError, AttributeError) as error:  # how timm says that a network cannot
        if on:
            raise ConfigError(
                f"{type(network).__name__} has no gradient checkpointing "
                f"({param('finetune.grad_checkpointing')})",
                f"take {param('finetune.micro_batches')}",
                f"a smaller {param('finetune.batch_size')}",
                f"another {param('backbone')}",
            ) from error
