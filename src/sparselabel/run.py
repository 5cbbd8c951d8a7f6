"""A run as an object: its folder, its small files, its data and its model.

A run with result.json is finished.
"""

import shutil
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sparselabel import config as configuration
from sparselabel.config import TrainConfig
from sparselabel.errors import ConfigError, RunError, command, counted, param
from sparselabel.files import BRING_BACK, read_json, write_json

if TYPE_CHECKING:
    from sparselabel.data.dataset import Prepared, PreparedSplit
    from sparselabel.models.classifier import Classifier

PEOPLES_WORK = ("answers.csv", "complete.csv")
"""Files of a run that no program could make again."""


@dataclass(frozen=True)
class RunFiles:
    """The paths of a run; ``moved`` is where its data is now, if no longer where it was."""

    path: Path
    moved: Path | None = None

    @property
    def config_file(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.toml"

    @property
    def metrics_file(self) -> Path:
        """A JSON line for every epoch."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def watched(self) -> Path:
        """Scores and maps of a few images, a file an epoch."""
        return self.path / "watched"

    @property
    def memory(self) -> Path:
        """Memories that are too large for RAM."""
        return self.path / "memory"

    @property
    def expected_file(self) -> Path:
        """Expected positives of every class, where they were estimated before training."""
        return self.path / "expected.json"

    @property
    def prior_file(self) -> Path:
        """How often each class is there, by name."""
        return self.path / "prior.json"

    @property
    def model_file(self) -> Path:
        """The whole classifier of the best epoch."""
        return self.path / "model.safetensors"

    @property
    def result_file(self) -> Path:
        """The final numbers; there once the run is finished."""
        return self.path / "result.json"

    def scores_file(self, split: str) -> Path:
        """The scores of every image of a split."""
        return self.path / f"scores-{split}.npz"

    def evaluation_file(self, split: str) -> Path:
        """The measures of a split."""
        return self.path / f"evaluation-{split}.json"

    def maps_file(self, split: str) -> Path:
        """Where the model sees classes in a few images of a split, for reports."""
        return self.path / f"maps-{split}.npz"

    def location_file(self, split: str) -> Path:
        """How much of its maps lies on the things they should show, for every present class of a split."""
        return self.path / f"location-{split}.npz"

    def located_maps_file(self, split: str) -> Path:
        """Maps of a few images of a split that a figure shows."""
        return self.path / f"located-maps-{split}.npz"

    @property
    def missing_file(self) -> Path:
        """Training labels that are likely missing, for reports."""
        return self.path / "missing-labels.npz"

    @property
    def thresholds_file(self) -> Path:
        """Calibration and thresholds of every class."""
        return self.path / "thresholds.json"

    @property
    def given_answers_file(self) -> Path:
        """Reviewers' answers that the run was trained with, as they were then."""
        return self.path / "given-answers.csv"

    @property
    def answers_file(self) -> Path:
        """What reviewers of this run answered."""
        return self.path / "answers.csv"

    @property
    def complete_file(self) -> Path:
        """Images of which reviewers of this run answered every class."""
        return self.path / "complete.csv"

    @property
    def review_scores_file(self) -> Path:
        """The scores of every training image, for review."""
        return self.path / "review-scores.npy"

    @property
    def cost_file(self) -> Path:
        """Seconds and peak memory."""
        return self.path / "cost.json"


CONTENTS = {
    "weights_identity": "a weights file",
    "expected_identity": "a file of expected positives",
    "prior_identity": "a file of a prior",
}
"""What run.json says of the content of files that the configuration only names."""
REPLACE = (f"replace it ({param('force', True)})", f"choose another {param('out')}")
"""What to do about a run that is in the way."""
ORACLES = ("bce", "bce-ls", "iun")
"""Methods that see hidden labels: for runs of older versions, whose results do not say so."""


def saw_hidden_labels(result: dict[str, Any] | None, method: str) -> bool:
    """Whether a run's method was an oracle, which sees the labels that others do not."""
    return bool((result or {}).get("oracle", method.partition("+")[0] in ORACLES))


class Run(RunFiles):
    """A run: what is in its folder, and what it was trained on.

    The one way to open a run. What needs the data or the model imports them when it is called.
    """

    @classmethod
    def open(cls, path: str | Path, data: Path | None = None) -> Self:
        """A finished run; refuses a folder that is no run, and a run that is not finished."""
        run = cls(Path(path), data)
        run.require_finished()
        return run

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.result_file.is_file()

    def require_finished(self) -> None:
        """Raise unless this is a run that came to its end."""
        self.metadata()
        if not self.finished:
            resume = command("train", "...", resume=True)
            raise RunError(f"{self.path} is not finished", f"go on with it by {resume}", what=self.path)

    def begin(
        self, config: TrainConfig, about: dict[str, Any], *, resume: bool, force: bool, answers: bytes = b""
    ) -> None:
        """Make the folder, or take up a run of the same configuration; nothing is overwritten unasked.

        ``answers`` is the content of given-answers.csv, if the run is trained with some.
        """
        if self.goes_on(config, about, resume=resume, force=force):
            return
        if force and self.path.exists():
            self._clear()
        self.path.mkdir(parents=True, exist_ok=True)
        if answers:
            self.given_answers_file.write_bytes(answers)
        else:  # of a run that was killed when it had just begun
            self.given_answers_file.unlink(missing_ok=True)
        write_json(self.path / "run.json", about)
        configuration.save(config, self.config_file)

    def goes_on(self, config: TrainConfig, about: dict[str, Any], *, resume: bool, force: bool) -> bool:
        """Whether there is a run to go on with; refuses what is in the way, and writes nothing."""
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
        if self.path.exists() and not self._replaceable(force):
            raise RunError(
                f"{self.path} exists and is not a run", f"choose another {param('out')}", "remove it yourself"
            )
        return False

    def _clear(self) -> None:
        """Delete the run, but not what people have answered."""
        for item in self.path.iterdir():
            if item.is_dir() and not item.is_symlink():
                shutil.rmtree(item)
            elif item.name not in PEOPLES_WORK:
                item.unlink()

    def _replaceable(self, force: bool) -> bool:
        """Whether nothing but a run would be lost: ``force`` must not delete a folder of photos."""
        if not self.path.is_dir():
            return False
        names = {item.name for item in self.path.iterdir()}
        begun = {"run.json", "run.json.partial", "config.toml.partial", "given-answers.csv", *PEOPLES_WORK}
        just_begun = names <= begun  # killed at once
        return just_begun or (force and "run.json" in names)

    def refuse_other_data(self, about: dict[str, Any]) -> None:
        """Raise if a run that is there was begun on other data than ``about`` names."""
        if not self.config_file.exists():
            return
        before = self.metadata()
        old, new = before["data_digest"], about["data_digest"]
        other = [name for name in sorted({*old} | {*new}) if old.get(name) != new.get(name)]
        if other == ["train"] and (before.get("answers") or about.get("answers")):
            raise RunError(
                f"{self.path} was begun with other answers ({_answers(before)}) than these "
                f"({_answers(about)}), or on other data",
                "resume it with those it was begun with"
                + (f" ({param('answers', self.given_answers_file)})" if before.get("answers") else ""),
                *REPLACE,
            )
        if other:
            moved = before["data"] != about["data"]
            where = (
                f"{before['data']}, not {about['data']}" if moved else f"{about['data']} has changed since"
            )
            raise RunError(
                f"{self.path} was begun on other data ({where}; different: {', '.join(other)})",
                "resume it on the data it was begun on",
                *REPLACE,
            )

    def _refuse_other(self, config: TrainConfig, about: dict[str, Any]) -> None:
        self.refuse_other_data(about)  # first: other data may well make another configuration
        self._refuse_other_config(config)
        before = self.metadata()
        for key, what in CONTENTS.items():  # runs of older versions do not have them
            if key in before and before[key] != about.get(key):
                raise RunError(
                    f"{self.path} was begun with {what} of the same name, but of other content",
                    "bring the old one back",
                    *REPLACE,
                )

    def _refuse_other_config(self, config: TrainConfig) -> None:
        before = self.config()
        if before != config:
            raise RunError(
                f"{self.path} was begun with another configuration ({_difference(before, config)})",
                "resume it with the settings it was begun with",
                *REPLACE,
            )

    def config(self) -> TrainConfig:
        """The configuration the run was begun with."""
        if not self.config_file.is_file():
            raise RunError(
                f"{self.path} is not a run (it has no config.toml)", f"make one with {command('train')}"
            )
        if not self.config_file.stat().st_size:
            raise RunError(f"{self.config_file} is empty", *BRING_BACK, what=self.config_file)
        try:
            return configuration.load(TrainConfig, self.config_file)
        except ConfigError as error:  # not what the user gave: the file has changed since the run wrote it
            why = error.__cause__ or error
            raise RunError(f"{self.config_file} cannot be read ({why})", *BRING_BACK) from error

    def metadata(self) -> dict[str, Any]:
        """What run.json says: data, classes, versions, command."""
        if not (self.path / "run.json").is_file():
            raise RunError(
                f"{self.path} is not a run (it has no run.json)", f"make one with {command('train')}"
            )
        return read_json(self.path / "run.json")

    def data_name(self, split: str) -> str:
        """The data it was trained on, for a message: its folder, and how one of its splits begins."""
        about = self.metadata()
        return f"{about['data']}, {split} {about['data_digest'].get(split, 'missing')[:8]}"

    def cost(self) -> dict[str, Any]:
        """Seconds and bytes of peak memory; empty for a run of an older version."""
        return read_json(self.cost_file, "remove it") if self.cost_file.is_file() else {}

    def result(self) -> dict[str, Any]:
        """The final numbers of a finished run."""
        self.require_finished()
        return read_json(self.result_file)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of its classes."""
        return tuple(self.metadata()["classes"])

    @property
    def data_folder(self) -> Path:
        """Where its prepared data is."""
        return self.moved or Path(self.metadata()["data"])

    def data(self) -> "Prepared":
        """Its prepared data as it saw it: with the reviewers' answers that it was trained with, if any."""
        from sparselabel.data.answers import read_answers, with_answers
        from sparselabel.data.dataset import open_prepared

        folder, given = self.data_folder, self.given_answers_file
        if self.moved is None and not folder.exists():
            raise RunError(
                f"the data of {self.path} is no longer in {folder}", f"say where it is now ({param('data')})"
            )
        data = open_prepared(folder)
        if data.classes != self.classes:
            raise RunError(f"{folder} has other classes than the data that {self.path} was trained on")
        return with_answers(data, read_answers(given), str(given)) if given.is_file() else data

    def split(self, name: str) -> "PreparedSplit":
        """A split of its data; refuses one that has changed since training."""
        part = self.data().split(name)
        if part.digest != self.metadata()["data_digest"].get(name):
            raise RunError(
                f"split {name!r} of {self.data_folder} is not what {self.path} was trained with",
                "prepare it as it was",
                "train again",
            )
        return part

    @cached_property
    def model(self) -> "Classifier":
        """Its trained classifier, in evaluation mode on the CPU."""
        from sparselabel.inference.scorer import load_classifier

        return load_classifier(self)


def _answers(about: dict[str, Any]) -> str:
    """How many answers a run has, in words."""
    count = about.get("answers", 0)
    return counted(count, "answer") if count else "none"


def _difference(before: TrainConfig, now: TrainConfig) -> str:
    old, new = flat_settings(asdict(before)), flat_settings(asdict(now))
    changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{param(name)} was {old.get(name)}, not {new.get(name)}" for name in changed)


def flat_settings(values: dict[str, Any], table: str = "") -> dict[str, Any]:
    """Nested settings by their full names, as ``head.epochs``."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{table}{key}"
        flat |= flat_settings(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat
