"""``sparselabel.compare``: train several methods on one data set. ``Comparison``: the result."""

import html
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict

from sparselabel.comparison.from_recipe import FromRecipe, asked_for, notes_on
from sparselabel.comparison.grid import CHOOSE, Varied
from sparselabel.comparison.planned_runs import Outcome, PlannedRun, RunsCallback, note_on_preset, plan_runs
from sparselabel.comparison.ray_runs import Cluster
from sparselabel.comparison.result_tables import (
    Cell,
    Sheet,
    difference_columns,
    draw_comparison,
    sheet_of,
    table_columns,
    write_by_labels,
    write_latex,
    write_markdown,
    write_table,
)
from sparselabel.comparison.runner import check_all, error_file, machine_here, train_all
from sparselabel.comparison.runs_display import runs_display
from sparselabel.comparison.staged_selection import first_stage, refuse_stages, second_stage
from sparselabel.comparison.summary import (
    BASELINE,
    Pair,
    Row,
    TestDraws,
    pairs_of,
    rows_of,
    with_differences,
    with_intervals,
    with_labels,
)
from sparselabel.config import Handling, Recipe, TrainConfig, configure
from sparselabel.config import load as load_config
from sparselabel.errors import ConfigError, DataError, RunError, SparselabelError, command, listing, param
from sparselabel.file_formats import read_json, read_text, reading
from sparselabel.files import BRING_BACK, write_json
from sparselabel.progress import first_process, progress_bar
from sparselabel.run import Run, flat_settings
from sparselabel.schema import Count

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from sparselabel.data.dataset import Dataset

INDEX = "comparison.json"
"""What was compared, in the folder of a comparison."""
NONE = RunsCallback()


def compare(
    data: "Dataset | str | Path",
    methods: Sequence[str] | None = None,
    *,
    out: str | Path = "runs/compare",
    seeds: int | Sequence[int] = 1,
    label_seeds: int | Sequence[int] | None = None,
    annotations: Sequence[str] = (),
    choose: Mapping[str, Sequence[Any]] | Sequence[Varied] | None = None,
    staged: bool | None = None,
    vary: Mapping[str, Sequence[Any]] | Varied | None = None,
    against: str | None = None,
    config: TrainConfig | str | Path | None = None,
    recipe: str | FromRecipe | None = None,
    cluster: str | None = None,
    cluster_cores: int = 1,
    command: Sequence[str] = (),
    **settings: Any,
) -> "Comparison":
    """Train several methods on the same data, and compare them on its test images.

    Finished runs in ``out`` are skipped, stopped ones resumed. A run that fails does not stop the others:
    it is in ``Comparison.failed``.

    Parameters
    ----------
    data
        Prepared data, or its folder.
    methods
        The methods; each takes those settings that it has.
    out
        Folder of the runs and the tables.
    seeds
        The number of seeds, counted from 0, or a list of seeds.
    label_seeds
        Number of draws of observed labels, or their seeds: all runs are repeated on each. Labels are hidden
        as the preparation did, which needs full labels; the preparation's own seed gives the data itself.
    annotations
        Kinds of annotation to compare, each with all methods, simulated from the data's full labels: a value
        of ``sparsify`` and its settings, as in ``"single-positive,prefer=larger"``.
        ``"budget,annotate=I/SP,budget=0.02/0.05"`` are four.
    choose
        Values of settings to choose from by validation: ``{"head.lr": [1e-2, 1e-3]}``.
    staged
        Choose in two stages: first train the head alone, on stored features, with all its settings; then
        fine-tune with the chosen ones only. Default: as in the recipe, if its choices are used.
    vary
        One setting and its values, a table row for each: ``{"settings.momentum": [0.6, 0.9]}``.
    against
        The method that the table compares the others with; by default ``an``.
    config
        The configuration of all runs, or a TOML file with it; keywords change it.
    recipe
        Name of a published table's recipe: its configuration, methods and choices where none are given, and
        its numbers beside yours.
    cluster
        Address of a Ray cluster to send the runs to, with ``cluster_cores`` cores each.
    cluster_cores
        Cores of a run on the cluster.
    command
        The command to record in run.json.
    **settings
        Fields of ``TrainConfig`` and ``Machine`` (``backbone="resnet18"``, ``head={"epochs": 5}``,
        ``workers=4``), ``quiet`` and ``tensorboard``; any other keyword is a setting of the methods.
    """
    from sparselabel.data.prepared_files import open_prepared
    from sparselabel.data.redraw_labels import kinds_of_annotation

    if isinstance(methods, str):
        problem = f"{param('methods')} is a list of names, not {methods!r}"
        raise ConfigError(problem, f"give [{methods!r}]", what="methods", value=methods)
    loaded = FromRecipe.load(recipe) if isinstance(recipe, str) else recipe
    if isinstance(config, str | Path):
        config = load_config(TrainConfig, Path(config))
    base, machine, handling = configure(settings, config or (loaded.config if loaded and recipe else None))
    _refuse_handling(handling)
    named, chosen, varied, base = asked_for(base, methods, _choices(choose), _varied(vary), loaded)
    if against is not None and against not in named:
        raise ConfigError(
            f"{param('against', against)} is none of the methods: {listing(named)}",
            what="against",
            value=against,
            allowed=list(named),
        )
    numbers = _numbers("seeds", seeds)
    draws = [] if label_seeds is None else _numbers("label_seeds", label_seeds)
    folder = Path(out)
    kinds = kinds_of_annotation(annotations)
    planned = plan_runs(base, named, numbers, folder, chosen, varied, draws, kinds)
    heads: list[PlannedRun] = []
    if staged is None:
        staged = loaded is not None and choose is None and loaded.recipe.compare.staged
    if staged:
        refuse_stages(base, chosen, varied)
        head_alone, of_head, inside = first_stage(base, chosen, folder)
        heads = plan_runs(head_alone, named, numbers, inside, of_head, varied, draws, kinds)
    ray = None if cluster is None else Cluster(cluster, cluster_cores)
    show = (lambda total: nullcontext(NONE)) if handling.quiet else runs_display
    prepared = open_prepared(Path(data)) if isinstance(data, str | Path) else data
    if prepared.temporary is not None:
        prepared = prepared.keep(Path(f"{out}-data"))
    _refuse_other_comparison(folder, prepared, planned)
    failed: list[Outcome] = []
    if heads:
        check_all(prepared, planned, machine_here(machine, ray), folder)
        with show(len(heads)) as callback:
            first = train_all(prepared, heads, machine, callback, command, ray, handling)
        planned, failed = second_stage(planned, first)
    with show(len(planned)) as callback:
        outcomes = train_all(prepared, planned, machine, callback, command, ray, handling)
        lacking = _evaluate_maps(prepared, outcomes, machine.workers, handling.quiet)
    comparison = Comparison(
        folder,
        (*outcomes, *failed),
        label_counts(prepared, kinds),
        None if varied is None else varied.name,
        against or BASELINE,
        None if loaded is None else loaded.recipe,
        (
            *notes_on(prepared, base, loaded),
            *note_on_preset(named, base.settings.get("preset")),
            *lacking,
        ),
        str(prepared.folder),
    )
    if first_process():
        comparison.save()
        comparison.write()
    return comparison


class RunFile(TypedDict):
    """A run in comparison.json."""

    folder: str
    method: str
    seed: Count
    label_seed: Count | None
    annotation: str
    value: str
    chosen: list[tuple[str, str]]


class ComparisonFile(TypedDict):
    """comparison.json."""

    data: str
    labels: tuple[dict[str, Count], Count]
    varied: str | None
    against: str
    recipe: Recipe | None
    notes: list[str]
    runs: list[RunFile]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs of several methods on one data set: test results, and differences beyond chance.

    A notebook shows it as a table. ``labels`` is how many labels training observed, by kind of annotation (""
    for the data's own), and how many there are.
    """

    folder: Path
    outcomes: tuple[Outcome, ...]
    labels: tuple[dict[str, int], int]
    varied: str | None = None
    against: str = BASELINE
    recipe: Recipe | None = None
    notes: tuple[str, ...] = ()
    data: str = ""
    _draws: TestDraws = field(default_factory=TestDraws)
    _lacking: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Open a finished comparison by its folder."""
        file = Path(folder) / INDEX
        if not file.is_file():
            problem = f"{folder} is not a finished comparison (it has no {INDEX})"
            raise RunError(problem, f"make one with {command('compare')}", what=Path(folder))
        index = read_json(file, ComparisonFile)
        with reading(file, *BRING_BACK, error=RunError):  # folders of names that no folder can have
            outcomes = tuple(_outcome(Path(folder), run) for run in index["runs"])
        return cls(
            Path(folder),
            outcomes,
            index["labels"],
            index["varied"],
            index["against"],
            index["recipe"],
            tuple(index["notes"]),
            index["data"],
        )

    def save(self) -> None:
        """Write what ``open`` reads."""
        runs = [
            {
                "folder": os.path.relpath(outcome.run.path, self.folder),
                "method": outcome.run.method,
                "seed": outcome.run.seed,
                "label_seed": outcome.run.label_seed,
                "annotation": outcome.run.annotation,
                "value": outcome.run.value,
                "chosen": [list(pair) for pair in outcome.run.chosen],
            }
            for outcome in self.outcomes
        ]
        index = {
            "data": self.data,
            "labels": list(self.labels),
            "varied": self.varied,
            "against": self.against,
            "recipe": None if self.recipe is None else asdict(self.recipe),
            "notes": list(self.notes),
            "runs": runs,
        }
        write_json(self.folder / INDEX, index)

    @cached_property
    def rows(self) -> list[Row]:
        """A row for each kind of annotation, method and varied value, with what validation chose."""
        rows = with_labels(rows_of(self.outcomes), *self.labels)
        rows = with_intervals(rows, self._draws)
        return with_differences(rows, self.against, self._lacking.append, self._draws)

    @cached_property
    def pairs(self) -> list[Pair]:
        """All pairs of methods on the same labels, and of kinds of annotation with the same method."""
        return pairs_of(self.rows, self._lacking.append, self._draws)

    @property
    def failed(self) -> list[Outcome]:
        """The runs that failed."""
        return [outcome for outcome in self.outcomes if outcome.result is None]

    def table(self) -> "DataFrame":
        """All numbers, a row per method, as in table.csv: metrics in percent."""
        return _frame(table_columns(self.rows, self.varied, self.recipe))

    def differences(self) -> "DataFrame":
        """Each pair of rows: test mAP of ``method`` minus that of ``other`` in points, its 95 % interval from
        ``low`` to ``high``, and whether 0 is outside of it."""  # noqa: D209
        self._refuse_untested()
        return _frame(difference_columns(self.pairs, self.varied))

    def figure(self) -> "Figure":
        """The test mAP of each method with its 95 % interval, and its runs as points."""
        self._refuse_untested()
        return draw_comparison(self.rows, self.varied)

    def _refuse_untested(self) -> None:
        if not any(row.test for row in self.rows):
            raise DataError(
                f"no run of {self.folder} has a test mAP, of which intervals and differences are",
                "give labeled test images, as Dataset.from_arrays(images, labels, test=(images, labels))",
                "take comparison.table(), which has the validation",
                what="test",
            )

    def sheet(self) -> Sheet:
        """The main columns, as the screen shows them."""
        rows = self.rows  # first: it finds out what is lacking
        return sheet_of(rows, self.varied, self.against, self.recipe, [*self.notes, *self._lacking])

    def write(self, folder: Path | None = None) -> None:
        """Write table.csv, table.md, table.tex and table-by-labels.csv."""
        folder, sheet = folder or self.folder, self.sheet()
        write_table(self.rows, folder / "table.csv", self.varied, self.recipe)
        write_by_labels(self.rows, folder / "table-by-labels.csv", self.varied)
        write_markdown(sheet, folder / "table.md")
        write_latex(sheet, folder / "table.tex")

    def best_runs(self) -> list[Path]:
        """For each row, the run with its chosen settings and the first seed.

        The first run is that of ``against``, with which a report compares the others. Oracles come last.
        """
        ordered = sorted(self.rows, key=lambda row: (row.method != self.against, row.oracle))
        return [next(iter(row.paths.values())) for row in ordered if row.paths]

    def __repr__(self) -> str:
        methods = listing(dict.fromkeys(outcome.run.method for outcome in self.outcomes))
        return f"Comparison({str(self.folder)!r}: {methods}; {len(self.outcomes)} runs)"

    def _repr_html_(self) -> str:
        sheet = self.sheet()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in sheet.columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in line)}</tr>" for line in sheet.lines
        )
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in sheet.notes)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def label_counts(data: "Dataset", annotations: Sequence[str] = ()) -> tuple[dict[str, int], int]:
    """How many labels training observes, by kind of annotation, and how many are known."""
    from sparselabel.data.redraw_labels import redraw_labels

    kinds = {kind: redraw_labels(data, annotation=kind) for kind in annotations} or {"": data}
    observed = {kind: one.train.observed.known for kind, one in kinds.items()}
    return observed, data.train.truth.known


