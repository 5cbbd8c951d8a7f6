"""A run in the Hugging Face hub's layout: model.safetensors, config.json, and a model card in README.md.

    run ──▶ save_pretrained ──▶ folder ──▶ (huggingface_hub uploads, downloads) ──▶ load_pretrained ──▶ run

Paths of the training machine are not included.
"""

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict

from sparselabel import config as configuration
from sparselabel.config import TEXT, TrainConfig, without_none
from sparselabel.data.labels import NEGATIVE, POSITIVE
from sparselabel.errors import ModelError, RunError, SparselabelError, counted, param
from sparselabel.file_formats import of_kind, read_json
from sparselabel.files import TemporaryFolder, atomic_write, require_folder_to_write, write_json
from sparselabel.inference.class_thresholds import ThresholdsFile, load_class_thresholds
from sparselabel.models.backbone import OWN
from sparselabel.run import Metadata, Result, Run

FORMAT = 1
MODEL, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
SPLITS = ("test", "validation")
NUMBERS = ("name", "value", "images", "labels")
"""The metrics of a split that are kept."""


class SavedRun(TypedDict):
    """The small files of a run, in config.json."""

    config: TrainConfig
    run: Metadata
    result: Result
    thresholds: ThresholdsFile


def save_pretrained(run: Run, folder: Path, *, force: bool = False) -> Path:
    """Write a finished run for the hub; returns the folder."""
    run.require_finished()
    require_folder_to_write(folder)
    there = [name for name in (MODEL, CONFIG, CARD) if (folder / name).exists()]
    if there and not force:
        raise RunError(
            f"{folder} has {', '.join(there)} already",
            "choose another folder",
            f"replace them ({param('force', True)})",
            what=folder,
            value=there,
        )
    content = _content(run)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / MODEL) as partial:
        shutil.copyfile(run.model_file, partial)
    write_json(folder / CONFIG, content)
    with atomic_write(folder / CARD) as partial:
        partial.write_text(_card(run, content), encoding="utf-8")
    return folder


def load_pretrained(source: str | Path, revision: str | None = None) -> TemporaryFolder:
    """A run's folder, restored from a folder of ``save_pretrained`` or a model on the hub."""
    folder = Path(source) if Path(source).is_dir() else _downloaded(str(source), revision)
    missing = [name for name in (MODEL, CONFIG) if not (folder / name).is_file()]
    if missing:
        raise ModelError(
            f"{source} has no {' and no '.join(missing)}",
            "name a folder that Run.save_pretrained wrote",
            "open a run's own folder with Run.open",
            what=source,
            value=missing,
        )
    again = "save or download it again"
    content: dict[str, Any] = read_json(folder / CONFIG, dict, again, error=ModelError)
    if content.get("library_name") != "sparselabel" or content.get("format") != FORMAT:
        raise ModelError(
            f"{folder / CONFIG} is not of a model that this version of sparselabel saved", again, what=source
        )
    saved = of_kind(content, SavedRun, folder / CONFIG, again, error=ModelError)
    made = TemporaryFolder()
    run = Run(made.path)
    try:
        configuration.save(saved["config"], run.config_file)
        write_json(run.metadata_file, saved["run"])
        write_json(run.result_file, saved["result"])
        write_json(run.thresholds_file, content["thresholds"])
        load_class_thresholds(run)  # they are of its classes
    except SparselabelError as error:
        raise ModelError(f"{folder / CONFIG} is damaged ({error.problem})", again, what=source) from error
    shutil.copyfile(folder / MODEL, run.model_file)
    return made


