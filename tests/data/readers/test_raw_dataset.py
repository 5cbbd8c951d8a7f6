import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparselabel.data.readers.raw_dataset import LEAST_SIDE, Box, Listing, SpatialLabelColumns
from sparselabel.errors import DataError
from sparselabel.file_formats import naming

edges = st.floats(-2, 3)


@given(edges, edges, edges, edges)
def test_a_clipped_box_is_the_part_inside(left: float, top: float, right: float, bottom: float) -> None:
    clipped = Box(left, top, right, bottom).clipped()
    if clipped is None:
        assert min(min(right, 1) - max(left, 0), min(bottom, 1) - max(top, 0)) < LEAST_SIDE
    else:
        assert 0 <= clipped.left < clipped.right <= 1
        assert 0 <= clipped.top < clipped.bottom <= 1
        assert clipped.clipped() == clipped
        spatial_labels = SpatialLabelColumns()
        spatial_labels.add(3, 1, clipped)
        built = spatial_labels.build()
        assert (built.rows.tolist(), built.classes.tolist()) == ([3], [1])
        assert math.isclose(built.centers[0, 0], (clipped.left + clipped.right) / 2, abs_tol=1e-6)


def test_marks_without_any_box() -> None:
    assert len(SpatialLabelColumns().build()) == 0


def test_a_listing_sees_files_and_not_folders(tmp_path: Path) -> None:
    (tmp_path / "in" / "ner").mkdir(parents=True)
    (tmp_path / "in" / "a.jpg").touch()
    (tmp_path / "b.jpg").touch()
    files = Listing(tmp_path)
    names = ("b.jpg", "in/a.jpg", str(tmp_path / "b.jpg"), "a.jpg", "in/ner", "no/a.jpg", "b.jpg/a.jpg", "")
    assert [name in files for name in names] == [True, True, True, False, False, False, False, False]
    (tmp_path / "late.jpg").touch()
    assert "late.jpg" not in files  # the folder was listed once


def test_naming_puts_the_file_in_front() -> None:
    with pytest.raises(DataError, match=r"^labels.csv: wrong$"), naming(Path("labels.csv")):
        raise DataError("wrong")