def _refuse_other_comparison(folder: Path, data: "Dataset", planned: Sequence[PlannedRun]) -> None:
    """Raise if the folder has runs of another comparison, as its tables would be replaced.

    Runs of this comparison are checked one by one; others must have the same data and settings, apart from
    what is compared.
    """
    if not (folder / INDEX).is_file():
        return
    index, known = read_json(folder / INDEX, ComparisonFile), {run.path for run in planned}
    compared = {"method", "seed", *(name for run in planned for name, _ in run.chosen)}
    wanted = flat_settings(asdict(planned[0].config))
    test = data.splits["test"].digest if "test" in data.splits else None
    for one in index["runs"]:
        run = Run(folder / one["folder"])
        if run.path in known or not run.config_file.is_file():
            continue
        apart = compared | {name for name, _ in one["chosen"]} | {index["varied"]}
        fields = {name.replace("-", "_") for name in apart if name}
        there = flat_settings(asdict(run.config()))
        differ = {
            name: f"{param(name)} is {there.get(name)} there, not {wanted.get(name)}"
            for name in {**there, **wanted}
            if there.get(name) != wanted.get(name) and not name.startswith("settings.") and name not in fields
        }
        if run.metadata()["data_digest"].get("test") != test:
            differ["data"] = "other test images or labels"
        if differ:
            raise RunError(
                f"{folder} holds another comparison, with {one['folder']}: {listing(differ.values())}",
                f"choose another {param('out')}",
                "compare with the same settings",
                what=run.path,
                value=list(differ),
            )


