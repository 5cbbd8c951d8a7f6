from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparselabel.config import FinetunePhase, Handling, Machine
from sparselabel.data.answers import Answer, with_answers
from sparselabel.data.dataset import Dataset
from sparselabel.errors import ConfigError, DataError, DataWarning, RunError
from sparselabel.expected_positives.class_counts import read_expected
from sparselabel.expected_positives.from_complete_labels import complete_labels
from sparselabel.losses.expected_negatives import ExpectedLabels
from sparselabel.training.estimate_positives import expected_positives
from sparselabel.training.resolve import method_of, resolve
from sparselabel.training.train_run import train_run
from tests.training.conftest import tiny


def write(file: Path, data: Dataset, rows: range, *, zeros: bool) -> Path:
    truth = data.train.truth.values
    lines = ["image,label,value"]
    for row in rows:
        for number, name in enumerate(data.classes):
            if truth[row, number] or zeros:
                lines.append(f"{data.train.paths[row]},{name},{truth[row, number]}")
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.mark.parametrize("zeros", [True, False])
def test_complete_labels_are_counted(small: Dataset, tmp_path: Path, zeros: bool) -> None:
    file = write(tmp_path / "full.csv", small, range(5, 45), zeros=zeros)
    labels = complete_labels(file, small)
    assert np.array_equal(labels.values, small.train.truth.values[5:45])
    found = expected_positives(small, tiny(), "counted", file)
    assert found.why == "counted in 40 images"
    assert found.per_image == pytest.approx(labels.values.sum() / 40, rel=0.1)  # bounds may move it


