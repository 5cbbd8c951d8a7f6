"""The command ``sparselabel``: one module per verb, flags from typed functions and dataclasses.

Modules of this package import torch only inside the functions that need it, so that help is instant.
"""

import os
import re
import sys
import warnings
from os import PathLike
from pathlib import Path

from cyclopts import App, Parameter

from sparselabel.cli import (
    compare,
    data,
    demo,
    differ,
    doctor,
    evaluate,
    expect,
    export,
    figure,
    methods,
    plan,
    predict,
    recipes,
    report,
    review,
    train,
    write_labels,
)
from sparselabel.cli.arguments import AS_FLAGS, note_flags, refuse_fractions, take_file
from sparselabel.cli.help import HELP_FLAGS, ShortHelp, explained
from sparselabel.cli.terminal import printable
from sparselabel.errors import (
    DISK_FULL,
    ConfigError,
    DataWarning,
    ModelWarning,
    SparselabelError,
    is_out_of_memory,
    spelled,
)
from sparselabel.files import WRITTEN

app = App(
    name="sparselabel",
    help="""Train multi-label image classifiers from sparse annotations.

    Start with `sparselabel train photos --labels labels.csv` or, without images, `sparselabel demo`.
    """,
    version_flags=["--version"],
    help_flags=HELP_FLAGS,
    help_formatter=ShortHelp(),
    default_parameter=Parameter(negative=()),
    config=(take_file, refuse_fractions, note_flags),
    error_formatter=explained,
)
for flag in ("--help", "--version"):
    app[flag].group = "Flags"
app.suppress_keyboard_interrupt = False  # main says how to go on
app.command(
    "sparselabel.cli.prepare:app",  # imported when it is wanted: the readers take time
    name="prepare",
    help="""Read a data set, check every image, and write it in the form that training opens at once.

    Example: `sparselabel prepare table labels.csv --images photos --out prepared`
    """,
)
app.command(data.data)
app.command(write_labels.labels)
app.command(methods.methods)
app.command(recipes.recipes)
app.command(expect.expect)
app.command(train.train)
app.command(evaluate.evaluate, usage="Usage: sparselabel evaluate [OPTIONS] RUN")
app.command(predict.predict, usage="Usage: sparselabel predict [OPTIONS] RUN IMAGES...")
app.command(export.export)
app.command(compare.compare)
app.command(differ.differ)
app.command(plan.plan)
app.command(figure.app)
app.command(report.report)
app.command(review.review)
app.command(demo.demo)
app.command(doctor.doctor)


A_FILE = "a file"  # whose name the error does not tell
GIVE_AGAIN = "make room on the disk and give the command again, with --resume where it has that"


LESS_MEMORY = (
    "take smaller views (--views.size) or batches, or train in parts (--finetune.micro-batches, "
    "docs/training.md)"
)


def main() -> None:
    """Run the command; expected errors become one clear message instead of a traceback."""
    warnings.showwarning = _say_warning
    try:
        with spelled(AS_FLAGS):
            app(sys.argv[1:], result_action="return_value")
    except SparselabelError as error:
        _say("error", error.render(AS_FLAGS))
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except KeyboardInterrupt:
        again = "give the same command again (`train` with `--resume`, `compare`, `plan`)"
        kept = any(folder.exists() for folder in WRITTEN)
        _say("stopped", f"finished work is kept: {again}" if kept else "nothing new was finished")
        sys.exit(130)
    except OSError as error:
        if error.filename is None and error.errno not in DISK_FULL:
            raise  # not about a file: a defect, whose traceback helps
        where, full = _name_for_users(error.filename), error.errno in DISK_FULL
        what = "could not be written" if full else "could not be used"
        hint = GIVE_AGAIN if full else "check its name and permissions"
        disk = f" (disk {_disk_of(error.filename)})" if full and where != A_FILE else ""
        _say("error", f"{where} {what}: {error.strerror}{disk}; {hint}")
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _say("error", f"not enough memory ({_sentence(error)}): {LESS_MEMORY}")
        sys.exit(1)


def _sentence(error: Exception) -> str:
    """What was asked for, without the place in the source."""
    return str(error).partition("\n")[0].rpartition("] ")[2] or type(error).__name__


def _disk_of(file: str | bytes) -> Path:
    """Where the disk that a file is on is mounted."""
    path = Path(os.fsdecode(file)).absolute()
    return next(folder for folder in (path, *path.parents) if os.path.ismount(folder))


def _name_for_users(file: object) -> str:
    """A file by the name it will have: what is written is called .partial until it is complete."""
    if not isinstance(file, str | bytes | PathLike):
        return A_FILE
    return re.sub(r"/\.partial/(new|old)|\.partial(?=/|$)|\.[^/]+\.partial(?=\.npy$)", "", os.fsdecode(file))


def _say(kind: str, text: str) -> None:
    print(printable(f"sparselabel: {kind}: {text}"), file=sys.stderr)  # noqa: T201


def _say_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    if isinstance(message, DataWarning | ModelWarning):
        _say("warning", message.render(AS_FLAGS))
    elif issubclass(category, UserWarning):
        _say("note", f"{category.__name__}: {message}")
