"""What the readers of ``sparselabel prepare`` share: flags, and the way from reading to prepared data."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sparselabel.cli.arguments import FROM_FILE, FromFile
from sparselabel.cli.terminal import progress
from sparselabel.config import Preparation
from sparselabel.errors import DataError, counted

if TYPE_CHECKING:
    from sparselabel.data.readers.source import Source

How = Annotated[Preparation, Parameter(name="*")]
Given = Annotated[FromFile, Parameter(name="*")]
DEFAULT, GIVEN = Preparation(), FROM_FILE


def write(read: Callable[[], "Source"], out: Path, force: bool, how: Preparation) -> Any:
    """Read, check and write a data set, and say what it was; what is in the way is found before reading."""
    from sparselabel.cli.data import describe
    from sparselabel.data.folder import refuse_taken
    from sparselabel.data.prepare import prepare

    refuse_taken(out, force)
    if how.scores is not None and not Path(how.scores).is_file():
        raise DataError(f"--scores {how.scores} is not a file: give a CSV, TSV, Parquet or .npz file")
    source = read()
    everything = sum(len(split.labels) for split in source.splits.values())
    with progress(everything, f"checking {counted(everything, 'picture')}") as advance:
        prepared = prepare(source, out, how, force=force, report=advance)
    describe(prepared)
    return prepared
