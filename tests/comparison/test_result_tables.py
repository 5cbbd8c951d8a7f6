import csv
from dataclasses import replace
from pathlib import Path

from sparselabel.comparison.planned_runs import Outcome, PlannedRun
from sparselabel.comparison.result_tables import (
    latex,
    sheet_of,
    write_by_labels,
    write_latex,
    write_markdown,
    write_table,
)
from sparselabel.comparison.summary import Row, with_share
from sparselabel.config import Comparison, Recipe, TrainConfig
from sparselabel.errors import RunError
from sparselabel.metrics.bootstrap import Difference

RECIPE = Recipe(
    paper="",
    prepare=(),
    train=(),
    cost="",
    compare=Comparison(("an",)),
    published={"test mAP": {"role": 86.5, "an 2": 84.2}, "top-1": {"iu": 1.0}},
)
FAILED = Outcome(PlannedRun("bce", 1, TrainConfig(), Path("bce-seed1")), None, RunError("no"))
ROWS = with_share(
    [
        Row(
            "an",
            {0: 0.5},
            {0: 0.5, 3: 0.52},
            chosen=(("head.batch-size", "8"),),
            seconds=[1, 3],
            memory=[2000000],
        ),
        Row(
            "role",
            {0: 0.4, 3: 0.5},
            {0: 0.70004, 3: 0.6},
            chosen=(("head.batch-size", "16"), ("settings.weight", "0.1")),
            hidden={"model": [0.25, 0.75], "estimates": [0.9]},
            difference=Difference(0.51, 0.65, -0.01, 0.2, 0.9, 100),
            labels=4574,
        ),
        Row(
            "bce",
            {},
            {0: 0.9, 3: 0.92},
            chosen=(("head.batch-size", "8"),),
            failed=(FAILED,),
        ),
    ]
)


