"""Train on a plain folder of images: prepare it, and choose settings for its labels and the machine."""

import hashlib
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from sparselabel.config import AUTO, Handling, HeadPhase, Machine, Preparation, TrainConfig
from sparselabel.data.checks import same_images
from sparselabel.data.dataset import Dataset
from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.data.prepare import prepare
from sparselabel.data.prepared_files import open_prepared
from sparselabel.data.readers import reader
from sparselabel.data.readers.raw_dataset import RawDataset
from sparselabel.errors import ConfigError, DataError, ModelError, RunError, command, counted, param
from sparselabel.files import write_text
from sparselabel.losses.registry import parse, typed_settings
from sparselabel.models.backbone import Backbone
from sparselabel.progress import progress_bar, status_console
from sparselabel.run import Run
from sparselabel.training.network import LazyBackbone
from sparselabel.training.resolve import needs_of, with_chosen_method

ON_A_CPU = "mobilenetv2_100"
"""About a hundred images per second on two cores; what we measured methods with."""
OTHERS = ("resnet50", "mobilenetv2_100", "resnet18", "mobilenetv3_large_100", "efficientnet_b0")
"""Networks to try if the weights of the first choice cannot be downloaded: some may be cached."""
ENOUGH, ENOUGH_OF_CLASS = 1000, 100
"""Training images, and how many for each class, from which on a whole network is trained. With one label for
each image it is worse than a head on stored features with 19, alike with 75, better with 229
(docs/results.md)."""

LABELS = "labels.digest"
"""File beside the prepared data: the digest of the table it was made of."""

Say = Callable[[str], None]
"""Prints what was found and chosen; parameters in the text are those of ``param``."""


@dataclass(frozen=True)
class FolderRun:
    """A folder of images, prepared, and how to train on it."""

    data: Dataset
    config: TrainConfig
    backbone: Backbone | None


def is_prepared(data: Path) -> bool:
    """Whether a folder is prepared data."""
    return (data / "dataset.json").exists()


def choose_for_folder(
    data: Path,
    labels: Path | None,
    out: Path,
    config: TrainConfig,
    given: Collection[str],
    machine: Machine,
    handling: Handling,
    say: Say,
    table: Mapping[str, Any] | None = None,
) -> FolderRun:
    """Prepare a folder of images, and choose network and schedule as far as they are not ``given``.

    ``given`` are the names of parameters that the user has set, such as ``head.epochs``. A run that is
    resumed keeps what was chosen for it. ``table`` are options of the reader of ``labels``.
    """
    if not (handling.resume and is_prepared(data_of(out))):
        _refuse_source(data, labels, table or {})
    refuse_early(out, handling)
    if config.method != AUTO:  # before a network is looked for and images are read
        typed_settings(config.method, config.settings)
    begun = Run(out).config() if handling.resume and Run(out).config_file.exists() else None
    lazy = choose_backbone(config, given, machine, say, begun)
    table = dict(table or {}, unlabeled=uses_unlabeled(config.method))
    prepared = prepare_folder(data, labels, out, handling, say, table)
    shape = len(prepared.train), len(prepared.classes)
    chosen = choose_schedule(lazy.config, given, machine, shape, say, begun)
    return FolderRun(prepared, chosen, lazy.made)


def uses_unlabeled(method: str) -> bool:
    """Whether a method learns from images without any label."""
    return method != AUTO and parse(method).unlabeled is not None


def data_of(out: Path) -> Path:
    """The folder of a run's prepared data: beside the run, because several runs may use it."""
    return out.with_name(f"{out.name}-data")


