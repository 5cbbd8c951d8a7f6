"""The pages in docs/methods are those that the catalogue makes."""

from pathlib import Path

import pytest

from sparselabel.cli.method_pages import file_name, main, pages
from sparselabel.errors import ConfigError
from sparselabel.method import catalog
from sparselabel.method.catalog import METHODS, formulas

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return pages(ROOT / "results")


def test_committed_pages_are_up_to_date(made: dict[str, str]) -> None:
    folder = ROOT / "docs" / "methods"
    assert sorted(path.name for path in folder.iterdir()) == sorted(made)
    old = [name for name, text in made.items() if (folder / name).read_text(encoding="utf-8") != text]
    assert old == [], "run `make docs`"


def test_every_method_has_a_page_and_every_formula_a_method(made: dict[str, str]) -> None:
    names = {*METHODS, "+cl", "+scl", "+cluster", "+fixmatch"}
    assert {*made} == {f"{file_name(name)}.md" for name in names} | {"README.md"}
    assert set(formulas.FORMULAS) == names
    for formula in formulas.FORMULAS.values():
        assert formula.latex.count("{") == formula.latex.count("}")
        assert formula.when.endswith(".")


def test_a_page_says_what_people_ask(made: dict[str, str]) -> None:
    page = made["en.md"]
    for words in (
        "# `en`",
        "```math\n\\ell = [z=1]",
        "P1: Verelst et al. 2023, Spatial Consistency Loss for Training Multi-Label Classifiers from",
        "| `--settings.momentum` | 0.8 | μ of running averages. |",
        "`+asl`",
        "**When to take it.** Single positives, where K",
        "| `en` | 78.00 ± 0.06 (3 seeds) | `an` 77.33, `bce` 79.39 |",
        "| `en+cl` | 78.10 ± 0.10 (3 seeds) |",
    ):
        assert words in page, words
    assert "- preset `q2l`: positive_focus 0, negative_focus 2, margin 0, scale 1000" in made["asl.md"]
    assert "| `en+scl` | 74.16 ± 0.14 (3 seeds) |" in made["with-scl.md"]  # γ 1, the better by validation
    assert "**Needs.** cell maps." in made["with-scl.md"]
    assert "`em+apl` |" not in made["em.md"]
    assert "It has no settings." in made["an.md"]
    assert "Zhou et al. 2022, Acknowledging the Unknown" in made["em-apl.md"]
    assert "| [`role`](role.md) | Regularised online label estimation" in made["README.md"]


def test_the_index_has_a_number_wherever_a_page_has_one(made: dict[str, str]) -> None:
    lines = {line.split("`")[1]: line for line in made["README.md"].splitlines() if line.startswith("| [`")}
    for name, line in lines.items():
        numbers = "".join(line.split("|")[3:])
        measured = "**Our result.** Not measured yet." not in made[f"{file_name(name)}.md"]
        assert any(sign.isdigit() for sign in numbers) == measured, line
    assert lines["bce-ls"].endswith("|  | 79.89 |  |  |")
    assert "| `en+cl` 78.10 |" in lines["+cl"]


def test_a_method_without_a_formula_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalog.METHODS, "new", METHODS["an"])
    with pytest.raises(ConfigError, match=r"method 'new' has no formula: write it .* into FORMULAS"):
        pages(ROOT / "results")


def test_pages_of_methods_that_are_no_more_are_removed(tmp_path: Path) -> None:
    (tmp_path / "results").symlink_to(ROOT / "results")
    gone = tmp_path / "docs" / "methods" / "gone.md"
    gone.parent.mkdir(parents=True)
    gone.write_text("old")
    main(tmp_path)
    assert not gone.exists()
    assert (gone.parent / "an.md").is_file()
