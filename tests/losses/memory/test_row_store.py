"""Row stores in RAM and in files hold what was written; a crash loses nothing that was committed."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparselabel.errors import ResourceError, RunError
from sparselabel.losses.memory import row_store as rows_module
from sparselabel.losses.memory.row_store import HEADER_BYTES, FileRowStore, RamRowStore, RowStore

ROWS, WIDTH = 11, 3


def initial(local_index: Tensor) -> Tensor:
    return local_index[:, None] + torch.tensor([0.0, 0.25, 0.5])


def in_file(folder: Path, dtype: torch.dtype = torch.float32) -> FileRowStore:
    return FileRowStore(folder / "test.rows", ROWS, WIDTH, initial, dtype)


def contents(memory: RowStore) -> Tensor:
    return memory.read(torch.arange(ROWS))


@pytest.fixture(params=["ram", "file"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> RowStore:
    return RamRowStore(ROWS, WIDTH, initial, torch.float32) if request.param == "ram" else in_file(tmp_path)


def test_rows_never_written_hold_their_initial_values(
    memory: RowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "CHUNK_BYTES", 4 * WIDTH * 4)  # filled in three chunks
    local_index = torch.tensor([10, 0, 4])
    assert memory.read(local_index).tolist() == initial(local_index).tolist()


def test_written_rows_are_read_in_any_order(memory: RowStore) -> None:
    memory.write(torch.tensor([7, 2]), torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    memory.write(torch.tensor([2]), torch.tensor([[7.0, 8.0, 9.0]]))
    assert memory.read(torch.tensor([2, 3, 7])).tolist() == [[7, 8, 9], [3, 3.25, 3.5], [1, 2, 3]]


def test_what_is_read_is_a_copy(memory: RowStore) -> None:
    memory.read(torch.tensor([1])).zero_()
    assert memory.read(torch.tensor([1])).tolist() == [[1, 1.25, 1.5]]


def test_no_rows_are_read_and_written_too(memory: RowStore) -> None:
    none = torch.empty(0, dtype=torch.int64)
    memory.write(none, torch.empty(0, WIDTH))
    assert memory.read(none).shape == (0, WIDTH)


def test_float64_is_kept_exactly(tmp_path: Path) -> None:
    memory = in_file(tmp_path, torch.float64)
    values = torch.rand(2, WIDTH, dtype=torch.float64)
    memory.write(torch.tensor([5, 6]), values)
    assert torch.equal(memory.read(torch.tensor([5, 6])), values)


def test_a_state_comes_back_from_ram_into_ram_and_into_a_file(tmp_path: Path) -> None:
    memory = RamRowStore(ROWS, WIDTH, initial, torch.float32)
    memory.write(torch.tensor([3]), torch.tensor([[9.0, 8.0, 7.0]]))
    state = {name: value.clone() for name, value in memory.state().items()}
    memory.write(torch.tensor([3]), torch.zeros(1, WIDTH))
    for other in (RamRowStore(ROWS, WIDTH, initial, torch.float32), in_file(tmp_path)):
        other.restore(state)
        assert torch.equal(contents(other), state["values"])
        other.write(torch.tensor([0]), torch.zeros(1, WIDTH))
    assert state["values"][0].tolist() == [0, 0.25, 0.5]


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "torn", "commit", "crash", "crash in checkpoint"]),
        st.sets(st.integers(0, ROWS - 1), min_size=1, max_size=4),
        st.booleans(),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(actions=ACTIONS)
def test_a_crash_at_any_moment_loses_nothing_committed(actions: list[tuple[str, set[int], bool]]) -> None:
    with TemporaryDirectory() as folder:
        memory = in_file(Path(folder))
        newest = contents(memory)
        state, saved = memory.state(), newest.clone()
        memory.on_checkpoint_saved()
        for number, (action, chosen, flag) in enumerate(actions):
            local_index = torch.tensor(sorted(chosen))
            values = torch.full((len(local_index), WIDTH), 100.0 + number)
            if action == "write":
                memory.write(local_index, values)
                newest[local_index] = values
            elif action == "torn":  # the machine stops in the middle of writing the last of the rows
                torn_write(memory, local_index, values)
                memory, newest = reopened(folder, state), saved.clone()
            elif action == "commit":
                state, saved = memory.state(), newest.clone()
                memory.on_checkpoint_saved()
            elif action == "crash":
                memory, newest = reopened(folder, state), saved.clone()
            else:  # after state(), before the checkpoint is there (flag: or just after)
                unsafe = memory.state()
                if flag:
                    state, saved = unsafe, newest.clone()
                memory, newest = reopened(folder, state), saved.clone()
            assert torch.equal(contents(memory), newest)
        assert torch.equal(contents(reopened(folder, state)), saved)


def reopened(folder: str, state: dict[str, Tensor]) -> FileRowStore:
    memory = in_file(Path(folder))
    memory.restore(state)
    return memory


def torn_write(memory: FileRowStore, local_index: Tensor, values: Tensor) -> None:
    class PowerCutError(Exception):
        pass

    real, left = os.pwrite, [len(local_index)]

    def pwrite(file: int, data: bytes, offset: int) -> int:
        left[0] -= 1
        if left[0] > 0:
            return real(file, data, offset)
        real(file, data[: len(data) // 2], offset)
        raise PowerCutError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        with pytest.raises(PowerCutError):
            memory.write(local_index, values)


def test_nothing_may_be_written_between_state_and_on_checkpoint_saved(tmp_path: Path) -> None:
    memory = in_file(tmp_path)
    memory.state()
    with pytest.raises(
        RunError, match=r"test\.rows must not be written between state\(\) and on_checkpoint_saved\(\)"
    ):
        memory.write(torch.tensor([1]), torch.zeros(1, WIDTH))
    memory.on_checkpoint_saved()
    memory.write(torch.tensor([1]), torch.zeros(1, WIDTH))
    assert memory.read(torch.tensor([1])).tolist() == [[0, 0, 0]]


def test_a_file_has_two_slots_a_row_and_is_claimed_at_once(tmp_path: Path) -> None:
    memory = in_file(tmp_path)
    assert not memory.path.exists()  # a run that resumes must find its old file
    memory.read(torch.tensor([0]))
    status = memory.path.stat()
    assert status.st_size == HEADER_BYTES + 2 * ROWS * WIDTH * 4
    assert status.st_blocks * 512 >= status.st_size


def spoil_by_removing(path: Path) -> None:
    path.unlink()


def spoil_by_cutting(path: Path) -> None:
    os.truncate(path, 4000)


def spoil_by_a_new_run(path: Path) -> None:
    in_file(path.parent).read(torch.tensor([0]))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_by_removing, r"needs .*test\.rows of 4,360 bytes; it is not there: bring the run folder back"),
        (spoil_by_cutting, r"needs .*test\.rows of 4,360 bytes; it has 4,000: bring the run folder back"),
        (spoil_by_a_new_run, r"test\.rows was made by another run than the checkpoint"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, spoil: Callable[[Path], None], message: str) -> None:
    memory = in_file(tmp_path)
    state = memory.state()
    spoil(memory.path)
    with pytest.raises(RunError, match=message):
        in_file(tmp_path).restore(state)


def test_a_state_of_other_rows_is_refused(tmp_path: Path) -> None:
    wide = RamRowStore(
        ROWS, WIDTH + 1, lambda local_index: torch.zeros(len(local_index), WIDTH + 1), torch.float32
    )
    with pytest.raises(RunError, match=r"must be \(11, 3\) torch.float32, not \(11, 4\)"):
        RamRowStore(ROWS, WIDTH, initial, torch.float32).restore(wide.state())
    state = in_file(tmp_path).state()
    with pytest.raises(RunError, match="kept 11 rows in a file that is not there"):
        RamRowStore(ROWS, WIDTH, initial, torch.float32).restore(state)
    with pytest.raises(RunError, match="another number of rows than the 40"):
        FileRowStore(tmp_path / "test.rows", 40, WIDTH, initial, torch.float32).restore(state)


def test_a_file_that_was_cut_under_our_hands_is_noticed(tmp_path: Path) -> None:
    memory = in_file(tmp_path)
    memory.read(torch.tensor([0]))
    os.truncate(memory.path, HEADER_BYTES + 20)
    with pytest.raises(RunError, match=r"test\.rows ends at byte"):
        memory.read(torch.tensor([1]))


def test_short_writes_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, offset: real(file, data[:5], offset))
    memory = in_file(tmp_path)
    values = torch.rand(2, WIDTH)
    memory.write(torch.tensor([0, 9]), values)
    assert torch.equal(memory.read(torch.tensor([0, 9, 5])), torch.cat([values, initial(torch.tensor([5]))]))


@pytest.mark.parametrize("call", ["posix_fallocate", "pwrite", "fsync"])
def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    memory = in_file(tmp_path)
    if call != "posix_fallocate":
        memory.read(torch.tensor([0]))
    monkeypatch.setattr(os, call, full)
    with pytest.raises(
        ResourceError, match=r"test\.rows needs [\d.]+ MB, and the disk has [\d.,]+ [GM]B free"
    ):
        memory.state() if call == "fsync" else memory.write(torch.tensor([0]), torch.zeros(1, WIDTH))
    assert memory.path.exists() == (call != "posix_fallocate")  # no half-made file is left


def test_another_disk_error_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    memory = in_file(tmp_path)
    memory.read(torch.tensor([0]))
    monkeypatch.setattr(os, "pwrite", broken)
    with pytest.raises(OSError, match="Input/output error"):
        memory.write(torch.tensor([0]), torch.zeros(1, WIDTH))


def test_a_state_that_the_file_has_left_behind_is_refused(tmp_path: Path) -> None:
    memory = in_file(tmp_path)
    states = []
    for value in (1.0, 2.0, 3.0):
        memory.write(torch.tensor([4]), torch.full((1, WIDTH), value))
        states.append({name: part.clone() for name, part in memory.state().items()})
        memory.on_checkpoint_saved()
    again = in_file(tmp_path)
    again.restore(states[2])
    assert again.read(torch.tensor([4])).tolist() == [[3, 3, 3]]
    with pytest.raises(RunError, match="has gone on since this checkpoint"):
        in_file(tmp_path).restore(states[0])


def test_a_checkpoint_that_was_safe_before_the_file_knew(tmp_path: Path) -> None:
    memory = in_file(tmp_path)
    memory.write(torch.tensor([4]), torch.ones(1, WIDTH))
    state = memory.state()  # saved, and then the machine stopped: on_checkpoint_saved() was never called
    again = in_file(tmp_path)
    again.restore(state)
    assert again.read(torch.tensor([4])).tolist() == [[1, 1, 1]]


def test_numbers_kept_in_ram_go_on_in_a_file_of_a_smaller_type(tmp_path: Path) -> None:
    ram = RamRowStore(ROWS, WIDTH, initial, torch.float32)
    ram.write(torch.tensor([2]), torch.full((1, WIDTH), 0.5))
    small = in_file(tmp_path, torch.float16)
    small.restore(ram.state())
    assert small.read(torch.tensor([2])).tolist() == [[0.5, 0.5, 0.5]]