def written(rows: list[Row], folder: Path, recipe: Recipe | None = None) -> list[dict[str, str]]:
    write_table(rows, folder / "table.csv", recipe=recipe)
    with (folder / "table.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_table(tmp_path: Path) -> None:
    an, role, bce = written(ROWS, tmp_path, RECIPE)
    assert an == {
        "method": "an", "head.batch-size": "8", "settings.weight": "", "validation": "50.00", "test": "51.00",
        "test_low": "", "test_high": "",
        "spread": "1.41", "validation_spread": "", "gap_recovered": "0.000", "difference": "",
        "difference_low": "", "difference_high": "", "zero_outside": "",
        "hidden_model": "", "hidden_estimates": "",
        "training_labels": "", "seconds": "2.0",
        "memory_mb": "2", "failed": "0", "published test mAP": "", "test_0": "50.00", "test_3": "52.00",
    }  # fmt: skip
    assert {name: value for name, value in role.items() if value != an[name]} == {
        "method": "role", "head.batch-size": "16", "settings.weight": "0.1", "validation": "45.00",
        "test": "65.00", "spread": "7.07", "validation_spread": "7.07", "gap_recovered": "0.350",
        "difference": "14.00", "difference_low": "-1.00", "difference_high": "20.00", "zero_outside": "False",
        "hidden_model": "50.00",
        "hidden_estimates": "90.00", "training_labels": "4574", "seconds": "", "memory_mb": "",
        "published test mAP": "86.50", "test_0": "70.00", "test_3": "60.00",
    }  # fmt: skip
    assert (bce["validation"], bce["test"], bce["failed"]) == ("", "91.00", "1")


def test_a_seed_that_failed_leaves_its_place_empty(tmp_path: Path) -> None:
    lines = written([Row("an", {}, {1: 0.25}), Row("bce", {}, {0: 0.5, 1: 0.75})], tmp_path)
    assert [(line["test_0"], line["test_1"]) for line in lines] == [("", "25.00"), ("50.00", "75.00")]
    assert list(lines[0])[-2:] == ["test_0", "test_1"]


def test_the_table_of_a_varied_setting(tmp_path: Path) -> None:
    subsets = {("test", "1"): [0.25, 0.75], ("test", "4+"): [0.5]}
    rows = [
        Row("an", {0: 0.5}, {0: 0.5}),
        Row("en", {0: 0.5}, {0: 0.5, 1: 0.6}, "2", by_labels=subsets),
    ]
    write_table(rows, tmp_path / "table.csv", "settings.weight")
    lines = (tmp_path / "table.csv").read_text().splitlines()
    assert lines[0].startswith("method,varied,value,validation,test,test_low,test_high,spread,")
    assert [line.split(",")[:8] for line in lines[1:]] == [
        ["an", "settings.weight", "", "50.00", "50.00", "", "", ""],
        ["en", "settings.weight", "2", "50.00", "55.00", "", "", "7.07"],
    ]
    write_by_labels(rows, tmp_path / "labels.csv", "settings.weight")
    assert (tmp_path / "labels.csv").read_text().splitlines() == [
        "method,varied,value,split,labels,mAP,spread",
        "en,settings.weight,2,test,1,50.00,35.36",
        "en,settings.weight,2,test,4+,50.00,",
    ]
    write_by_labels(rows, tmp_path / "labels.csv")
    assert (tmp_path / "labels.csv").read_text().splitlines()[:2] == [
        "method,split,labels,mAP,spread",
        "en,test,1,50.00,35.36",
    ]


def test_what_people_read() -> None:
    sheet = sheet_of(ROWS, against="an", recipe=RECIPE)
    assert sheet.words == 3
    assert sheet.columns == [
        "method", "batch-size", "weight", "validation mAP", "test mAP", "over an", "gap an → bce",
        "published test mAP", "time", "memory", "failed",
    ]  # fmt: skip
    assert sheet.lines == [
        ["an", "8", "", "50.0", "51.0 ± 1.4", "", "0%", "", "2.0 s", "2 MB", ""],
        ["role", "16", "0.1", "45.0", "65.0 ± 7.1", "+14.0 (−1.0 to +20.0) n.s.", "35%", "86.5", "", "", ""],
        ["bce", "8", "", "", "91.0 ± 1.4", "", "100%", "", "", "", "1"],
    ]
    assert "contains 0" in sheet.notes[-1]
    sure = replace(ROWS[1], difference=Difference(0.51, 0.65, 0.01, 0.2, 0.9, 100))
    assert sheet_of([sure], against="an").lines[0][-2] == "+14.0 (+1.0 to +20.0)"
    assert sheet_of([sure], against="an").notes == ()


def test_columns_are_called_what_was_measured() -> None:
    names = {"validation": "observed-label mAP", "test": "mAP"}
    sheet = sheet_of([Row("an"), Row("bce", {0: 0.5}, {0: 0.25}, names=names)])
    assert sheet.columns == ["method", "validation observed-label mAP", "test mAP"]


def test_measures_of_a_recipe_stand_beside_the_published(tmp_path: Path) -> None:
    rows = [Row("iu", {}, {0: 0.5}, measures={"top-1": [0.25, 0.5], "ReaL mAP": [0.125]})]
    sheet = sheet_of(rows, recipe=RECIPE)
    assert (sheet.columns, sheet.lines) == (
        ["method", "test mAP", "top-1", "published top-1"],
        [["iu", "50.0", "37.5", "1"]],
    )
    (line,) = written(rows, tmp_path, RECIPE)
    assert (line["top-1"], line["ReaL mAP"], line["published top-1"]) == ("37.50", "12.50", "1.00")


def test_columns_without_anything_are_left_out() -> None:
    assert sheet_of([Row("an")]).columns == ["method"]
    varied = [replace(ROWS[0], value="2")]
    sheet = sheet_of(varied, "settings.weight", "an", RECIPE)
    assert sheet.columns[:3] == ["method", "settings.weight", "batch-size"]
    assert "84.2" in sheet.lines[0]
    both = [Row("an", {}, {0: 0.5}, chosen=(("head.lr", "1"), ("finetune.lr", "2")))]
    assert sheet_of(both).columns[1:3] == ["head.lr", "finetune.lr"]


def test_markdown_and_latex(tmp_path: Path) -> None:
    rows = [Row("a|b_1", {}, {0: 0.5, 1: 0.5}, recovered=-0.5)]
    sheet = sheet_of(rows)
    write_markdown(sheet, tmp_path / "t.md")
    assert (tmp_path / "t.md").read_text(encoding="utf-8") == (
        "| method | test mAP | gap an → bce |\n| :-- | --: | --: |\n| a\\|b_1 | 50.0 ± 0.0 | −50% |\n"
    )
    write_latex(sheet, tmp_path / "t.tex")
    assert (tmp_path / "t.tex").read_text(encoding="utf-8").splitlines() == [
        r"% needs \usepackage{booktabs}",
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"method & test mAP & gap an $\to$ bce \\",
        r"\midrule",
        r"a|b\_1 & 50.0 $\pm$ 0.0 & $-$50\% \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert latex(r"\{#~^&$}<") == (r"\textbackslash{}\{\#\textasciitilde{}\textasciicircum{}\&\$\}$<$")


def test_kinds_of_annotation_have_a_column(tmp_path: Path) -> None:
    rows = [
        Row("an", {}, {0: 0.5}, annotation="none", by_labels={("test", "1"): [0.5]}),
        Row("an", {}, {0: 0.4}, annotation="uniform,share=0.4", measures={"mAP-loc": [0.1, 0.2]}),
    ]
    sheet = sheet_of(rows)
    assert (sheet.columns, sheet.words) == (["method", "annotation", "test mAP", "mAP-loc"], 2)
    assert sheet.lines[1] == ["an", "uniform,share=0.4", "40.0", "15.0"]
    lines = written(rows, tmp_path)
    assert [(line["annotation"], line["mAP-loc"]) for line in lines] == [
        ("none", ""), ("uniform,share=0.4", "15.00"),
    ]  # fmt: skip
    write_by_labels(rows, tmp_path / "labels.csv")
    assert (tmp_path / "labels.csv").read_text().splitlines() == [
        "method,annotation,split,labels,mAP,spread", "an,none,test,1,50.00,",
    ]  # fmt: skip
