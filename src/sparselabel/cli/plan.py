"""``sparselabel plan``: which annotations to buy."""

import shlex
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sparselabel.cli.arguments import FROM_FILE_OR_RECIPE, GIVEN_FLAGS, FromFileOrRecipe
from sparselabel.cli.compare import Listed
from sparselabel.cli.terminal import exit_if_failed, first_process, plain_console, progress
from sparselabel.cli.train import CONFIG, MACHINE, Flat
from sparselabel.config import Annotation, Machine, TrainConfig
from sparselabel.errors import ConfigError

if TYPE_CHECKING:
    from sparselabel.plan.budget import Budget
    from sparselabel.plan.candidate_runs import Candidate
    from sparselabel.plan.plan_page import About


@dataclass(frozen=True)
class PlannedTraining(TrainConfig):
    """Defaults of a plan: a head on a small network's features, computed once."""

    method: Annotated[str, Parameter(show=False)] = CONFIG.method  # a plan has two, with flags of their own
    backbone: str = "mobilenetv2_100"
    frozen: bool = True


PLANNED = PlannedTraining()


def plan(
    data: Path,
    /,
    *,
    budget: float,
    out: Path = Path("plan"),
    images: int | None = None,
    kinds: Annotated[list[Annotation] | None, Listed] = None,
    fractions: Annotated[list[float] | None, Listed] = None,
    draws: int = 3,
    answer_seconds: float = 1.0,
    point_seconds: float = 1.4,
    box_seconds: float = 6.0,
    answer_method: str = "csl-i",
    spatial_method: str = "patchml",
    config: Annotated[PlannedTraining, Flat] = PLANNED,
    machine: Annotated[Machine, Flat] = MACHINE,
    given: Annotated[FromFileOrRecipe, Flat] = FROM_FILE_OR_RECIPE,
) -> None:
    """Find out which annotations to buy: answers alone, or with points or boxes, at a budget of hours.

    It needs a small sample whose labels, points or boxes are all known. It simulates what each kind of
    annotation would buy for the budget and for fractions of it, trains on that, and writes plan.html, a page
    with a recommendation, plan.csv and plan.png. Finished runs are skipped, so a stopped plan continues.

    Example: `sparselabel plan sample --budget 40 --images 100000 --out plan`

    Parameters
    ----------
    data
        Prepared data that is fully annotated: every class of every image, and boxes or points of objects.
    budget
        Hours of annotation for the training images of the data, or for --images.
    out
        Folder of the page and the runs.
    images
        Number of images that the budget is for; the sample gets as many seconds per image.
    kinds
        Kinds of annotation to try; default: I SP SB AP AB.
        I: answers alone. SP, SB: after a yes, a point on, or a box around, one object of the class. AP, AB: a
        point on, or a box around, each of them.
    fractions
        Shares of the budget to try; default: 0.125 0.25 0.5 1.
    draws
        Number of random draws of the questions; more draws tell better what is chance.
    answer_seconds
        Seconds per answer.
    point_seconds
        Seconds per point, besides its answer.
    box_seconds
        Seconds per box, besides its answer.
    answer_method
        Method that is trained on answers alone (with csl-i in ignore mode, as PatchML has it).
    spatial_method
        Method that is trained on answers with points or boxes.
    """
    from sparselabel import __version__
    from sparselabel.comparison.evaluate_maps import evaluate_maps, maps_to_evaluate
    from sparselabel.comparison.runs_display import runs_display
    from sparselabel.data.annotation_budget import KINDS, Prices
    from sparselabel.data.prepared_files import open_prepared
    from sparselabel.plan.budget import (
        FRACTIONS,
        budget_of,
        keep_budget,
        refuse_data,
        refuse_other_budget,
        validation_of,
    )
    from sparselabel.plan.candidate_runs import candidates_of, check_candidates, train_candidates
    from sparselabel.plan.plan_page import About
    from sparselabel.run import Run

    prices = Prices(answer_seconds, point_seconds, box_seconds)
    trained = with_defaults(config, GIVEN_FLAGS)
    prepared = open_prepared(data)
    tried = kinds or KINDS
    split = refuse_data(prepared, tried)
    spent = budget_of(prepared, budget, images, prices, fractions or FRACTIONS, tried)
    refuse_other_budget(spent, out)
    methods = answer_method, spatial_method
    candidates = candidates_of(prepared, spent, tried, draws, trained, methods, out / "runs")
    check_candidates(prepared, spent, candidates, machine)
    if first_process():
        keep_budget(spent, out)
    with runs_display(len(candidates)) as shown:
        failed = train_candidates(prepared, spent, candidates, machine, shown, sys.argv)
    if not first_process():
        return
    if groups := maps_to_evaluate([Run(one.run.path) for one in candidates], split):
        with progress(len(groups) * len(prepared.split(split)), f"maps, {split}") as advance:
            for group in groups:
                evaluate_maps(group, split, machine.workers, advance)
    evaluated, chosen_by = len(prepared.split(split)), validation_of(prepared)
    about = About(
        prepared.name, split, evaluated, draws, methods, trained, sys.argv, __version__, failed, chosen_by
    )
    _write(candidates, about, spent, out)
    exit_if_failed(len(failed), len(candidates))


def with_defaults(config: TrainConfig, given: Collection[str]) -> TrainConfig:
    """The configuration; any setting of fine-tuning means that the whole network is trained."""
    if "--method" in given:
        problem = f"--method {config.method} is for one run, and a plan has two methods"
        raise ConfigError(problem, "give --answer-method, --spatial-method or both")
    whole = any(flag.startswith("--finetune.") for flag in given) and "--frozen" not in given
    values = {one.name: getattr(config, one.name) for one in fields(TrainConfig)}
    return TrainConfig(**values | ({"frozen": False} if whole else {}))


def _write(candidates: "Sequence[Candidate]", about: "About", budget: "Budget", out: Path) -> None:
    """Write the page, its figure and its numbers."""
    from sparselabel.plan.plan_page import draw_plan, write_page
    from sparselabel.plan.recommendation import recommend
    from sparselabel.plan.results import results_of, write_csv

    rows = results_of(candidates, budget, about.split)
    out.mkdir(parents=True, exist_ok=True)
    write_csv(candidates, budget, about.split, out / "plan.csv")
    draw_plan(rows, about.split, out / "plan.png")
    write_page(rows, budget, about, out / "plan.html")
    console = plain_console()
    if advice := recommend(rows):
        console.print(advice.headline)
        for sentence in advice.sentences:
            console.print(sentence)
    page = shlex.quote(str(out / "plan.html"))
    console.print(f"written: {page}, plan.csv and plan.png")
