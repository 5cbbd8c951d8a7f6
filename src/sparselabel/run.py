"""``Run``: a run folder with its files, data and model as an object.

A run with result.json is finished.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, Self, TypedDict

from sparselabel import config as configuration
from sparselabel.config import Engine, ShardFormat, TrainConfig
from sparselabel.errors import ConfigError, RunError, command, counted, param
from sparselabel.file_formats import naming, read_json, reading
from sparselabel.files import BRING_BACK, TemporaryFolder, atomic_write, write_json
from sparselabel.locks import LOCK
from sparselabel.schema import Count, Finite

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import nn

    from sparselabel.data.dataset import Dataset, PreparedSplit
    from sparselabel.inference.predictor import Prediction
    from sparselabel.models.classifier import Classifier
    from sparselabel.review.run_review import Goal

PEOPLES_WORK = ("answers.csv", "complete.csv")
"""Files of a run with people's work, which cannot be computed again."""
OLD = ".replaced-run"
"""Folder in a run that is being replaced; killed on the way, the next run finds it and deletes the rest."""


class _File:
    """A file or folder of a run, by its name in there."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: "Run", owner: object = None) -> Path:
        return run.path / self.name


class _SplitFile(_File):
    """A file of the run for each split: called with the split's name."""

    def __get__(self, run: "Run", owner: object = None) -> Callable[[str], Path]:  # type: ignore[override]
        return lambda split: run.path / self.name.format(split)


CONTENTS = {
    "weights_identity": "a weights file",
    "expected_identity": "a file of expected positives",
    "prior_identity": "a file of a prior",
    "scores_identity": "a file of scores",
}
"""What run.json says of the content of files that the configuration only names."""
REPLACE = (f"replace it ({param('force', True)})", f"choose another {param('out')}")
"""What to do about a run that is in the way."""


class Metadata(TypedDict):
    """run.json."""

    data: str
    data_digest: dict[str, str]
    classes: list[str]
    answers: NotRequired[Count]
    label_seed: NotRequired[Count | None]
    annotation: NotRequired[str]
    command: NotRequired[list[str]]
    versions: NotRequired[dict[str, str]]
    engine: NotRequired[Engine]


class DecidedClass(TypedDict):
    """What was measured at a class's threshold."""

    threshold: float
    trust: str


class Decided(TypedDict):
    """What was measured at thresholds."""

    classes: list[DecidedClass]


class Measured(TypedDict):
    """A split in result.json."""

    name: str
    value: float
    decided: NotRequired[Decided | None]


class Result(TypedDict):
    """result.json."""

    method: str
    oracle: bool
    best_epoch: Count
    epochs: Count
    validation: Measured | None
    test: Measured | None
    recovery: dict[str, float | None] | None
    model_checksum: NotRequired[int]  # not of a model from the hub


class Mean(TypedDict):
    """The mean of a measure over classes."""

    mean: float


class MeanAveragePrecision(TypedDict):
    """Mean average precision by definition."""

    sklearn: Mean


class Evaluation(TypedDict):
    """evaluation-SPLIT.json."""

    mean_average_precision: MeanAveragePrecision
    location: NotRequired[Mean | None]


class EpochRecord(TypedDict):
    """A line of metrics.jsonl."""

    epoch: Count
    phase: str
    losses: dict[str, float]
    validation: Measured | None
    hidden_positives: NotRequired[list[Count] | None]


class CostFile(TypedDict):
    """cost.json."""

    seconds: Finite
    peak_memory: Count