def test_estimated_from_features_that_are_kept(small: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparselabel.expected_positives.from_features.REPEATS", 2)
    config = tiny()
    found = expected_positives(small, config, machine=Machine(workers=0), quiet=True)
    assert found.how == "auto"
    assert not found.trusted
    assert "only 61 images have a label" in found.why
    assert found.per_image >= 1
    kept = [*(small.folder / "features").glob("train-*.npy")]
    assert any(np.load(file).shape[0] == 61 for file in kept)
    again = expected_positives(small, config, machine=Machine(workers=0), quiet=True)
    assert np.array_equal(found.expected, again.expected)


def test_answers_are_not_taken_for_annotations(small: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparselabel.expected_positives.from_features.REPEATS", 2)
    truth, paths = small.train.truth.values, small.train.paths
    found = [(row, column) for row in range(20) for column in np.flatnonzero(truth[row] == 1)]
    answers = [Answer(str(paths[row]), small.classes[column], 1) for row, column in found]
    seen = with_answers(small, answers, "answers.csv")
    several = (seen.train.observed.values == 1).sum(1) > 1
    assert several.mean() > 0.15  # too many for strays: it would be estimated in another way
    before = expected_positives(small, tiny(), machine=Machine(workers=0), quiet=True)
    after = expected_positives(seen, tiny(), machine=Machine(workers=0), quiet=True)
    assert after.why == before.why
    assert after.annotated.tolist() == (seen.train.observed.values == 1).sum(0).tolist()
    assert after.expected.tolist() == np.maximum(before.expected, after.annotated).tolist()


def test_what_does_not_go_together(small: Dataset, tmp_path: Path) -> None:
    file = write(tmp_path / "full.csv", small, range(3), zeros=True)
    with pytest.raises(ConfigError, match="name a table with `labels`"):
        expected_positives(small, tiny(), "counted")
    with pytest.raises(ConfigError, match="give `how=counted`"):
        expected_positives(small, tiny(), "auto", file)


def test_labels_of_other_data_are_refused(small: Dataset, tmp_path: Path) -> None:
    file = write(tmp_path / "full.csv", small, range(3), zeros=True)
    text = file.read_text()
    file.write_text(text.replace(f",{small.classes[0]},", ",unicorn,"))
    with pytest.raises(DataError, match="the data has no unicorn"):
        complete_labels(file, small)
    file.write_text("\n".join(text.splitlines()[:-1]) + "\n")
    with pytest.raises(DataError, match="1 of 3 images have unknown labels"):
        complete_labels(file, small)
    file.write_text(text.replace(str(small.train.paths[0]), str(small.split("test").paths[0])))
    with pytest.raises(DataError, match="1 of 3 images are in test, not in training") as raised:
        complete_labels(file, small)
    assert (raised.value.where, raised.value.value) == ("test", 1)
    assert raised.value.remedies == ("leave them out",)


def test_an_empty_cell_is_not_counted_as_absent(small: Dataset, tmp_path: Path) -> None:
    truth, file = small.train.truth.values, tmp_path / "wide.csv"
    lines = [f"image,{','.join(small.classes)}"]
    for row in range(3):
        cells = ["1" if there else "" for there in truth[row].tolist()]
        lines.append(",".join([str(small.train.paths[row]), *cells]))
    file.write_text("\n".join(lines) + "\n")
    first = small.classes[int(np.argmin(truth[0]))]
    with pytest.raises(DataError, match=f"3 of 3 images have unknown labels .{first} on .* and label"):
        complete_labels(file, small)
    file.write_text(f"image,label,value\n{small.train.paths[0]},{small.classes[0]},\n")
    with pytest.raises(DataError, match="1 of 1 image have unknown labels"):
        complete_labels(file, small)


def test_a_image_that_is_not_there_is_named_without_a_flag_of_another_command(
    small: Dataset, tmp_path: Path
) -> None:
    (tmp_path / "full.csv").write_text("image,label\nnowhere.png,tree\n")
    with pytest.raises(DataError, match=r"'nowhere.png' is not in .*: name images relative to") as error:
        complete_labels(tmp_path / "full.csv", small)
    assert error.value.parameters == []


def test_training_with_estimated_positives(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparselabel.expected_positives.from_features.REPEATS", 2)
    config = tiny("en", settings={"expected_positives": "auto"}, finetune=FinetunePhase(epochs=0))
    machine, handling = Machine(workers=0, accelerator="cpu"), Handling(quiet=True)
    train_run(small, config, tmp_path / "auto", machine, handling)
    kept = read_expected(tmp_path / "auto" / "expected.json", small.classes)
    assert kept.how == "auto"
    # The file of one run serves another.
    file = str(tmp_path / "auto" / "expected.json")
    given = tiny("en", settings={"expected_positives": file}, finetune=FinetunePhase(epochs=0))
    train_run(small, given, tmp_path / "given", machine, handling)
    with Path(file).open("a") as appended:
        appended.write("\n")
    with pytest.raises(RunError, match="a file of expected positives of the same name, but of other content"):
        train_run(small, given, tmp_path / "given", machine, Handling(quiet=True, resume=True))
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("auto", "given")]
    assert weights[0] == weights[1]
    (tmp_path / "auto" / "result.json").unlink()
    again = train_run(small, config, tmp_path / "auto", machine, Handling(quiet=True, resume=True))
    assert again["epochs"] == 2


def test_a_method_takes_the_counts_of_classes_or_their_sum(small: Dataset) -> None:
    counts = expected_positives(small, tiny(), machine=Machine(workers=0), quiet=True)
    config = tiny("en+cl", settings={"expected_positives": "auto"})
    part = next(part for part in method_of(config, counts).parts() if isinstance(part, ExpectedLabels))
    assert part.expected == tuple(counts.expected.tolist())
    config = tiny("epr", settings={"expected_positives": "auto"})
    assert method_of(config, counts).terms["count"].expected == pytest.approx(counts.per_image)
    for given, said in (
        ("nowhere.json", "there is no file 'nowhere.json'$"),
        ("AUTO", "there is no file 'AUTO'; auto is written in small letters$"),
        (
            "2,5",
            "a number above 0, auto, or a file that `sparselabel expect` wrote, and there is no",
        ),
        (-3.0, r"the mean number of classes in an image: above 0 and at most 12, .* not -3$"),
        (13, "at most 12, the number of classes, not 13$"),
        (float("nan"), "not nan$"),
    ):
        with pytest.raises(ConfigError, match=said):
            resolve(small, tiny("en", settings={"expected_positives": given}))
    with pytest.warns(DataWarning, match=r"is 0\.5, but already 1\.000 labels per image are annotated"):
        resolve(small, tiny("en", settings={"expected_positives": 0.5}))
    with pytest.raises(ConfigError, match="`how=counted` and `labels=TABLE`"):
        resolve(small, tiny("en", settings={"expected_positives": "counted"}))


def test_counts_of_other_data_are_refused(small: Dataset, tmp_path: Path) -> None:
    counts = expected_positives(small, tiny(), machine=Machine(workers=0), quiet=True)
    replace(counts, images=100_000).write(tmp_path / "other.json")
    with pytest.raises(DataError, match=r"made for other labels \(100,000 images"):
        resolve(small, tiny("en", settings={"expected_positives": str(tmp_path / "other.json")}))
