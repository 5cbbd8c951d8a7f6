import threading

import pytest

from sparselabel.data.parallel import WAITING, in_parallel
from sparselabel.errors import DataError


def work(number: int) -> int:
    if number == 77:
        raise DataError("77 is broken", "mend it")
    return number


def test_results_come_in_order_from_as_many_threads_as_there_are_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for cores in (1, 3):
        monkeypatch.setattr("sparselabel.data.parallel.CORES", cores)
        together = threading.Barrier(cores)

        def here(number: int, together: threading.Barrier = together) -> tuple[int, int]:
            if number < together.parties:
                together.wait(60)
            return number, threading.get_ident()

        done = list(in_parallel(here, range(40)))
        assert [number for number, _ in done] == [*range(40)]
        assert len({thread for _, thread in done}) == cores
    assert list(in_parallel(work, [])) == []


def test_items_are_taken_as_results_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparselabel.data.parallel.CORES", 2)
    items = iter(range(1000))
    results = in_parallel(work, items)
    assert next(results) == 0
    del results  # what is ahead is done, and no more
    assert next(items) <= 2 * WAITING


def test_an_error_is_what_it_was() -> None:
    with pytest.raises(DataError, match="77 is broken") as told:
        list(in_parallel(work, range(70, 90)))
    assert told.value.remedies == ("mend it",)
