from pathlib import Path

import pytest

from sparselabel.data.readers.cub import leading_numbers
from sparselabel.errors import DataError


def test_leading_numbers_whatever_follows(tmp_path: Path) -> None:
    file = tmp_path / "labels.txt"
    file.write_bytes(b"1 10 0 3 27.708\r\n\r\n2275 10  1 1 0 1.509\n11788\t312 0\n3 4 999999999")
    lines, numbers = leading_numbers(file, 3)
    assert lines.tolist() == [1, 3, 4, 5]
    assert numbers.tolist() == [[1, 10, 0], [2275, 10, 1], [11788, 312, 0], [3, 4, 999_999_999]]


@pytest.mark.parametrize(
    "wrong", ["1 2", "1 2 x", "1 -2 0", "1 2 0x 3", "1,2,0", "1 2 1234567890", " 1 2 0", "1 2 ", "1 2 0.5"]
)
def test_lines_that_begin_with_something_else(tmp_path: Path, wrong: str) -> None:
    file = tmp_path / "labels.txt"
    file.write_text(f"1 1 0 4\n\n{wrong}\n1 3 0 4\n")
    with pytest.raises(
        DataError, match=r"labels.txt, line 3: must begin with 3 whole numbers, not '"
    ) as error:
        leading_numbers(file, 3)
    assert str(error.value).endswith(f"not {wrong!r}")


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("\n\n")
    lines, numbers = leading_numbers(tmp_path / "labels.txt", 3)
    assert (lines.shape, numbers.shape) == ((0,), (0, 3))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing.txt is not there, or not a file"):
        leading_numbers(tmp_path / "nothing.txt", 3)