def refuse_early(out: Path, handling: Handling) -> None:
    """Raise if a run, or other processes that prepare the same folder, are in the way."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        prepare_first = command("prepare", "table", "labels.csv", images="IMAGES", out="prepared")
        remedy = f"prepare it first ({prepare_first}, or {command('prepare', 'folder')}) and train on that"
        raise ConfigError("several processes cannot train on a folder of images", remedy)
    if is_prepared(out):
        raise RunError(
            f"{out} holds prepared data, and is no place for a run",
            f"choose another {param('out')}",
            f"train on it with {command('train', out)}",
            what="out",
            value=out,
        )
    run = Run(out)
    if run.config_file.exists() and not (handling.resume or handling.force):
        raise RunError(
            f"{out} holds a run already",
            f"go on with it ({param('resume', True)})",
            f"replace it ({param('force', True)})",
            f"choose another {param('out')}",
            f"train on the same images in another way with {command('train', data_of(out))}",
        )
    run.refuse_taken(handling.force)


def prepare_folder(
    data: Path, labels: Path | None, out: Path, handling: Handling, say: Say, table: Mapping[str, Any]
) -> Dataset:
    """Read and check images and labels; files that cannot be read are left out and named."""
    folder = data_of(out)
    if handling.resume and is_prepared(folder):
        _refuse_other_labels(labels, folder)
        return open_prepared(folder)
    if handling.dry_run:
        prepare_first = command("prepare", "table", "LABELS", images=data, out="prepared")
        raise ConfigError(
            f"{param('dry_run', True)} writes nothing, so the images must be prepared before",
            f"{prepare_first} (or {command('prepare', 'folder')}), then train on that",
        )
    source = _read(data, labels, table)
    everything = sum(len(split.labels) for split in source.splits.values())
    with progress_bar(status_console(), everything, f"checking {counted(everything, 'image')}") as bar:
        how = Preparation(skip_broken=True)
        prepared = prepare(source, folder, how, force=is_prepared(folder), report=bar.advance)
    write_text(folder / LABELS, _digest(labels))
    say(found_in(prepared, everything, held_out="val" not in source.splits))
    for problem in same_images(prepared):
        say(f"WARNING: {problem}")
    return prepared


def _digest(labels: Path | None) -> str:
    """The digest of a table; empty for class folders."""
    return hashlib.blake2b(labels.read_bytes(), digest_size=16).hexdigest() if labels is not None else ""


def _refuse_other_labels(labels: Path | None, folder: Path) -> None:
    """Raise if the labels have changed since the run was begun."""
    file = folder / LABELS
    if labels and labels.is_file() and file.is_file() and file.read_bytes() != _digest(labels).encode():
        raise RunError(
            f"{labels} has changed since the run was begun",
            f"begin it anew ({param('force', True)})",
            f"leave {param('labels')} out to go on with the old labels",
        )


def _refuse_source(data: Path, labels: Path | None, table: Mapping[str, Any]) -> None:
    """Raise if images or labels are missing, before a network is loaded."""
    if labels is not None:
        if not labels.is_file():
            problem = f"there is no file {labels}" if not labels.exists() else f"{labels} is not a file"
            remedy = f"name the table of the images' labels ({param('labels', 'labels.csv')})"
            raise DataError(problem, remedy, what="labels", value=labels)
        return
    given = [name for name, value in table.items() if value]
    if given:
        names = ", ".join(param(name) for name in given)
        raise ConfigError(
            f"{names} is for a table of labels", f"name it with {param('labels')}", what=given[0]
        )
    if not any(item.is_dir() and not item.name.startswith(".") for item in data.iterdir()):
        wanted = f"{param('labels', 'labels.csv')}, with columns image and label"
        problem = f"{data} is neither prepared data nor a folder of class folders"
        raise DataError(problem, f"name the table of the images' labels ({wanted})")


def _read(data: Path, labels: Path | None, table: Mapping[str, Any]) -> RawDataset:
    if labels is not None:
        try:
            return reader("table")(labels, images=data, skip_missing=True, **table)
        except DataError as error:
            if "images" not in error.parameters:
                raise
            remedy = f"name images relative to {data}"  # the folder is the data itself
            raise DataError(
                error.problem, remedy, *error.remedies, what=error.what, where=error.where
            ) from error
    return reader("folder")(data)


def found_in(prepared: Dataset, read: int, *, held_out: bool = False) -> str:
    """The prepared data in one line; ``read`` is how many images had labels, broken ones included.

    ``held_out`` says that validation was split off, which has its share of every class.
    """
    splits = prepared.splits.values()
    decoded = sum(len(split) for split in splits)
    present = sum(int(split.truth.counts(POSITIVE).sum()) for split in splits)
    absent = sum(int(split.truth.counts(NEGATIVE).sum()) for split in splits)
    one_each = all((split.truth.per_image(POSITIVE) == 1).all() for split in splits) and not absent
    labels = "one label each" if one_each else f"{present / decoded:.1f} labels each of what is there"
    labels += f" and {absent / decoded:.1f} of what is not" if absent else ""
    sizes = ", ".join(f"{len(split):,} {name}" for name, split in prepared.splits.items())
    if held_out and "val" in prepared.splits and prepared.split("val").truth.counts(POSITIVE).all():
        sizes += ", with its share of every class"
    broken = f"; {counted(read - decoded, 'file')} could not be read" if decoded < read else ""
    classes = counted(len(prepared.classes), "class")
    return f"{counted(decoded, 'image')} ({sizes}), {classes}, {labels}{broken}"


def choose_backbone(
    config: TrainConfig, given: Collection[str], machine: Machine, say: Say, begun: TrainConfig | None = None
) -> LazyBackbone:
    """A backbone with available weights, and its configuration; the given one, or that of a run ``begun``.

    It is made before all images are checked.
    """
    first = config.backbone if "backbone" in given or _has_gpu(machine) else ON_A_CPU
    if begun is not None and "backbone" not in given:
        first = begun.backbone
    if "backbone" in given or "weights" in given:
        backbone = LazyBackbone(replace(config, backbone=first))
        backbone()
        return backbone
    if begun is not None:
        return LazyBackbone(replace(config, backbone=first))
    for name in (first, *(other for other in OTHERS if other != first)):
        backbone = LazyBackbone(replace(config, backbone=name))
        try:
            backbone()
        except ModelError as error:
            if name == first:
                why = error
            continue
        if name != first:
            say(f"the weights of {first} cannot be had, so it is {name}, whose weights can")
        return backbone
    raise why


def choose_schedule(
    config: TrainConfig,
    given: Collection[str],
    machine: Machine,
    shape: tuple[int, int],
    say: Say,
    begun: TrainConfig | None = None,
) -> TrainConfig:
    """The configuration with a schedule for the machine and so many (images, classes), where none is given.

    Given settings stay. Any setting of fine-tuning means that the whole network is trained.
    """
    whole = [name for name in given if name.startswith("finetune.")]
    if begun is not None:
        parts = ("frozen", "head", "finetune")
        given_tables = {name.partition(".")[0] for name in given}
        return replace(config, **{name: getattr(begun, name) for name in parts if name not in given_tables})
    if whole and "frozen" in given:
        return config
    if whole:
        say(f"the whole network is trained, as {param(whole[0])} is given; features are not stored")
        return config
    gpu = _has_gpu(machine)
    few = shape[0] < max(ENOUGH, ENOUGH_OF_CLASS * shape[1])
    if config.frozen if "frozen" in given else not gpu or few:
        only = f"only {counted(shape[0], 'image')} for {counted(shape[1], 'class')}"
        reason = only if gpu else "no GPU"
        cost = "" if gpu else ", in hours" if few else ": better, but hours"
        say(
            f"{param('frozen') if 'frozen' in given else reason}: a linear classifier on features of "
            f"{config.backbone}, which are computed once "
            f"({param('finetune.epochs', 10)} trains everything{cost})"
        )
        stored = replace(config, frozen=True)
        if needs_of(with_chosen_method(stored, *shape)).solves:
            return stored
        return replace(stored, head=_with_chosen(config.head, given, batch_size=64))
    say(f"{'there is a GPU' if gpu else 'not frozen'}: {config.backbone}, the head alone, then everything")
    finetune = replace(config.finetune, epochs=25, batch_size=8)
    return replace(config, head=_with_chosen(config.head, given, epochs=5), finetune=finetune)


def _with_chosen(head: HeadPhase, given: Collection[str], **chosen: Any) -> HeadPhase:
    """The head's phase with what was chosen, apart from what is given."""
    return replace(head, **{name: value for name, value in chosen.items() if f"head.{name}" not in given})


def _has_gpu(machine: Machine) -> bool:
    if machine.accelerator == "cpu":
        return False
    return torch.cuda.is_available() or (machine.accelerator == "mps" and torch.backends.mps.is_available())
