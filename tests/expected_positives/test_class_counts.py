import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparselabel.data.label_table import LabelTable
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN
from sparselabel.data.sparsify import keep_per_image
from sparselabel.errors import DataError, command, spell
from sparselabel.expected_positives.class_counts import ClassCounts, read_expected, shared_out
from sparselabel.expected_positives.from_complete_labels import counted_positives
from tests.expected_positives.four_classes import CLASSES, full, table


def counts() -> ClassCounts:
    truth = full(200)
    return counted_positives(table(truth[:50]), table(keep_per_image(truth, 1, 0, 0)))


def test_what_a_class_cannot_take_the_others_share() -> None:
    def shares(amount: float) -> list[float]:
        weights, least, most = np.array([6.0, 3.0, 1.0]), np.array([1, 1, 2]), np.array([10, 10, 10])
        found: list[float] = shared_out(amount, weights, least, most).tolist()
        return found

    assert shares(15) == pytest.approx([8.6667, 4.3333, 2], abs=1e-4)  # 9, 4.5 and 1.5, which is too few
    assert shares(18) == pytest.approx([10, 6, 2])  # 10.8 is too many: the others share 8 as 3 to 1
    assert shares(24) == pytest.approx([10, 10, 4])
    assert shares(1) == [1, 1, 2]
    assert shares(99) == [10, 10, 10]


def test_answers_raise_counts_only_as_far_as_they_must() -> None:
    observed = np.full((10, 4), UNKNOWN, dtype=np.int8)
    observed[:, 0] = observed[0, 1] = POSITIVE
    expected = np.array([10.0, 3.0, 6.0, 0.0])
    annotated = np.array([10, 1, 0, 0])
    before = ClassCounts(
        "auto", CLASSES, 10, annotated, expected, expected - 0.5, expected + 0.5, (1.5, 2.0), True, "so"
    )
    assert before.within(observed).expected.tolist() == [10, 3, 0, 0]  # what nobody annotated has none
    observed[:5, 1] = POSITIVE
    observed[:8, 2] = NEGATIVE
    observed[9, 2] = POSITIVE
    after = before.within(observed)
    assert after.annotated.tolist() == [10, 5, 1, 0]
    assert after.expected.tolist() == [10, 5, 2, 0]
    assert after.interval == (1.6, 2.0)
    observed[1:, 1] = NEGATIVE
    observed[0, 1] = POSITIVE
    fewer = before.within(observed)
    assert (fewer.per_image, fewer.interval) == (1.3, (1.3, 2.0))  # the interval goes down with it


def test_what_cannot_be_counted() -> None:
    truth, observed = full(40), table(keep_per_image(full(40), 1, 0, 0))
    unknown = truth.copy()
    unknown[3, 1] = UNKNOWN
    with pytest.raises(DataError, match="must have all labels"):
        counted_positives(table(unknown), observed)
    with pytest.raises(DataError, match="1 counted images say nothing"):
        counted_positives(table(truth[:1]), observed)
    with pytest.raises(DataError, match="no positive label"):
        counted_positives(table(truth), table(np.full_like(truth, UNKNOWN)))
    other = LabelTable(np.array(["a", "b"]), ("x", "y"), np.ones((2, 2), dtype=np.int8))
    with pytest.raises(DataError, match="must have the data's classes"):
        counted_positives(other, observed)


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    file, found = tmp_path / "new" / "expected.json", counts()
    found.write(file)
    written = json.loads(file.read_text())
    assert list(written) == ["how", "K", "interval", "trusted", "why", "images", "classes"]
    assert list(written["classes"][0]) == ["name", "annotated", "expected", "low", "high"]
    back = read_expected(file, CLASSES)
    assert back.how == "counted"
    assert back.trusted
    assert np.allclose(back.expected, found.expected, atol=0.005)
    assert back.interval == pytest.approx(found.interval, abs=1e-4)
    assert np.array_equal(back.annotated, found.annotated)
    turned = read_expected(file, CLASSES[::-1])
    assert np.array_equal(turned.expected, back.expected[::-1])
    assert [*tmp_path.rglob("*.partial")] == []


def test_an_estimate_that_is_not_trusted_says_what_counting_would_bring() -> None:
    found = replace(
        counts(), how="auto", trusted=False, interval=(1.5, 4.0), expected=np.full(len(CLASSES), 250.0)
    )
    found = replace(found, images=250 * len(CLASSES) // 2)  # K 2
    assert found.per_image == pytest.approx(2, abs=0.01)
    assert "label 40 random training images completely" in found.remedy
    assert command("review", "RUN", goal="count") in found.remedy
    # 1.96 √(2 · 1 / 40)
    assert found.remedy.endswith("K is then known within about 0.4 instead of 1.5 – 4.0")
    assert spell(found.remedy) in found.summary
    assert replace(found, trusted=True).remedy == ""
    assert "more random" in replace(found, how="counted").remedy


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    file = tmp_path / "expected.json"
    with pytest.raises(DataError, match=r"expected\.json is not there, or not a file"):
        read_expected(file, CLASSES)
    counts().write(file)
    with pytest.raises(DataError, match="missing: cow; unknown: fish"):
        read_expected(file, (*CLASSES[:3], "cow"))
    good = json.loads(file.read_text())
    first = good["classes"][0]

    def changed(**numbers: float) -> str:
        return json.dumps(good | {"classes": [first | numbers, *good["classes"][1:]]})

    for text, match in (
        ("{", r"expected.json cannot be read \(.*line 1, column 2"),
        ("[]", "expected.json must be an object of JSON"),
        (json.dumps({key: value for key, value in good.items() if key != "why"}), "has no 'why'"),
        (json.dumps({key: value for key, value in good.items() if key != "K"}), "has no 'K'"),
        (json.dumps(good | {"how": "guessed"}), "how cannot be 'guessed'"),
        (json.dumps(good | {"images": 0}), "`images` must be at least 1, not 0"),
        (json.dumps(good | {"interval": [2, 1]}), r"`interval` must be two numbers .* not \[2\.0, 1\.0\]"),
        (json.dumps(good | {"K": 3.5}), r"says K 3\.5, but its classes add up to 1\.\d+ per image"),
        (json.dumps(good | {"classes": [*good["classes"], first]}), "counts cat more than once"),
        (changed(annotated=1.5), "cat must have 0 to 200 annotated images, not 1.5"),
        (changed(expected=201.0), "cat must be expected in .* at most all 200, not in 201"),
        (changed(expected=first["annotated"] - 1), f"at least its {first['annotated']} annotated images"),
        (changed(high=-1.0), "cat must have 0 <= low <= high <= 200"),
        (changed(expected=float("nan")), "expected must be finite, not nan"),
        (json.dumps(good | {"interval": [1]}), "interval must be a list of 2"),
        (json.dumps(good).replace('"expected": ', '"expected": -'), "counts that cannot be"),
    ):
        file.write_text(text)
        with pytest.raises(DataError, match=match):
            read_expected(file, CLASSES)
