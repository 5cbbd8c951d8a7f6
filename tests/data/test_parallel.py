import os
import signal
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from sparselabel.data.parallel import in_parallel
from sparselabel.errors import DataError, ResourceError


def work(number: int) -> tuple[int, int]:
    if number == 77:
        raise DataError("77 is broken", "mend it")
    return number, os.getpid()


def die(number: int) -> int:
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_results_come_in_order_from_other_processes() -> None:
    done = list(in_parallel(work, range(40)))
    assert [number for number, _ in done] == [*range(40)]
    assert os.getpid() not in {process for _, process in done}
    assert list(in_parallel(work, [3])) == [(3, os.getpid())]  # nothing to share
    assert list(in_parallel(work, [])) == []


def test_an_error_is_what_it_was() -> None:
    with pytest.raises(DataError, match="77 is broken") as told:
        list(in_parallel(work, range(70, 90)))
    assert told.value.remedies == ("mend it",)


def test_a_process_that_is_killed() -> None:
    with pytest.raises(ResourceError, match="a process was killed while it read images"):
        list(in_parallel(die, range(20)))


def test_no_more_processes_than_cores_that_it_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparselabel.data.parallel.CORES", 1)
    assert len({process for _, process in in_parallel(work, range(40))}) == 1


def interrupted(number: int) -> int:
    os.kill(os.getpid(), signal.SIGINT)
    return number


def test_ctrl_c_waits_until_processes_are_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    submit, submitted = ProcessPoolExecutor.submit, []

    def submit_and_interrupt(pool: ProcessPoolExecutor, /, *task: Any) -> Any:
        submitted.append(submit(pool, *task))
        signal.raise_signal(signal.SIGINT)
        return submitted[-1]

    monkeypatch.setattr(ProcessPoolExecutor, "submit", submit_and_interrupt)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        list(in_parallel(work, range(40)))
    assert submitted[0].done()
    assert len(submitted) == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_does_not_reach_the_processes() -> None:
    assert list(in_parallel(interrupted, range(20))) == [*range(20)]
