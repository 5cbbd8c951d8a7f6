"""Mutated inputs by the thousand: each is read, or refused by an error of ours that names a file.

One case is a format and a number: ``python -m tests.fuzz --case 'scores npz' 17`` repeats it.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from sparselabel.errors import SparselabelError
from tests.fuzz.formats import FORMATS
from tests.fuzz.mutate import mutate

SECONDS = 10  # of computing, for one input
BEGIN = 600  # to import and to write the samples, where others are busy too
MEMORY = 2 << 30  # bytes, beside what a process has when it begins
IN_MEMORY = Path("/dev/shm")  # where a disk in memory is: each input is written and mended


class TooSlow(BaseException):
    """An input took longer than it may."""


@dataclass
class Sample:
    """A format's valid sample on the disk."""

    name: str
    folder: Path
    files: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        form = FORMATS[self.name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of data as small as this
            form.write(self.folder)
        with _limit():
            form.read(self.folder)  # it is valid
        self.files = sorted({file for pattern in form.damaged for file in self.folder.glob(pattern)})
        self.whole = {file: file.read_bytes() for file in self.files}
        self.names = {path.name for path in self.folder.rglob("*") if path.is_file()}

    def damaged(self, seed: int, number: int) -> tuple[Path, bytes]:
        """The file of a case, and its content."""
        random = Random(f"{seed}/{self.name}/{number}")
        file = random.choice(self.files)
        return file, mutate(random, file.name, self.whole[file])

    def fault(self, seed: int, number: int) -> str:
        """What is wrong with how a case is read: nothing, or the error and the place in our sources."""
        file, content = self.damaged(seed, number)
        return self.fault_of(file, content)

    def fault_of(self, file: Path, content: bytes | None) -> str:
        """The same, of a file's content; None: of what is there under its name."""
        try:
            error = self.refusal(file, content)
        except (Exception, TooSlow) as error:
            return _place(error)
        named = {file.name, str(self.folder), *self.names}  # or a folder of it
        if error is None or any(name in str(error) for name in named):
            return ""
        return f"no file is named: {error}"[:300]

    def refusal(self, file: Path, content: bytes | None) -> SparselabelError | None:
        """How a file's content is refused; None if it can be read. Other errors come through."""
        if content is not None:
            file.write_bytes(content)
        try:
            with _limit():
                FORMATS[self.name].read(self.folder)
        except SparselabelError as error:
            return error
        finally:
            for changed in self.files if self.name == "predictions" else [file]:  # which mends its files
                if content is None:
                    changed.unlink(missing_ok=True)
                changed.write_bytes(self.whole[changed])
        return None


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "sparselabel" in frame.filename and "/tests/" not in frame.filename]
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    return f"{type(error).__name__} at {where}: {str(error)[:120]!r}"


@contextmanager
def _limit() -> Iterator[None]:
    """Raise after a while: in Python's code, that is. What hangs in C, or waits, is ended from outside."""

    def stop(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of its own: others may be busy too
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@dataclass
class Result:
    """How many inputs of each format were read, and how many of them went wrong, where."""

    read: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    faults: dict[str, tuple[str, int]] = field(default_factory=dict)  # what and where -> its first case

    def add(self, name: str, number: int, fault: str) -> None:
        """One more input."""
        self.read[name] += 1
        if fault:
            self.wrong[name] += 1
            self.faults.setdefault(f"{name}: {fault.partition(': ')[0]}", (fault, number))

    def lines(self) -> list[str]:
        """A table."""
        rows = [f"{name:20} {self.read[name]:>10,} {self.wrong[name]:>8,}" for name in sorted(self.read)]
        total = f"{'all':20} {self.read.total():>10,} {self.wrong.total():>8,}"
        found = [f"{key} (case {number}): {fault}" for key, (fault, number) in sorted(self.faults.items())]
        return [f"{'format':20} {'inputs':>10} {'wrong':>8}", *rows, total, *found]


def work(names: Sequence[str], seed: int, first: int, step: int, last: int, report: Path) -> None:
    """Read the inputs ``first``, ``first + step``, … below ``last`` of every format in turn.

    The last line of ``report`` is the case at hand, should this process not survive it.
    """
    with tempfile.TemporaryDirectory(dir=report.parent) as folder, report.open("a") as lines:
        samples = [Sample(name, Path(folder, name.replace(" ", "-"))) for name in names]
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
        for number in range(first, last, step):
            for sample in samples:
                lines.write(json.dumps([sample.name, number]) + "\n")
                lines.flush()
                fault = sample.fault(seed, number)
                if fault:
                    lines.write(json.dumps([sample.name, number, fault]) + "\n")
        lines.write("[]\n")


def fuzz(
    names: Sequence[str], count: int, *, seed: int = 0, processes: int = 1, seconds: float = 1e9
) -> Result:
    """Read ``count`` inputs, as many of each format, in processes of their own."""
    result, each = Result(), -(-count // len(names))
    end = time.monotonic() + seconds
    memory = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="sparselabel-fuzz-", dir=memory) as folder:
        workers = [
            _Worker(Path(folder, str(n)), [*names], seed, n, processes, each) for n in range(processes)
        ]
        try:
            while sum(worker.goes_on(result) for worker in workers) and time.monotonic() < end:
                time.sleep(0.2)
        finally:
            for worker in workers:
                worker.stop(result)
    return result


class _Worker:
    """A process, and another one after it if it dies or hangs."""

    def __init__(self, report: Path, names: list[str], seed: int, first: int, step: int, last: int) -> None:
        self.report, self.names, self.seed, self.step, self.last = report, names, seed, step, last
        self.at = 0  # in the report
        self.case: tuple[str, int] | None = None
        self.begin(first)

    def begin(self, first: int) -> None:
        self.moved, self.done = time.monotonic(), first >= self.last
        self.report.touch()
        given = json.dumps([self.names, self.seed, first, self.step, self.last, str(self.report)])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz", "--work", given], start_new_session=True
        )

    def goes_on(self, result: Result) -> bool:
        """Take up what was reported since; whether there is more to come."""
        self.take(result)
        if self.done:
            return False
        dead = self.process.poll() is not None
        patience = 6 * SECONDS if self.case is not None else BEGIN
        if dead or time.monotonic() - self.moved > patience:
            self.take(result)
            if self.done:
                return False
            if self.case is None:
                raise RuntimeError("a process of the fuzzer did not begin")
            name, number = self.case
            self.kill()
            result.add(name, number, f"death: exit {self.process.returncode}" if dead else "hang: no answer")
            self.case = None
            self.begin(number + self.step)
        return True

    def take(self, result: Result) -> None:
        with self.report.open() as lines:
            lines.seek(self.at)
            text = lines.read()
        whole = text[: text.rfind("\n") + 1]
        self.at += len(whole.encode())
        for line in whole.splitlines():
            self.moved = time.monotonic()
            match json.loads(line):
                case [name, number]:
                    if self.case is not None:
                        result.add(*self.case, "")
                    self.case = name, number
                case [name, number, fault]:
                    result.add(name, number, fault)
                    self.case = None
                case _:
                    if self.case is not None:
                        result.add(*self.case, "")
                    self.case, self.done = None, True

    def kill(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self, result: Result) -> None:
        """The end, whether all is done or not."""
        self.kill()
        self.take(result)
