"""Rows of P processes are redistributed to Q others without loss."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparselabel.data.loaders import rows_of
from sparselabel.errors import ResourceError, RunError
from sparselabel.losses.memory import row_store as rows_module
from sparselabel.losses.memory.reshard import Share, State, restore_resharded
from sparselabel.losses.memory.row_store import FileRowStore, RamRowStore, RowStore, file_of, files_of_others
from sparselabel.losses.role import Clock

WIDTH = 3


def initial(local_index: Tensor) -> Tensor:
    return torch.zeros(len(local_index), WIDTH)


def make(folder: Path, count: int, process: int, processes: int, kind: str) -> RowStore:
    rows = len(rows_of(count, process, processes))
    if kind == "ram":
        return RamRowStore(rows, WIDTH, initial, torch.float32)
    return FileRowStore(file_of(folder, "some", process, processes), rows, WIDTH, initial, torch.float16)


def values_of(count: int) -> Tensor:
    """(count, WIDTH) A line for every row of the data, which float16 can hold."""
    return torch.arange(count)[:, None] + torch.tensor([0.0, 0.25, 0.5])


def contents(memory: RowStore) -> Tensor:
    return memory.read(torch.arange(memory.rows)).float()


def begun(folder: Path, count: int, kinds: Sequence[str]) -> tuple[list[RowStore], list[State]]:
    """Processes that have a checkpoint, in which every row has its own values, and have gone on since."""
    memories = [make(folder, count, number, len(kinds), kind) for number, kind in enumerate(kinds)]
    states = []
    for number, memory in enumerate(memories):
        local_index = torch.arange(memory.rows)
        mine = values_of(count)[number :: len(kinds)]
        for some in (
            local_index,
            local_index[::2],
            local_index[::3],
        ):  # so that the newest slots are not all the same
            memory.write(some, mine[some])
            states.append({name: value.clone() for name, value in memory.state().items()})
            memory.on_checkpoint_saved()
        memory.write(local_index, torch.full((memory.rows, WIDTH), -1.0))
    return memories, states[2::3]


def go_on(folder: Path, count: int, states: list[State], kinds: Sequence[str]) -> list[RowStore]:
    made = [make(folder, count, number, len(kinds), kind) for number, kind in enumerate(kinds)]
    for number, memory in enumerate(made):
        restore_resharded(memory, states, folder, Share(number, len(kinds)))
    return made


def bytes_of(folder: Path, processes: int) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob(f"*-of-{processes}.rows")}


KINDS = st.lists(st.sampled_from(["ram", "file"]), min_size=1, max_size=5)


@settings(max_examples=60)
@given(count=st.integers(5, 23), before=KINDS, after=KINDS)
def test_every_row_keeps_its_values(count: int, before: list[str], after: list[str]) -> None:
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "CHUNK_BYTES", 2 * WIDTH * 4)  # in chunks of two to four rows
        folder = Path(name)
        _, states = begun(folder, count, before)
        old = bytes_of(folder, len(before))
        if len(before) == len(after):
            after = [*after, "file"]
        made = go_on(folder, count, states, after)
        for number, memory in enumerate(made):
            assert torch.equal(contents(memory), values_of(count)[number :: len(after)])
        assert bytes_of(folder, len(before)) == old  # a crash now would lose nothing


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_crash_before_the_first_checkpoint_loses_nothing(tmp_path: Path, number: int) -> None:
    _, states = begun(tmp_path, 11, ["file", "file"])
    for memory in go_on(tmp_path, 11, states, ["file"]):
        memory.write(torch.arange(memory.rows), torch.full((memory.rows, WIDTH), -2.0))
        memory.state()  # and then the machine stopped: the checkpoint is not there
    if number == 2:
        made = [make(tmp_path, 11, process, 2, "file") for process in (0, 1)]
        for memory, state in zip(made, states, strict=True):
            memory.restore(state)
    else:
        made = go_on(tmp_path, 11, states, ["file"] * number)
    for process, memory in enumerate(made):
        assert torch.equal(contents(memory), values_of(11)[process::number])


def test_what_was_dealt_out_goes_on_as_any_other(tmp_path: Path) -> None:
    _, states = begun(tmp_path, 11, ["file", "file"])
    (whole,) = go_on(tmp_path, 11, states, ["file"])
    whole.write(torch.tensor([4]), torch.full((1, WIDTH), 7.0))
    state = whole.state()
    whole.on_checkpoint_saved()
    assert sorted(file.name for file in files_of_others(tmp_path, 1)) == [
        "some-0-of-2.rows",
        "some-1-of-2.rows",
    ]
    for file in files_of_others(tmp_path, 1):
        file.unlink()
    expected = values_of(11)
    expected[4] = 7
    again = make(tmp_path, 11, 0, 1, "file")
    again.restore(state)
    assert torch.equal(contents(again), expected)
    for process, memory in enumerate(go_on(tmp_path, 11, [state], ["file", "ram", "file"])):
        assert torch.equal(contents(memory), expected[process::3])


def test_rows_are_copied_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, states = begun(tmp_path, 23, ["file", "ram"])
    monkeypatch.setattr(rows_module, "CHUNK_BYTES", 4 * WIDTH * 2)
    read, seen = FileRowStore.read, []

    def watched(self: FileRowStore, local_index: Tensor) -> Tensor:
        seen.append(len(local_index))
        return read(self, local_index)

    monkeypatch.setattr(FileRowStore, "read", watched)
    go_on(tmp_path, 23, states, ["file"])
    assert seen == [2, 2, 2, 2, 2, 2]


def test_a_clock_is_dealt_out(tmp_path: Path) -> None:
    clocks = [Clock(6), Clock(5)]
    for number, clock in enumerate(clocks):
        clock.touched.copy_(torch.arange(11)[number::2])
        clock.tick(0.5)
    for process in range(3):
        clock = Clock(len(rows_of(11, process, 3)))
        restore_resharded(clock, [other.state() for other in clocks], tmp_path, Share(process, 3))
        assert clock.touched.tolist() == list(range(process, 11, 3))
        assert clock.step == 1


def spoil_by_removing(path: Path) -> None:
    path.unlink()


def spoil_by_cutting(path: Path) -> None:
    os.truncate(path, 4000)


def spoil_by_a_new_run(path: Path) -> None:
    make(path.parent, 11, 1, 2, "file").read(torch.tensor([0]))


def spoil_by_going_on(path: Path) -> None:
    file = os.open(path, os.O_RDWR)
    os.pwrite(file, (9).to_bytes(8, "little"), 16)
    os.close(file)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            spoil_by_removing,
            r"needs .*some-1-of-2\.rows of 4,156 bytes; it is not there: bring the run folder",
        ),
        (spoil_by_cutting, r"needs .*some-1-of-2\.rows of 4,156 bytes; it has 4,000: bring the run folder"),
        (spoil_by_a_new_run, r"some-1-of-2\.rows was made by another run than the checkpoint: bring the run"),
        (spoil_by_going_on, r"some-1-of-2\.rows has gone on since this checkpoint; resume from the newest"),
    ],
)
@pytest.mark.parametrize("kind", ["ram", "file"])
def test_a_wrong_file_is_named(
    tmp_path: Path, kind: str, spoil: Callable[[Path], None], message: str
) -> None:
    _, states = begun(tmp_path, 11, ["file", "file"])
    spoil(tmp_path / "some-1-of-2.rows")
    with pytest.raises(RunError, match=message):
        go_on(tmp_path, 11, states, [kind])
    assert not (tmp_path / "some-0-of-1.rows").exists()


def test_rows_of_other_data_are_refused(tmp_path: Path) -> None:
    _, states = begun(tmp_path, 11, ["file", "file"])
    with pytest.raises(RunError, match=r"rows must be \(12, 3\) torch.float32, not \(11, 3\) torch.float16"):
        go_on(tmp_path, 12, states, ["ram"])


def test_a_disk_too_small_for_both_is_named_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    _, states = begun(tmp_path, 11, ["file", "file"])
    old = bytes_of(tmp_path, 2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(ResourceError, match=r"some-0-of-1\.rows needs 0\.00 MB, and the disk has"):
            go_on(tmp_path, 11, states, ["file"])
    assert bytes_of(tmp_path, 2) == old
    assert not bytes_of(tmp_path, 1)
