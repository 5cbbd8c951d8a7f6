"""``sparselabel train``: one training run."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sparselabel.cli.given import FROM_FILE_OR_RECIPE, FromFileOrRecipe
from sparselabel.cli.terminal import first_process, plain_console
from sparselabel.config import Handling, Machine, TrainConfig
from sparselabel.errors import listing

Flat = Parameter(name="*")
Several = Parameter(consume_multiple=True)
CONFIG, MACHINE, HANDLING = TrainConfig(), Machine(), Handling()


def train(
    data: Path,
    /,
    *,
    out: Path,
    answers: Annotated[list[Path] | None, Several] = None,
    config: Annotated[TrainConfig, Flat] = CONFIG,
    machine: Annotated[Machine, Flat] = MACHINE,
    handling: Annotated[Handling, Flat] = HANDLING,
    given: Annotated[FromFileOrRecipe, Flat] = FROM_FILE_OR_RECIPE,
) -> None:
    """Train a classifier on prepared data.

    Example: `sparselabel train prepared --method an-ls --frozen --out runs/first`

    Parameters
    ----------
    data
        Prepared data, as `sparselabel prepare` wrote it.
    out
        Folder of the run.
    answers
        What reviewers answered, in one or more files of `sparselabel review`; of two answers to the same
        question the last counts. They add to the observed labels.
    """
    from sparselabel.data.answers import read_answers, with_answers
    from sparselabel.data.dataset import open_prepared

    if handling.dry_run:
        from sparselabel.cli.dry_run import show
        from sparselabel.train.dry_run import dry_run

        cost = dry_run(open_prepared(data), config, out, machine, handling, sys.argv)
        if first_process():
            show(cost)
        return
    from sparselabel.train.run import train_run

    prepared = open_prepared(data)
    if answers:
        said = [answer for file in answers for answer in read_answers(file)]
        prepared = with_answers(prepared, said, listing(answers))
    result = train_run(prepared, config, out, machine, handling, sys.argv)
    if handling.quiet or not first_process():
        return
    console = plain_console()
    which = " of the last phase" if len(config.phases) > 1 else ""
    console.print(f"best epoch{which}: {result['best_epoch']} of {result['epochs']}")
    for split in ("validation", "test"):
        if result[split] is not None:
            console.print(f"{split} {result[split]['name']}: {100 * result[split]['value']:.2f}")
    if result["recovery"] is not None:
        recovered = result["recovery"]
        found = f"model {100 * recovered['model']:.2f}"
        if recovered["estimates"] is not None:
            found += f", estimates (they contain the observed ones) {100 * recovered['estimates']:.2f}"
        console.print(f"all training labels, mAP (P3 table 2): {found}")
    console.print(f"next: sparselabel report {shlex.quote(str(out))}")
