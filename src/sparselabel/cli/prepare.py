"""``sparselabel prepare``: read a data set, check it and write the prepared form.

Every reader is a command: its options are the reader's, and its help is the reader's docstring. Importing
this module imports them all.
"""

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from sparselabel.cli.arguments import AS_FLAGS, FROM_FILE, FromFile
from sparselabel.cli.help import HELP_FLAGS
from sparselabel.cli.terminal import progress
from sparselabel.config import Preparation
from sparselabel.data.readers import READERS, options_of, reader
from sparselabel.errors import DataError, counted, param

if TYPE_CHECKING:
    from sparselabel.data.readers.raw_dataset import RawDataset

Flat = Parameter(name="*")
DEFAULT = Preparation()


@dataclass(frozen=True)
class Target:
    """Where prepared data goes, and how it is prepared.

    Parameters
    ----------
    out
        Folder to write.
    force
        Replace what is in --out.
    cluster
        Address of a Ray cluster (`auto` for the one that this machine belongs to) that reads the images.
    """

    out: Path
    force: bool = False
    cluster: str | None = None
    how: Annotated[Preparation, Flat] = DEFAULT
    given: Annotated[FromFile, Flat] = FROM_FILE


To = Annotated[Target, Flat]
app = App(name="prepare", help_flags=HELP_FLAGS)


def write(read: Callable[[], "RawDataset"], to: Target) -> None:
    """Read, check, write and describe a data set; an occupied folder is refused before reading."""
    from sparselabel.cli.data import describe
    from sparselabel.data.prepare import prepare
    from sparselabel.data.split_writer import refuse_taken

    refuse_taken(to.out, to.force)
    if to.how.scores is not None and not Path(to.how.scores).is_file():
        problem = f"{param('scores', to.how.scores)} is not a file"
        raise DataError(problem, "give a CSV, TSV, Parquet or .npz file")
    source = read()
    everything = sum(len(split.labels) for split in source.splits.values())
    with progress(everything, f"checking {counted(everything, 'image')}") as advance:
        describe(prepare(source, to.out, to.how, force=to.force, report=advance, cluster=to.cluster))


@app.command
def scenes(*, train: int = 3000, test: int = 1000, size: int = 96, seed: int = 0, to: To) -> None:
    """The built-in data: drawn images with several objects each, fully labeled.

    Example: `sparselabel prepare scenes --train 2000 --test 500 --sparsify single-positive --out scenes`

    Parameters
    ----------
    train
        Number of training images (some become the validation split).
    test
        Number of test images.
    size
        Side of an image in pixels.
    seed
        Random seed of the images.
    """
    from sparselabel.data.scenes import generate as maker

    def draw() -> "RawDataset":
        with progress(train + test, "drawing scenes") as advance:
            return maker.make(to.out, train=train, test=test, size=size, seed=seed, progress=advance)

    write(draw, to)


def _command_of(name: str) -> Callable[..., None]:
    """A command with the options and the help of a reader, and those of ``Target``."""
    read, options = reader(name), options_of(name)
    scans = options.pop("cluster", None) is not None  # images that are in no folder

    def command(source: Path, /, *, to: Target, **given: Any) -> None:
        write(partial(read, source, **given, **({"cluster": to.cluster} if scans else {})), to)

    source, to, _ = inspect.signature(command).parameters.values()
    command.__signature__ = inspect.Signature([source, *options.values(), to])  # type: ignore[attr-defined]
    command.__annotations__ = {one: option.annotation for one, option in options.items()}
    command.__annotations__ |= {"source": Path, "to": To}
    command.__doc__ = re.sub(r"`Dataset\.from_files\(.*\)`", _in_shell, inspect.getdoc(read) or "")
    return command


def _in_shell(example: re.Match[str]) -> str:
    """The command for a call from Python."""
    call: Any = ast.parse(example[0].strip("`"), mode="eval").body
    given = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    words = " ".join(ast.literal_eval(word) for word in call.args)
    return AS_FLAGS.command(f"sparselabel prepare {words}", given | {"out": "prepared"})


for _format in READERS:
    app.command(_command_of(_format), name=_format)
