from pathlib import Path

import pytest

from sparselabel.errors import ConfigError
from sparselabel.report.figures.style import checked_out, names_of, new_figure, save, style


def test_a_figure_and_its_numbers(tmp_path: Path) -> None:
    with style():
        figure = new_figure(2, 1)
        figure.text(0.5, 0.5, "$x_1$ & ü")
        numbers = save(figure, ("a", "b"), [[1, 0.123456789], ["ü, x", None]], tmp_path / "new" / "f.png")
    assert numbers == tmp_path / "new" / "f.csv"
    assert numbers.read_bytes() == 'a,b\r\n1,0.123457\r\n"ü, x",\r\n'.encode()
    assert (tmp_path / "new" / "f.png").read_bytes().startswith(b"\x89PNG")


def test_a_full_disk_leaves_the_figure_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    out = tmp_path / "f.png"
    figure = new_figure(2, 1)
    save(figure, ("a",), [[1]], out)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(_: Figure, file: Path, **options: object) -> None:
        file.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(OSError, match="No space left") as raised:
        save(figure, ("a",), [[2]], out)
    assert raised.value.filename == str(out)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_users_own_style_does_not_matter(tmp_path: Path) -> None:
    import matplotlib as mpl

    with mpl.rc_context({"font.size": 30}):
        with style():
            assert mpl.rcParams["font.size"] == 9
        assert mpl.rcParams["font.size"] == 30


def test_where_a_figure_may_go(tmp_path: Path) -> None:
    assert checked_out(tmp_path / "a.PNG") == tmp_path / "a.PNG"
    with pytest.raises(ConfigError, match=r"must end in .png, but is a.pdf"):
        checked_out(Path("a.pdf"))
    with pytest.raises(ConfigError, match=r"would replace .*table.csv: choose another `out`"):
        checked_out(tmp_path / "x" / ".." / "table.png", [tmp_path / "table.csv"])


def test_names_of_runs() -> None:
    assert names_of([Path("a/an"), Path("a/role/")]) == ["an", "role"]
    assert names_of([Path("a/an"), Path("b/an")]) == ["a/an", "b/an"]
