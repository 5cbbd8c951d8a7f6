"""Where the method's memories of every picture are, in words that users know."""

from sparselabel.config import Machine
from sparselabel.errors import ConfigError, listing
from sparselabel.losses.base import Method
from sparselabel.losses.memory.row_file import RowsInFile
from sparselabel.losses.memory.row_store import RowsInRam
from sparselabel.resources import in_words
from sparselabel.training.logger import Log


def files_of(method: Method) -> list[RowsInFile]:
    """The memories that are kept in files, also those that are not written before the warm-up is over."""
    return [
        memory
        for part in method.modules()
        for memory in vars(part).values()
        if isinstance(memory, RowsInFile)
    ]


def in_ram(method: Method) -> int:
    """Bytes of the memories in RAM when all are filled; every checkpoint holds them."""
    kept = {
        id(memory): memory.rows * memory.row_bytes
        for part in method.modules()
        for memory in vars(part).values()
        if isinstance(memory, RowsInRam)
    }
    return sum(kept.values())


def say_where(method: Method, machine: Machine, log: Log) -> None:
    """Name the files and their sizes; and that RAM was asked for in vain, if the run was begun with files."""
    files = files_of(method)
    if not files:
        return
    log.say(f"kept in files of the run: {listing(map(_in_words, files))}")
    if machine.memories == "ram":
        log.say("they stay there, where the run was begun with them: --memories ram is for new runs")


def refuse_best_start(method: Method) -> None:
    """Raise if a phase is to start from the best epoch, which files do not have."""
    files = files_of(method)
    if files:
        raise ConfigError(
            f"{_name(files[0])} are kept in a file (too large for RAM, or --memories file), which has the "
            "last epoch only: the full phase can start from there (--full.start last), not from the best"
        )


def _in_words(memory: RowsInFile) -> str:
    return f"{_name(memory)} ({in_words(memory.bytes)})"


def _name(memory: RowsInFile) -> str:
    """Running scores, heat maps, ...: its file is called so, with the process that it is of after it."""
    return memory.path.stem.rsplit("-", 3)[0].replace("-", " ")