def _downloaded(source: str, revision: str | None) -> Path:
    """Download a model of the hub; returns its folder."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, revision=revision, allow_patterns=[MODEL, CONFIG, CARD]))
    except Exception as error:  # the hub's client raises many errors, also for a path that is no name
        first = "".join(str(error).strip().splitlines()[:1])
        raise ModelError(
            f"{source} is no folder here, and cannot be had from the hub ({type(error).__name__}: {first})",
            "name a folder that Run.save_pretrained wrote",
            "name a model on the hub, as name/model",
            what=source,
        ) from error


def _content(run: Run) -> dict[str, Any]:
    """The content of config.json: everything that predictions need besides the weights."""
    config, metadata, result = asdict(run.config()), run.metadata(), run.result()
    if config["weights"] not in ("pretrained", "none"):
        config["weights"] = Path(config["weights"]).name
    config["settings"] = {
        name: Path(value).name if isinstance(value, str) and not value.startswith(TEXT) else value
        for name, value in config["settings"].items()
    }
    keys = ("data_digest", "label_seed", "answers", "classes", "versions")
    measured = {
        split: result[split] and {name: result[split].get(name) for name in NUMBERS} for split in SPLITS
    }
    return {
        "library_name": "sparselabel",
        "format": FORMAT,
        "architecture": config["backbone"],
        "id2label": dict(enumerate(run.classes)),
        "config": without_none(config),
        "run": {name: metadata.get(name) for name in keys} | {"data": run.data_folder.name, "command": []},
        "result": {name: result[name] for name in ("method", "oracle", "best_epoch", "epochs")}
        | measured
        | {"recovery": None},
        "thresholds": load_class_thresholds(run).as_json(),
    }


def _card(run: Run, content: dict[str, Any]) -> str:
    """The model card."""
    config, result, thresholds = run.config(), content["result"], content["thresholds"]
    own = config.backbone.startswith(f"{OWN}:")
    network = f"a module of its author's own, `{config.backbone.split(':')[1]}`" if own else config.backbone
    settings = ", ".join(f"{name} {value}" for name, value in content["config"]["settings"].items())
    measured = [
        f"| {split} | {one['name']} | {100 * one['value']:.1f} | {counted(one['images'], 'image')}, labels "
        f"{one['labels']} |"
        for split in SPLITS
        if (one := result[split]) and one["value"] is not None
    ]
    images = counted(thresholds["images"], "validation image")
    return CARD_TEXT.format(
        name=run.path.name,
        count=len(run.classes),
        model=", model=module" if own else "",
        method=f"`{config.method}`{f' ({settings})' if settings else ''}",
        oracle=" It saw labels that nobody has in practice: an upper bound." if result["oracle"] else "",
        network=network,
        size=config.views.size,
        epochs=counted(result["epochs"], "epoch"),
        best=result["best_epoch"],
        labels=_labels(run),
        measured="\n".join([*TABLE_HEAD, *measured]) if measured else "Nothing was measured.",
        thresholds=f"calibrated, and thresholds chosen, on {images} with {thresholds['labels']} labels"
        if thresholds["images"]
        else "not calibrated, as there were no validation images",
        classes=", ".join(run.classes),
    )


TABLE_HEAD = ("| split | measure | % | on |", "|---|---|---|---|")
CARD_TEXT = """---
library_name: sparselabel
pipeline_tag: image-classification
tags:
  - multi-label-image-classification
  - sparse-annotations
# license: choose one before you publish this model, as apache-2.0
---

# {name}

A multi-label image classifier of {count} classes, trained from sparse annotations with sparselabel.

```python
from sparselabel import Run

run = Run.from_pretrained("FOLDER, OR NAME ON THE HUB"{model})
run.predict(["photo.jpg"])[0].labels
```

## Training

- Method: {method}.{oracle}
- Network: {network}, images of {size} pixels, {epochs}; this is epoch {best}.
- Labels: {labels}

## Measured

{measured}

Where labels are "observed", unknown ones count as absent: the true number is another one. Scores are
{thresholds}.

## Intended use

It says which of its classes an image shows, for images like those it was trained on. It says nothing about
other classes. Its heat maps are coarse: no boxes, no masks. Measure it on images of your own with complete
labels before decisions rest on it.

## Classes

{classes}
"""


def _labels(run: Run) -> str:
    """A sentence on the labels of the training images."""
    try:
        labels = run.data().train.observed
    except (SparselabelError, OSError):
        return "of data that is no longer where it was."
    if labels.complete:
        return f"complete, of {counted(len(labels), 'image')}."
    positive, negative = (float(labels.per_image(value).mean()) for value in (POSITIVE, NEGATIVE))
    return (
        f"sparse; of {counted(len(labels), 'image')}, {positive:.2f} labels each are known to be present and "
        f"{negative:.2f} to be absent, of {len(labels.classes)} classes; the rest is unknown."
    )
