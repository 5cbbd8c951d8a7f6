"""The pages in docs/methods match the registry."""

from pathlib import Path

import pytest
from tools.method_pages import file_name, main, pages
from tools.method_results import TABLES, measured

from sparselabel.errors import ConfigError
from sparselabel.losses.registry import METHODS
from tools import method_formulas as formulas

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
    names = {*METHODS, "+cl", "+scl", "+cluster", "+fixmatch", "boostlu"}
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
        "Verelst et al. 2023, Spatial Consistency Loss for Training Multi-Label Classifiers",
        "| `--settings.momentum` | 0.8 | μ of running averages. |",
        "`+asl`",
        "**When to take it.** Single positives, where K",
        "| `en` | 78.00 ± 0.06 (3 seeds) | `an` 77.33, `bce` 79.39, highest `",
        "| `en+cl` | 78.10 ± 0.10 (3 seeds) |",
        "| `en` | 55.85 ± 0.03 (3 seeds) | `an` 54.29, `bce` 60.08 |",  # the better rate
    ):
        assert words in page, words
    assert "- preset `q2l`: gamma_pos 0, gamma_neg 2, margin 0, scale 1000" in made["asl.md"]
    assert "**Needs.** cell maps." in made["with-scl.md"]
    assert "`em+apl` |" not in made["em.md"]
    assert "It has no settings." in made["an.md"]
    assert "Zhou et al. 2022, Acknowledging the Unknown" in made["em-apl.md"]
    assert "| [`role`](role.md) | Regularized online label estimation" in made["README.md"]


def test_the_index_has_a_number_wherever_a_page_has_one(made: dict[str, str]) -> None:
    lines = {line.split("`")[1]: line for line in made["README.md"].splitlines() if line.startswith("| [`")}
    for name, line in lines.items():
        numbers = "".join(line.split("|")[3:])
        measured = "**Our result.** Not measured yet." not in made[f"{file_name(name)}.md"]
        assert any(sign.isdigit() for sign in numbers) == measured, line
    assert " | 79.89 | " in lines["bce-ls"]
    assert "| `en+cl` 78.10 |" in lines["+cl"]
    assert "| `en` 78.28 |" in lines["boostlu"]


def test_boostlu_is_no_method_but_has_a_page(made: dict[str, str]) -> None:
    for words in (
        "# `boostlu`: a part of the head",
        "**Paper.** Kim et al. 2023, Bridging the Gap between Model Explanations",
        "| `--boost` |  | Multiply positive cell logits by this before averaging",
        "- `ll-r` with `--settings.preset boostlu`, or any preset: share 0.005",
    ):
        assert words in made["boostlu.md"], words


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Results as they might be: a line a method, a line a seed and weight, a line a draw and kind."""
    tables = {
        "kinds-of-labels.csv": "data,labels,method,test,spread,test_0,test_1\n"
        "scenes,one positive,bce,91.29,0.05,91.2,91.3\nscenes,one positive,an,82.91,0.22,82.9,82.9\n"
        "scenes,one positive,em,88.61,0.03,88.6,88.6\nscenes,one positive,pu,88.11,0.03,88.1,88.1\n"
        '"VOC 2012","one, the rare",pu,73.44,0.13,73.4,73.4\n',
        "everything-trained.csv": "data,labels,method,test,spread,test_0,test_1\n"
        "scenes,one positive,an,80.11,0.61,80.5,79.4\nscenes,one positive,pu+scl,83.45,0.19,83.5,83.3\n",
        "voc2012-tuned.csv": "method,weight,seed,validation,test\nan,,0,71,70\nen+cl,1,0,73,72\n"
        "en+scl,0.1,0,73.93,73.1\nen+scl,1,0,73.67,74\nen+scl,1,1,74.4,75\n",
        "frozen-defaults.csv": "source,backbone,annotator,candidate,test\ncoco-3000,dino,one,soft,58\n"
        "coco-3000,dino,names,soft,61\nvoc-2000,mbv2,one,soft,75\n",
        "voc2012-budget.csv": "kind,method,draw,test_mAP\nI,csl-i,1,63\nI,csl-i,2,65\nSP,patchml,1,63.5\n",
    }
    for file in TABLES:
        text = tables.get(file, "method,test,spread,test_0\nan,77,0,77\n")
        (tmp_path / file).write_text(text, encoding="utf-8")
    return tmp_path


def test_results_are_read_by_data_method_and_setting(results: Path) -> None:
    found = {title.partition(", ")[2]: values for title, values in measured(results).items()}
    (stored,) = found["no image fully labeled; frozen DINOv2-S features of norm 1"]
    assert stored == ("soft", "", 59.5, "59.50 (mean of 2 kinds of labels)")
    tuned = found["one positive label per image, everything trained, small views"]
    assert [(value.named, value.words) for value in tuned] == [
        ("`an`", "70.00 (one seed)"),
        ("`en+cl`", "72.00 (one seed)"),
        ("`en+scl`, γ 0.1", "73.10 (one seed)"),  # neither is taken for the better: their seeds differ
        ("`en+scl`, γ 1", "74.50 ± 0.71 (2 seeds)"),
    ]
    assert [
        (value.method, value.words)
        for value in found["a budget of 4 % for answers (I), frozen MobileNetV2 features"]
    ] == [("csl-i", "64.00 ± 1.41 (2 draws)")]


def test_a_page_shows_where_others_are_better(results: Path) -> None:
    made = pages(results)
    scenes = "| scenes, labels: one positive; frozen MobileNetV2 features, batch 64, K estimated |"
    assert (
        f"{scenes} `pu` | 88.11 ± 0.03 (2 seeds) | `an` 82.91, `bce` 91.29, highest `em` 88.61 |"
        in made["pu.md"]
    )
    assert f"{scenes} `em` | 88.61 ± 0.03 (2 seeds) | `an` 82.91, `bce` 91.29 |" in made["em.md"]
    assert "| VOC 2012, labels: one, the rare; " in made["pu.md"]
    trained = "| scenes, labels: one positive; everything trained, small views, K estimated |"
    assert f"{trained} `pu+scl` | 83.45 ± 0.19 (2 seeds) | `an` 80.11 |" in made["pu.md"]
    assert "| `csl-i` | 64.00 ± 1.41 (2 draws) |  |" in made["csl-i.md"]
    assert "| `patchml` | 63.50 (one draw) |  |" in made["patchml.md"]
    assert "| `en+scl` γ 0.1 73.10, γ 1 74.50 |" in made["README.md"]


def test_a_method_without_a_formula_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "new", METHODS["an"])
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
