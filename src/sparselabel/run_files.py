"""What a run leaves on the disk, and where.

    RUN/config.toml        the resolved configuration        RUN/run.json     data, classes, versions, command
    RUN/metrics.jsonl      a line an epoch                   RUN/checkpoints/ the newest and the best epoch
    RUN/watched/           a few pictures, epoch by epoch    RUN/memory/      memories too large for RAM
    RUN/model.safetensors  the best epoch's classifier       RUN/result.json  final numbers
    RUN/expected.json      expected positives, where they were estimated before training
    RUN/prior.json         how often each class is there, where a method is told
    RUN/cost.json          seconds and peak memory           RUN/scores-SPLIT.npz  scores of val and test
    RUN/evaluation-SPLIT.json, location-SPLIT.npz, written by evaluate
    RUN/maps-SPLIT.npz, missing-labels.npz, by report        RUN/located-maps-SPLIT.npz, by figure
    RUN/thresholds.json    calibration and thresholds of every class, from validation
    RUN/given-answers.csv  reviewers' answers it was trained with
    RUN/answers.csv        what reviewers of this run answered: people's work, which --force leaves alone
    RUN/review-scores.npy  scores of the training pictures, for review

A run with result.json is finished.
"""

from dataclasses import dataclass
from pathlib import Path

PEOPLES_WORK = ("answers.csv", "complete.csv")
"""Files of a run that no program could make again."""


@dataclass(frozen=True)
class RunFiles:
    """The paths of a run."""

    path: Path

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
        """Scores and maps of a few pictures, a file an epoch."""
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
        """The scores of every picture of a split."""
        return self.path / f"scores-{split}.npz"

    def evaluation_file(self, split: str) -> Path:
        """The measures of a split."""
        return self.path / f"evaluation-{split}.json"

    def maps_file(self, split: str) -> Path:
        """Where the model sees classes in a few pictures of a split, for reports."""
        return self.path / f"maps-{split}.npz"

    def location_file(self, split: str) -> Path:
        """How much of its maps lies on the things they should show, for every present class of a split."""
        return self.path / f"location-{split}.npz"

    def located_maps_file(self, split: str) -> Path:
        """Maps of a few pictures of a split that a figure shows."""
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
        """Pictures of which reviewers of this run answered every class."""
        return self.path / "complete.csv"

    @property
    def review_scores_file(self) -> Path:
        """The scores of every training picture, for review."""
        return self.path / "review-scores.npy"

    @property
    def cost_file(self) -> Path:
        """Seconds and peak memory."""
        return self.path / "cost.json"