@dataclass(frozen=True)
class Run:
    """A run: its folder, and the data it was trained on.

    The one way to open a run. ``moved`` is the new folder of its data, or the data itself; ``own_model`` is
    the user's own module that it was trained with, if any; ``temporary`` is its folder, if that is deleted
    with the object. Methods that need data or model import these when they are called.
    """

    path: Path
    moved: "Path | Dataset | None" = None
    own_model: "nn.Module | None" = None
    temporary: TemporaryFolder | None = field(default=None, repr=False, compare=False)

    config_file = _File("config.toml")  # the resolved configuration
    metadata_file = _File("run.json")  # data, classes, versions, command
    metrics_file = _File("metrics.jsonl")  # a line for every epoch
    checkpoints = _File("checkpoints")
    watched = _File("watched")  # scores and maps of a few images, a file an epoch
    memory = _File("memory")  # memories that are too large for RAM
    expected_file = _File("expected.json")  # expected positives, where they were estimated before training
    prior_file = _File("prior.json")  # how often each class is there, by name
    given_scores_file = _File("given-scores.npy")  # another model's scores of the training images
    model_file = _File("model.safetensors")  # the whole classifier of the best epoch
    result_file = _File("result.json")  # the final numbers; there once the run is finished
    cost_file = _File("cost.json")  # seconds and peak memory
    thresholds_file = _File("thresholds.json")  # calibration and thresholds of every class
    missing_file = _File("missing-labels.npz")  # training labels that are likely missing, for reports
    given_answers_file = _File("given-answers.csv")  # reviewers' answers that it was trained with
    answers_file = _File("answers.csv")  # what reviewers of this run answered
    complete_file = _File("complete.csv")  # images of which they answered every class
    review_scores_file = _File("review-scores.npy")  # scores of every training image, for review
    scores_file = _SplitFile("scores-{}.npz")  # of every image
    large_scores_file = _SplitFile("scores-{}.npy")  # the same where they are too many for memory
    evaluation_file = _SplitFile("evaluation-{}.json")  # the measures
    maps_file = _SplitFile("maps-{}.npz")  # where the model sees classes in a few images, for reports
    location_file = _SplitFile("location-{}.npz")  # how much of every map lies on the things it should show
    located_maps_file = _SplitFile("located-maps-{}.npz")  # maps of a few images that a figure shows

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @classmethod
    def open(
        cls,
        path: str | Path,
        data: "str | Path | Dataset | None" = None,
        *,
        model: "nn.Module | None" = None,
    ) -> Self:
        """Open a finished run; raises for a folder that is no run, and for an unfinished run.

        Parameters
        ----------
        path
            Its folder.
        data
            Its data, if it has moved or was in memory.
        model
            The module it was trained with, if that was your own (``train(model=...)``).
        """
        run = cls(Path(path), Path(data) if isinstance(data, str) else data, model)
        run.require_finished()
        return run

    @property
    def finished(self) -> bool:
        """Whether the run is finished."""
        return self.result_file.is_file()

    def require_finished(self) -> None:
        """Raise unless this run is finished."""
        self.metadata()
        if not self.finished:
            data = self.metadata().get("data", "DATA")
            resume = command("train", data, config=self.config_file, out=self.path, resume=True)
            raise RunError(f"{self.path} is not finished", f"go on with it by {resume}", what=self.path)

    def begin(
        self, config: TrainConfig, about: dict[str, Any], *, resume: bool, force: bool, answers: bytes = b""
    ) -> None:
        """Make the folder, or resume a run of the same configuration; only ``force`` overwrites anything.

        ``answers`` is the content of given-answers.csv, if the run is trained with some.
        """
        if self.goes_on(config, about, resume=resume, force=force):
            return
        if self.path.exists():
            self._clear()
        self.path.mkdir(parents=True, exist_ok=True)
        if answers:
            with atomic_write(self.given_answers_file) as partial:
                partial.write_bytes(answers)
        write_json(self.metadata_file, about)
        configuration.save(config, self.config_file)

    def goes_on(self, config: TrainConfig, about: dict[str, Any], *, resume: bool, force: bool) -> bool:
        """Whether there is a run to resume; raises for anything else in the folder, and writes nothing."""
        if self.config_file.exists() and not force:
            if not resume:
                state = "finished" if self.finished else "unfinished"
                raise RunError(
                    f"{self.path} holds a run already ({state})",
                    f"go on with it ({param('resume', True)})",
                    *REPLACE,
                )
            self._refuse_other(config, about)
            return True
        self.refuse_taken(force)
        return False

    def refuse_taken(self, force: bool) -> None:
        """Raise if the path exists and is not a run."""
        if self.path.exists() and not self.config_file.exists() and not self._replaceable(force):
            raise RunError(
                f"{self.path} exists and is not a run", f"choose another {param('out')}", "remove it yourself"
            )

    def _clear(self) -> None:
        """Delete the run, or the rest of one, but not reviewers' answers.

        If killed at any moment it leaves a run that can be resumed, or a folder marked for deletion.
        """
        old = self.path / OLD
        if old.is_symlink():  # in a folder from elsewhere: nothing is moved to where it points
            old.unlink()
        old.mkdir(exist_ok=True)
        for file in (self.result_file, self.config_file):  # in this order: without the second it is no run
            if file.exists():
                file.rename(old / file.name)
        for item in self.path.iterdir():
            if item.is_dir() and not item.is_symlink():
                if item != old:
                    shutil.rmtree(item)
            elif item.name not in (LOCK, *PEOPLES_WORK):
                item.unlink()
        shutil.rmtree(old)

    def _replaceable(self, force: bool) -> bool:
        """Whether the folder has only a run's files: ``force`` must not delete a folder of photos."""
        if not self.path.is_dir():
            return False
        names = {item.name for item in self.path.iterdir()}
        begun = {"run.json", "run.json.partial", "config.toml.partial", "given-answers.csv"}
        just_begun = names <= {LOCK, *begun, *PEOPLES_WORK}  # killed at once
        return just_begun or OLD in names or (force and "run.json" in names)

    def refuse_other_data(self, about: dict[str, Any]) -> None:
        """Raise if an existing run was begun on other data than ``about`` names."""
        if not self.config_file.exists():
            return
        before = self.metadata()
        old, new = before["data_digest"], about["data_digest"]
        other = [name for name in sorted({*old} | {*new}) if old.get(name) != new.get(name)]
        had, has = (counted(n, "answer") if (n := one.get("answers")) else "none" for one in (before, about))
        if other == ["train"] and (had, has) != ("none", "none"):
            file = "" if had == "none" else f" ({param('answers', self.given_answers_file)})"
            raise RunError(
                f"{self.path} was begun with other answers ({had}) than these ({has}), or on other data",
                f"resume it with those it was begun with{file}",
                *REPLACE,
            )
        if other:
            old_folder, folder = before["data"], about["data"]
            where = f"{folder} has changed since" if folder == old_folder else f"{old_folder}, not {folder}"
            raise RunError(
                f"{self.path} was begun on other data ({where}; different: {', '.join(other)})",
                "resume it on the data it was begun on",
                *REPLACE,
            )

    def _refuse_other(self, config: TrainConfig, about: dict[str, Any]) -> None:
        self.refuse_other_data(about)  # first: other data may well make another configuration
        before = self.config()
        if before != config:
            old, new = flat_settings(asdict(before)), flat_settings(asdict(config))
            changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
            words = ", ".join(f"{param(name)} was {old.get(name)}, not {new.get(name)}" for name in changed)
            raise RunError(
                f"{self.path} was begun with another configuration ({words})",
                "resume it with the settings it was begun with",
                *REPLACE,
            )
        metadata = self.metadata()
        for key, what in CONTENTS.items():
            if metadata.get(key) != about.get(key):
                raise RunError(
                    f"{self.path} was begun with {what} of the same name, but of other content",
                    "bring the old one back",
                    *REPLACE,
                )

    def config(self) -> TrainConfig:
        """The configuration of the run."""
        file = self._required(self.config_file)
        if not file.stat().st_size:
            raise RunError(f"{file} is empty", *BRING_BACK, what=file)
        try:
            return configuration.load(TrainConfig, file)
        except ConfigError as error:  # not what the user gave: the file has changed since the run wrote it
            raise RunError(f"{file} cannot be read ({error.__cause__ or error})", *BRING_BACK) from error

    def metadata(self) -> dict[str, Any]:
        """The content of run.json: data, classes, versions, command."""
        return {**read_json(self._required(self.metadata_file), Metadata)}

    def _required(self, file: Path) -> Path:
        if not file.is_file():
            train = f"make one with {command('train')}"
            why = f"it has no {file.name}" if self.path.is_dir() else "there is no such folder"
            raise RunError(f"{self.path} is not a run ({why})", train, what=self.path)
        return file

    def data_name(self, split: str) -> str:
        """The data it was trained on, for a message: its folder and a short digest of a split."""
        about = self.metadata()
        return f"{about['data']}, {split} {about['data_digest'].get(split, 'missing')[:8]}"

    def cost(self) -> dict[str, Any]:
        """Seconds and bytes of peak memory; empty before the first session has ended."""
        return {**read_json(self.cost_file, CostFile, "remove it")} if self.cost_file.is_file() else {}

    def result(self) -> dict[str, Any]:
        """The final numbers of a finished run."""
        self.require_finished()
        return {**read_json(self.result_file, Result)}

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of its classes."""
        return tuple(self.metadata()["classes"])

    @property
    def data_folder(self) -> Path:
        """The folder of its prepared data."""
        if self.moved is None:
            return Path(self.metadata()["data"])
        return self.moved if isinstance(self.moved, Path) else self.moved.folder

    def data(self) -> "Dataset":
        """The prepared data with the labels and reviewers' answers of the run's training."""
        from sparselabel.data.answers import read_answers, with_answers
        from sparselabel.data.prepared_files import open_prepared
        from sparselabel.data.redraw_labels import redraw_labels

        if self.moved is not None and not isinstance(self.moved, Path):
            return self.moved
        folder, given = self.data_folder, self.given_answers_file
        with reading(self.metadata_file, *BRING_BACK, error=RunError):  # a name that no folder can have
            there = folder.exists()
        if self.moved is None and not there:
            raise RunError(
                f"the data of {self.path} is no longer in {folder}", f"say where it is now ({param('data')})"
            )
        data = open_prepared(folder)
        if data.classes != self.classes:
            raise RunError(f"{folder} has other classes than the data that {self.path} was trained on")
        label_seed, annotation = (self.metadata().get(name) for name in ("label_seed", "annotation"))
        if label_seed is not None or annotation:
            with naming(self.metadata_file):
                data = redraw_labels(data, label_seed, annotation or "")
        return with_answers(data, read_answers(given), str(given)) if given.is_file() else data

    def split(self, name: str) -> "PreparedSplit":
        """A split of its data; raises if it has changed since training."""
        from sparselabel.data.prepared_files import require_as_written

        data = self.data()
        split = data.split(name)
        if data.made:
            require_as_written(data, name)
        if split.digest != self.metadata()["data_digest"].get(name):
            raise RunError(
                f"split {name!r} of {self.data_folder} is not what {self.path} was trained with",
                "prepare it as it was",
                "train again",
            )
        return split

    @cached_property
    def model(self) -> "Classifier":
        """Its trained classifier, an ``nn.Module`` in evaluation mode on the CPU.

        It takes views (B, 3, S, S) of pixels in 0..255, normalizes them itself, and returns an ``Output``
        whose ``logits`` are (B, L); with ``maps=True`` also maps (B, L, h, w).
        """
        from sparselabel.inference.scorer import load_classifier

        return load_classifier(self)

    def metrics(self, split: str = "test", *, workers: int | None = None) -> dict[str, Any]:
        """All metrics of a split, as shares of 1, "mAP" first; images are scored once, and scores saved."""
        from sparselabel.inference.evaluate import evaluate_run

        file = self.evaluation_file(split)
        measured: dict[str, Any]
        if file.is_file():
            measured = {**read_json(file, Evaluation)}
        else:
            measured = evaluate_run(self, split, workers=workers)
        first = next(iter(measured["mean_average_precision"].values()))
        return {"mAP": first["mean"]} | measured

    def scores(self, split: str = "test", *, workers: int | None = None) -> "npt.NDArray[np.floating]":
        """(N, L) Scores in 0..1 of a split's images, not calibrated."""
        from sparselabel.inference.evaluate import evaluate_run
        from sparselabel.inference.saved_scores import saved_scores

        if not self.scores_file(split).is_file() and not self.large_scores_file(split).is_file():
            evaluate_run(self, split, workers=workers)
        return saved_scores(self, split).array

    def predict(
        self,
        images: Any,
        *,
        maps: bool = False,
        precision: float | None = None,
        threshold: float | None = None,
        workers: int | None = None,
    ) -> "list[Prediction]":
        """Predict the labels of images: paths, URLs, PIL images, arrays or tensors, one or many, or a folder.

        Labels are chosen by the run's thresholds for F1, by those for a ``precision``, or by one
        ``threshold`` of the calibrated score for all classes.
        """
        from sparselabel.inference.predictor import predictor_of

        return [*predictor_of(self, precision, threshold)(images, maps=maps, workers=workers)]

    def predict_on_cluster(
        self,
        images: "str | Path | Sequence[str | Path]",
        out: str | Path,
        cluster: str = "auto",
        *,
        out_format: ShardFormat = "parquet",
        all_scores: bool = False,
        precision: float | None = None,
        threshold: float | None = None,
        column: str | None = None,
        cluster_cores: int = 1,
        resume: bool = False,
        force: bool = False,
    ) -> Path:
        """Predict on the Ray cluster at ``cluster``, into files in the folder ``out``; returns its path.

        Images are those of the command ``predict``: files, folders, patterns, lists, addresses, tars and
        Parquet tables, with images in ``column``.
        """
        from sparselabel.inference.predict_on_ray import Place, predict_on_cluster

        words = [images] if isinstance(images, str | Path) else images
        predict_on_cluster(
            self, [str(word) for word in words], Path(out), Place(cluster, cluster_cores),
            out_format=out_format, all_scores=all_scores, precision=precision, threshold=threshold,
            column=column, resume=resume, force=force,
        )  # fmt: skip
        return Path(out)

    def maps(self, images: Any, *, workers: int | None = None) -> "list[npt.NDArray[np.float32] | None]":
        """Logits (L, h, w) of each image's cells."""
        return [prediction.maps for prediction in self.predict(images, maps=True, workers=workers)]

    def report(self, out: str | Path | None = None, *, workers: int | None = None) -> Path:
        """Write a page about the run; default: report.html in its folder."""
        from sparselabel.report.make_report import make_report
        from sparselabel.report.page import checked_page
        from sparselabel.report.run_data import read_runs

        page = checked_page(Path(out or self.path / "report.html"))
        make_report(read_runs([self]), page, workers)
        return page

    def review(
        self,
        *,
        answers: str | Path | None = None,
        reviewer: str | None = None,
        goal: "Goal" = "labels",
        port: int = 8765,
        host: str | None = None,
        tls_cert: str | Path | None = None,
        tls_key: str | Path | None = None,
        browser: bool = True,
        workers: int | None = None,
    ) -> Path:
        """Ask people to confirm or reject suggested labels, on a local web page.

        Serves until it is interrupted (Ctrl-C, or a notebook's stop button); returns the file of answers,
        which ``train(..., answers=FILE)`` learns from.

        Parameters
        ----------
        answers
            File to append answers to; default: answers.csv in the run (complete.csv with goal "count").
        reviewer
            Name to save with the answers; default: your login name.
        goal
            The purpose of the questions: "labels" (missing training labels), "thresholds" (validation
            images), or "count" (all labels of random images, for expected positives).
        port
            Port of the page; if it is in use, another one is taken.
        host, tls_cert, tls_key
            To share the page on a network: a name or address of this machine, a certificate and its key.
        browser
            Open the page; else only print the address.
        workers
            Processes that load images when they are first scored; by default none for a CPU.
        """
        from sparselabel.progress import plain_console
        from sparselabel.review.run_review import serve_review

        return serve_review(
            self,
            say=plain_console(force_jupyter=False).print,
            answers=None if answers is None else Path(answers),
            reviewer=reviewer,
            goal=goal,
            port=port,
            host=host,
            tls_cert=None if tls_cert is None else Path(tls_cert),
            tls_key=None if tls_key is None else Path(tls_key),
            browser=browser,
            workers=workers,
        ).path

    def export(self, out: str | Path, *, force: bool = False) -> Path:
        """Write the model as one file that runs without sparselabel (.onnx or .pt2), and check it."""
        from sparselabel.export import check_target, export_run

        check_target(Path(out), force)
        export_run(self, Path(out))
        return Path(out)

    def save_pretrained(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the model in the Hugging Face hub's layout: model.safetensors, config.json, a model card.

        The card leaves the license to you. ``huggingface_hub.upload_folder`` publishes the folder. Existing
        files are replaced with ``force`` only.
        """
        from sparselabel.hub import save_pretrained

        return save_pretrained(self, Path(folder), force=force)

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        data: "str | Path | Dataset | None" = None,
        *,
        model: "nn.Module | None" = None,
        revision: str | None = None,
    ) -> Self:
        """A run that ``save_pretrained`` wrote: a folder, or a model on the hub (``"name/model"``).

        It predicts, exports and has a ``model``. Methods about its data need ``data``, and your own module is
        given as ``model``, as in ``open``. No code in the files is run. ``revision`` is a version on the hub.
        """
        from sparselabel.hub import load_pretrained

        folder = load_pretrained(source, revision)
        return cls(folder.path, Path(data) if isinstance(data, str) else data, model, folder)


def flat_settings(values: dict[str, Any], table: str = "") -> dict[str, Any]:
    """Nested settings by their full names, as ``head.epochs``."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{table}{key}"
        flat |= flat_settings(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat
