import numpy as np
import pytest

from sparselabel.data.transforms import COLORS, apply_operation, change_colors

VIEW = np.random.default_rng(0).integers(0, 256, (3, 16, 16)).astype(np.uint8)


def test_a_view_depends_on_its_key_alone() -> None:
    first = change_colors(VIEW, (0, 3, 5, 1))
    assert first.shape == VIEW.shape
    assert first.dtype == np.uint8
    assert np.array_equal(first, change_colors(VIEW, (0, 3, 5, 1)))
    others = [change_colors(VIEW, (0, 3, row, 1)) for row in range(20)]
    assert len({other.tobytes() for other in others}) > 15


@pytest.mark.parametrize("name", COLORS)
def test_nothing_moves(name: str) -> None:
    """Pixels of one color stay alike wherever they are; only sharpness looks at neighbors."""
    from PIL import Image

    flat = np.zeros((8, 8, 3), np.uint8)
    flat[:, :4], flat[:, 4:] = (200, 30, 60), (10, 120, 240)
    found = np.asarray(apply_operation(Image.fromarray(flat), name, 0.8, 1.0))
    assert found.shape == flat.shape
    assert (found[2:6, :3] == found[2, 0]).all()
    assert (found[2:6, 5:] == found[2, 7]).all()
    assert not np.array_equal(found[2, 0], found[2, 7])