def _evaluate_maps(
    data: "Dataset", outcomes: Sequence[Outcome], workers: int | None, quiet: bool
) -> list[str]:
    """Evaluate the runs' maps of the test images by boxes or masks, if there are any; returns failures."""
    from rich.console import Console

    from sparselabel.comparison.evaluate_maps import evaluate_maps, has_places, maps_to_evaluate

    if not first_process() or not has_places(data):
        return []
    groups = maps_to_evaluate([Run(one.run.path, data) for one in outcomes], "test")
    total, lacking = len(groups) * len(data.splits["test"]), []
    with progress_bar(Console(stderr=True, quiet=quiet), total, "maps of test images") as bar:
        for group in groups:
            try:
                evaluate_maps(group, "test", workers, bar.advance)
            except SparselabelError as error:
                lacking.append(f"no mAP-loc for {listing(run.path.name for run in group)}: {error.problem}")
    return lacking


def _outcome(folder: Path, run: "RunFile") -> Outcome:
    """The outcome of a run from its files: finished, or failed with the error beside it."""
    path = folder / run["folder"]
    saved_run = Run(path)
    config = saved_run.config() if saved_run.config_file.exists() else TrainConfig(method=run["method"])
    chosen = tuple(run["chosen"])
    draw = run["label_seed"], run["annotation"]
    planned = PlannedRun(run["method"], run["seed"], config, path, run["value"], chosen, *draw)
    if saved_run.finished:
        return Outcome(planned, saved_run.result())
    file = error_file(planned)
    text = read_text(file, error=RunError).strip() if file.is_file() else f"{path} is not finished"
    return Outcome(planned, None, RunError(text))


def _numbers(name: str, given: int | Sequence[int]) -> list[int]:
    numbers = list(range(given)) if isinstance(given, int) else list(given)
    if not numbers or min(numbers) < 0:
        problem = f"{param(name)} must be a number of them, at least 1, or a list of some from 0 up"
        raise ConfigError(problem, what=name, value=given)
    return numbers


def _choices(choose: Mapping[str, Sequence[Any]] | Sequence[Varied] | None) -> list[Varied] | None:
    if isinstance(choose, Mapping):
        return [Varied.of([name, *values], CHOOSE) for name, values in choose.items()]
    return None if choose is None else list(choose)


def _varied(vary: Mapping[str, Sequence[Any]] | Varied | None) -> Varied | None:
    if not isinstance(vary, Mapping):
        return vary
    if len(vary) != 1:
        raise ConfigError(f"{param('vary')} takes one setting, not {len(vary)}", what="vary")
    [(name, values)] = vary.items()
    return Varied.of([name, *values])


def _refuse_handling(handling: Handling) -> None:
    """Raise for handling that a comparison does not have: it always resumes its runs."""
    for name in ("force", "dry_run"):
        if getattr(handling, name):
            raise ConfigError(f"a comparison has no {param(name)}", f"leave {param(name)} out", what=name)


def _frame(columns: dict[str, list[Cell]]) -> "DataFrame":
    try:
        import pandas as pd
    except ImportError as error:
        raise ConfigError("the table needs pandas", "pip install 'sparselabel[pandas]'", what="pandas") from (
            error
        )
    return pd.DataFrame(columns)
