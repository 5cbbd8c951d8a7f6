from pathlib import Path

import numpy as np
import pytest

from sparselabel.data.readers.cub import leading_numbers
from sparselabel.errors import DataError


@pytest.mark.parametrize("block", [1, 7, 16, 1 << 20])
def test_leading_numbers_whatever_follows_and_however_it_is_cut(tmp_path: Path, block: int) -> None:
    file = tmp_path / "labels.txt"
    file.write_bytes(b"1 10 0 3 27.708\r\n\r\n2275 10  1 1 0 1.509\n11788\t312 0\n3 4 999999999")
    blocks = list(leading_numbers(file, 3, block))
    lines = np.concatenate([lines for lines, _ in blocks])
    numbers = np.concatenate([numbers for _, numbers in blocks])
    assert lines.tolist() == [1, 3, 4, 5]
    assert numbers.tolist() == [[1, 10, 0], [2275, 10, 1], [11788, 312, 0], [3, 4, 999_999_999]]


@pytest.mark.parametrize(
    "wrong", ["1 2", "1 2 x", "1 -2 0", "1 2 0x 3", "1,2,0", "1 2 1234567890", " 1 2 0", "1 2 ", "1 2 0.5"]
)
@pytest.mark.parametrize("block", [8, 1 << 20])
def test_lines_that_begin_with_something_else(tmp_path: Path, wrong: str, block: int) -> None:
    file = tmp_path / "labels.txt"
    file.write_text(f"1 1 0 4\n\n{wrong}\n1 3 0 4\n")
    with pytest.raises(
        DataError, match=r"labels.txt, line 3: must begin with 3 whole numbers, not '"
    ) as error:
        list(leading_numbers(file, 3, block))
    assert str(error.value).endswith(f"not {wrong!r}")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing.txt is not there, and it is needed"):
        list(leading_numbers(tmp_path / "nothing.txt", 3))
