"""Row stores choose RAM or a file."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch

from sparselabel.errors import ResourceError
from sparselabel.losses.memory.row_store import (
    HEADER_BYTES,
    FileRowStore,
    RamRowStore,
    RowStore,
    make_row_store,
)
from sparselabel.losses.step import Layout
from tests.losses.memory.test_row_store import ROWS, WIDTH, contents, initial


def layout_of(rows: int, folder: Path | None = None, keep: Literal["auto", "ram", "file"] = "auto") -> Layout:
    observed = torch.zeros(1, 1, dtype=torch.int8).expand(rows, 1)
    return Layout(torch.arange(rows), observed, rows, folder=folder, keep=keep)


NEEDED = ROWS * WIDTH * 4


@pytest.mark.parametrize(
    ("ram", "room", "kind"),
    [
        (2 * NEEDED, 0, RamRowStore),
        (2 * NEEDED - 1, HEADER_BYTES + 2 * NEEDED, FileRowStore),
    ],
)
def test_rows_go_where_they_fit(tmp_path: Path, ram: int, room: int, kind: type[RowStore]) -> None:
    layout = layout_of(ROWS, folder=tmp_path / "new")
    made = make_row_store("some", layout, WIDTH, initial, memory=lambda: ram, disk=lambda _: room)
    assert type(made) is kind
    assert torch.equal(contents(made), initial(torch.arange(ROWS)))


def test_a_run_that_began_with_a_file_goes_on_with_it(tmp_path: Path) -> None:
    layout = layout_of(ROWS, folder=tmp_path)
    old = make_row_store("some", layout, WIDTH, initial, memory=lambda: 0)
    old.write(torch.tensor([4]), torch.ones(1, WIDTH))
    state = old.state()
    again = make_row_store("some", layout, WIDTH, initial, memory=lambda: 10**12)
    again.restore(state)
    assert again.read(torch.tensor([4])).tolist() == [[1, 1, 1]]


def test_rows_that_fit_nowhere_are_refused_with_the_ways_out(tmp_path: Path) -> None:
    def make(folder: Path | None) -> None:
        make_row_store(
            "label-estimates",
            layout_of(1_000_000, folder=folder),
            3000,
            initial,
            memory=lambda: 16 * 10**9,
            disk=lambda _: 23 * 10**9,
        )

    with pytest.raises(ResourceError) as refused:
        make(tmp_path)
    message = str(refused.value)
    assert "label-estimates-0 (1,000,000 rows × 3,000 numbers) needs 12.00 GB of memory" in message
    assert "half of the 16.00 GB available, or 24.00 GB of disk" in message
    assert f"23.00 GB are free in {tmp_path}" in message
    assert "use fewer classes or rows" in refused.value.remedies
    assert (refused.value.what, refused.value.value) == ("label-estimates", HEADER_BYTES + 24 * 10**9)
    with pytest.raises(ResourceError, match="there is no run folder"):
        make(None)


def test_memories_of_one_method_share_the_room(tmp_path: Path) -> None:
    layout = layout_of(ROWS, folder=tmp_path)

    def make(name: str, room: int = 10**9) -> RowStore:
        return make_row_store(name, layout, WIDTH, initial, memory=lambda: 4 * NEEDED, disk=lambda _: room)

    first, second = make("first"), make("second")
    assert [type(made) for made in (first, second)] == [RamRowStore, RamRowStore]
    third = make("third")  # half of the room is promised, though nothing is taken yet
    assert isinstance(third, FileRowStore)
    with pytest.raises(ResourceError, match=r"together with the method's other memories, 0\.00 MB"):
        make("fourth", room=third.bytes * 2 - 1)
    third.read(torch.tensor([0]))  # its file is there, and the disk knows
    assert isinstance(make("fourth", room=third.bytes), FileRowStore)
    first.read(torch.tensor([0]))  # filled: what is available (here: told) is less by that
    assert isinstance(make("fifth"), RamRowStore)


def test_a_layout_may_say_where(tmp_path: Path) -> None:
    in_file = make_row_store("some", layout_of(ROWS, folder=tmp_path, keep="file"), WIDTH, initial)
    assert isinstance(in_file, FileRowStore)
    barely = make_row_store("some", layout_of(ROWS, keep="ram"), WIDTH, initial, memory=lambda: NEEDED)
    assert isinstance(barely, RamRowStore)
    with pytest.raises(ResourceError, match="there is no run folder"):
        make_row_store("some", layout_of(ROWS, keep="file"), WIDTH, initial)
    with pytest.raises(ResourceError, match=r"needs [\d.]+ MB of memory"):
        make_row_store(
            "some", layout_of(ROWS, tmp_path, keep="ram"), WIDTH, initial, memory=lambda: NEEDED - 1
        )


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("important")
    layout = layout_of(ROWS, folder=tmp_path / "rows", keep="file")
    memory = make_row_store("some", layout, WIDTH, initial)
    assert isinstance(memory, FileRowStore)
    memory.path.parent.mkdir(exist_ok=True)
    memory.path.symlink_to(other)
    memory.read(torch.arange(ROWS))
    assert other.read_text() == "important"
    assert memory.path.is_file()
    assert not memory.path.is_symlink()


def test_a_file_may_hold_a_smaller_type(tmp_path: Path) -> None:
    layout = layout_of(ROWS, folder=tmp_path, keep="file")
    memory = make_row_store("some", layout, WIDTH, initial, dtype_in_file=torch.float16)
    assert isinstance(memory, FileRowStore)
    assert memory.bytes == HEADER_BYTES + 2 * NEEDED // 2
    assert torch.equal(memory.read(torch.arange(ROWS)), initial(torch.arange(ROWS)).half())


def test_another_number_of_processes_decides_anew_beside_the_old_files(tmp_path: Path) -> None:
    old = make_row_store("some", layout_of(ROWS, folder=tmp_path, keep="file"), WIDTH, initial)
    old.read(torch.tensor([0]))
    two = replace(layout_of(ROWS, folder=tmp_path), processes=2)
    assert isinstance(make_row_store("some", two, WIDTH, initial, memory=lambda: 10**12), RamRowStore)
    beside = make_row_store("some", two, WIDTH, initial, memory=lambda: 0)
    assert isinstance(beside, FileRowStore)
    assert beside.path.name == "some-0-of-2.rows"
    with pytest.raises(ResourceError) as refused:
        make_row_store("some", two, WIDTH, initial, memory=lambda: 0, disk=lambda _: 100)
    said = (
        f"0.00 MB are free in {tmp_path}, beside 0.00 MB of another number of processes, which stay until "
        "this one has a checkpoint (going on with that number needs no more room): "
    )
    assert said in str(refused.value)
