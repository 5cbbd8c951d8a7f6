"""The report page holds the data of the runs."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from sparselabel.data.dataset import Dataset
from sparselabel.errors import ConfigError, RunError
from sparselabel.files import write_json
from sparselabel.metrics.bootstrap import paired_bootstrap
from sparselabel.metrics.label_metrics import label_metrics
from sparselabel.report.examples import DRAWS, Scored, look_at_scores, read_missing
from sparselabel.report.page import checked_page, write_report
from sparselabel.report.run_data import read_runs
from sparselabel.run import Run
from tests.report.runs import CLASSES, STRONG, TEST, WEAK, Tables, finished, hidden_labels, make_data


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_data(tmp_path_factory.mktemp("made-up"))


def page_of(*runs: Run, notes: dict[str, str] | None = None, scored: bool = True) -> str:
    about = read_runs([run.path for run in runs])
    out = runs[0].path.parent / "report.html"
    looked = look_at_scores(about) if scored else Scored()
    write_report(about, looked, read_missing(about), out, notes or {}, "1.2.3")
    return out.read_text(encoding="utf-8")


def write_maps(run: Run, split: str, rows: list[int], classes: list[int]) -> None:
    """Maps as ``evaluate.maps`` writes them, with logits from -1 to 2."""
    cells = np.broadcast_to(np.linspace(-1, 2, 4, dtype=np.float32).reshape(2, 2), (len(rows), 2, 2))
    scores = np.full(len(rows), 0.625, np.float32)
    np.savez(run.maps_file(split), rows=rows, classes=classes, scores=scores, cells=cells)


def write_missing(run: Run) -> None:
    """Row 0 has both of its classes, of which one label is hidden; row 3 has no class 2."""
    hidden = int(np.flatnonzero(read_runs([run.path]).data.train.observed.values[0, :2] != 1)[0])
    scores = np.array([0.875, 0.25], np.float32)
    np.savez(run.missing_file, rows=np.array([0, 3]), classes=np.array([hidden, 2]), scores=scores)


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def test_the_page_of_one_run(tmp_path: Path, data: Dataset) -> None:
    page = page_of(finished(tmp_path / "an", data, "an", WEAK))
    tables = Tables(page).found
    measured = label_metrics(WEAK, data.split("test").observed)
    rows = tables["Average precision of classes"]
    assert rows[0] == ["class", "training labels", "test images", "AP, %"]
    for index, (row, found) in enumerate(zip(rows[1:], measured["classes"], strict=True)):
        ap = "–" if CLASSES[index] == "never" else percent(found["average_precision"])
        assert row == [
            CLASSES[index], str(data.train.observed.counts()[index]), str(TEST[:, index].sum()), ap
        ]  # fmt: skip
    mean = measured["mean_average_precision"]["sklearn"]["mean"]
    assert f"It reaches a test mAP of {percent(mean)} % on 6 images of made &lt;up&gt;." in page
    assert ["mAP", percent(mean)] in tables["All measures"]
    assert ["OF1 at 0.5", percent(measured["at_threshold"]["OF1"])] in tables["All measures"]
    assert tables["Numbers: Validation mAP"] == [["epoch", "an"], ["1", "25.0"], ["2", "50.0"], ["3", "75.0"]]
    assert tables["Numbers: Loss: labels"][1:] == [["1", "0.5000"], ["2", "0.2500"], ["3", "0.1667"]]
    # Of 4 hidden labels 1, 2, 3 were scored in 0.6..0.65, the others in 0.15..0.2.
    assert tables["Numbers: Scored above 0.5"][1:] == [["1", "25.0"], ["2", "50.0"], ["3", "75.0"]]
    assert [row[0] for row in tables["Numbers: an"]] == ["epoch", "1", "2", "3"]
    assert tables["Numbers: an"][1][1] == "0.18"  # half of the four lie below 2/3 of the bin from 0.15 to 0.2
    one = measured["by_number_of_labels"]["1"]
    assert tables["Numbers: By number of labels"][1] == [
        f"1 ({one['images']})", percent(one["average_precision"]["mean_of_present"])
    ]  # fmt: skip
    assert len(tables["Numbers: By size of things"]) == 1 + 5
    highest = tables["Numbers: Highest score"]
    inside = (WEAK.max(axis=1) >= 0.96).mean()
    assert highest[-1] == ["0.96 to 1", f"{100 * inside:.2f}"]


def test_the_page_of_two_runs(tmp_path: Path, data: Dataset) -> None:
    runs = finished(tmp_path / "an-0", data, "an", WEAK), finished(tmp_path / "bce-0", data, "bce", STRONG)
    tables = Tables(page := page_of(*runs)).found
    weak, strong = (label_metrics(scores, data.split("test").observed) for scores in (WEAK, STRONG))
    means = [found["mean_average_precision"]["sklearn"]["mean"] for found in (weak, strong)]
    assert "<h1>2 runs on made &lt;up&gt;</h1>" in page
    lead = " ".join(re.sub(r"<[^>]*>", "", page).split())
    fair = "of the runs that did not see the hidden labels"
    assert f"an has the highest test mAP {fair}: {percent(means[0])} %." in lead
    assert f"bce, which saw all labels, reaches {percent(means[1])} %." in lead
    first, second = tables["Table of runs"][1:]
    assert [first[0], first[1], first[2].strip()] == ["an", "an", percent(means[0])]
    assert second[:2] == ["bce", "bce saw all labels"]
    difference = f"{percent(means[1])} {100 * (means[1] - means[0]):+.1f}"
    judged = paired_bootstrap(WEAK, STRONG, TEST, DRAWS)
    assert second[2] == difference + ("" if judged.zero_outside else " may be chance")
    assert f"95 % interval {100 * judged.low:+.1f} to {100 * judged.high:+.1f}".replace("-", "−") in page
    assert second[4:] == ["62.5", "3 of 3", "5"]
    cow = tables["Average precision of classes"][3]
    before, after = (found["classes"][2]["average_precision"] for found in (weak, strong))
    difference = f"{100 * (after - before):+.1f}".replace("-", "−")
    assert cow[3:] == [percent(before), f"{percent(after)} {difference}"]
    assert tables["Numbers: Validation mAP"][0] == ["epoch", "an", "bce"]
    assert "Where the runs differ" in page
    assert "Least expected" not in page


def test_everything_is_escaped_and_nothing_is_fetched(tmp_path: Path, data: Dataset) -> None:
    page = page_of(finished(tmp_path / "<i>run</i>", data, "an", WEAK))
    assert "<b>x</b>" not in page
    assert "<i>run" not in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page
    assert "a &amp; &#34;b&#34;" in page
    assert re.findall(r"https?:|//[a-z]|@import|url\(", page.replace("// Sorts tables", "")) == []
    assert {*re.findall(r'(?:src|href)="([^"#,]*)', page)} <= {"", "data:image/webp;base64", "data:"}
    assert "default-src 'none'; img-src data:" in page


def test_how_it_was_made(tmp_path: Path, data: Dataset) -> None:
    run = finished(tmp_path / "an", data, "an", WEAK)
    page = page_of(run)
    assert f"sparselabel train &#39;my data&#39; --out {run.path}</pre>" in page
    for fact in ("<dd>5</dd>", data.train.digest, data.split("test").digest, "<dd>3.11.7</dd>"):
        assert fact in page
    assert "method = &#34;an&#34;" in page
    assert "Written by sparselabel 1.2.3" in page


def test_an_estimate_of_k_that_is_not_trusted(tmp_path: Path, data: Dataset) -> None:
    run = finished(tmp_path / "en", data, "en", WEAK)
    said = {
        "how": "auto",
        "K": 2.4,
        "interval": [1.5, 4],
        "trusted": False,
        "why": "<i>",
        "images": 4,
        "classes": [],
    }
    run.expected_file.write_text(json.dumps(said))
    page = page_of(run)
    assert "trusted: 2.40 (1.50 – 4.00); &lt;i&gt;. What to do: label 40 random training images" in page
    run.expected_file.write_text(json.dumps(said | {"trusted": True}))
    assert "not to be trusted" not in page_of(run)


def test_images_and_maps(tmp_path: Path, data: Dataset) -> None:
    run = finished(tmp_path / "an", data, "an", WEAK)
    without = page_of(run, notes={"images": "the model is gone"})
    assert "Without heat maps: the model is gone" in without
    assert without.count('alt="Image test&amp;') > 4
    assert 'alt="Where an sees' not in without
    row, index = np.unravel_index(np.where(TEST == 1, WEAK, -1).argmax(), WEAK.shape)
    write_maps(run, "test", [int(row)], [int(index)])
    write_missing(run)
    page = page_of(run)
    assert page.count('alt="Where an sees') >= 1
    assert "all maps of this page have one scale" in page
    assert "are attention" not in page
    assert ">attention" not in page
    # Logits from -1 to 2: 0.5 is a third of the way.
    low, high = np.percentile(np.linspace(-1, 2, 4), [2, 98])
    assert f'left:{round(100 * (0 - low) / (high - low), 1)}%">0.5</span>' in page
    listed = Tables(page).found["Likely missing labels"]
    assert [row[2:] for row in listed] == [["score", "really there"], ["0.875", "yes"], ["0.250", "no"]]
    assert "<b>1 of the 2</b> likeliest are there" in page


def test_maps_of_query2label_are_attention(tmp_path: Path, data: Dataset) -> None:
    runs = [
        finished(tmp_path / "q2l", data, "an", WEAK, classifier="query2label"),
        finished(tmp_path / "an", data, "an", STRONG),
    ]
    row, index = np.unravel_index(np.where(TEST == 1, WEAK, -1).argmax(), WEAK.shape)
    for run in runs:
        write_maps(run, "test", [int(row)], [int(index)])
    shares = np.array([[[0.0005, 0.0495], [0.2, 0.75]]], np.float32)
    cells = np.log(shares / (1 - shares))  # as ``evaluate.maps`` writes attention
    np.savez(runs[0].maps_file("test"), rows=[row], classes=[index], scores=[0.625], cells=cells)
    write_missing(runs[0])
    no_score = "whether the class is there or not: shares that add up to 1 over a map, and no scores."
    below = "are attention: where the model looked for the class, not scores of cells."

    page = page_of(runs[0])
    assert (
        "where the model looked for the class. Beside its name is the score of the whole image. A map is"
        in page
    )
    assert no_score in page
    assert "speak most for the class" not in page
    assert page.count('alt="Where q2l looked for') == page.count(", attention</span>") >= 1
    assert 'alt="Where q2l sees' not in page
    assert f"Maps {below}" in page

    page = page_of(*runs)
    assert "A map is light in the cells that speak most" in page
    assert "Maps of <b>q2l</b> are attention instead" in page
    assert no_score in page
    assert page.count('alt="Where q2l looked for') == page.count(">attention</span>") >= 1
    assert page.count('alt="Where an sees') >= 1
    assert f"Maps of q2l {below}" in page


def test_images_that_have_moved(tmp_path: Path) -> None:
    data = make_data(tmp_path)
    run = finished(tmp_path / "an", data, "an", WEAK)
    (tmp_path / "images").rename(tmp_path / "elsewhere")
    page = page_of(run, notes={"images": "images/test0.png cannot be read"})
    assert "Without heat maps: images/test0.png cannot be read" in page
    assert 'alt="Image' not in page
    assert "test&amp;0" in page  # named all the same


def test_labels_that_are_not_complete(tmp_path: Path) -> None:
    data = make_data(tmp_path, hidden_labels(TEST))
    page = page_of(finished(tmp_path / "an", data, "an", WEAK))
    assert (
        "The <b>observed-label mAP</b>, and all that is counted here, takes a label that nobody gave" in page
    )
    assert "reaches a test observed-label mAP of" in page
    assert "Numbers: By number of labels" not in page
    assert "Certain, but not labeled" in page


def test_data_with_nothing_but_training(tmp_path: Path) -> None:
    data = make_data(tmp_path, None)
    page = page_of(finished(tmp_path / "an", data, "an", None))
    assert "neither a test nor a validation split" in page
    assert "Table of classes" not in page
    assert 'id="learning"' in page


def test_complete_training_labels(tmp_path: Path) -> None:
    data = make_data(tmp_path, sparsify="none")
    page = page_of(finished(tmp_path / "bce", data, "bce", WEAK))
    assert 'id="missing"' not in page
    assert "saw all labels" not in page


def test_a_combination_that_saw_hidden_labels_is_an_oracle(tmp_path: Path, data: Dataset) -> None:
    runs = finished(tmp_path / "an", data, "an", WEAK), finished(tmp_path / "all", data, "bce+asl", STRONG)
    page = page_of(*runs)
    lines = Tables(page).found["Table of runs"]
    assert [line[1].split() for line in lines[1:]] == [["an"], ["bce+asl", "saw", "all", "labels"]]
    assert '<tr class="best"><th scope="row">' in page
    assert page.index('<tr class="best">') < page.index("bce+asl <span")


def test_headings_say_what_was_measured(tmp_path: Path, data: Dataset) -> None:
    runs = [finished(tmp_path / name, data, name, WEAK) for name in ("an", "wan")]
    for run in runs:
        found = {"name": "observed-label mAP", "value": 0.25}
        write_json(run.result_file, run.result() | {"validation": found})
    lines = Tables(page_of(*runs)).found["Table of runs"]
    assert lines[0][2:4] == ["test mAP, %", "validation observed-label mAP, %"]
    assert lines[1][3] == "25.0"


def test_runs_that_were_trained_on_other_labels(tmp_path: Path, data: Dataset) -> None:
    runs = [finished(tmp_path / name, data, name, WEAK) for name in ("an", "wan")]
    said = "are those of <b>an</b>; other training images or labels had: wan."
    assert said not in page_of(*runs)
    about = runs[1].metadata()
    about["data_digest"]["train"] = "other"
    write_json(runs[1].path / "run.json", about)
    assert said in page_of(*runs)


def test_missing_labels_of_other_training_data_are_not_shown(tmp_path: Path, data: Dataset) -> None:
    run = finished(tmp_path / "an", data, "an", WEAK)
    write_missing(run)
    found = read_missing(read_runs([run.path]))
    assert found is not None
    assert found.rows.tolist() == [0, 3]
    about = run.metadata()
    about["data_digest"]["train"] = "other"  # the data was prepared anew, with the same test
    write_json(run.path / "run.json", about)
    assert read_missing(read_runs([run.path])) is None


def test_scores_that_are_missing(tmp_path: Path, data: Dataset) -> None:
    page = page_of(finished(tmp_path / "an", data, "an", WEAK), notes={"scores": "no model"}, scored=False)
    assert "They could not be shown: no model" in page
    assert "Average precision of classes" in page  # training has measured them


def test_where_a_report_goes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"`out` must end in .html, but is .*report.pdf"):
        checked_page(tmp_path / "report.pdf")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(RunError, match=r"folder.html is a folder, and a file is needed: name another file"):
        checked_page(tmp_path / "folder.html")
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"report.html cannot be written \(.*file is a file, not a folder\)"):
        checked_page(tmp_path / "file" / "report.html")
    assert checked_page(tmp_path / "new" / "report.html") == tmp_path / "new" / "report.html"
    assert not (tmp_path / "new").exists()
