import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels, LabelTable
from sparselabel.data.sparsify import keep_per_image
from sparselabel.errors import DataError, command, spell
from sparselabel.expected_positives import class_counts
from sparselabel.expected_positives.class_counts import ClassCounts, read_expected, shared_out, wilson
from sparselabel.expected_positives.from_complete_labels import counted_positives

CLASSES = ("cat", "dog", "bird", "fish")


def table(values: Labels) -> LabelTable:
    return LabelTable(np.array([str(row) for row in range(len(values))]), CLASSES, values)


def full(images: int, seed: int = 0) -> Labels:
    random = np.random.default_rng(seed)
    truth = (random.random((images, 4)) < (0.5, 0.4, 0.2, 0.3)).astype(np.int8)
    truth[~truth.any(1), 0] = 1
    return truth


def counts() -> ClassCounts:
    truth = full(200)
    return counted_positives(table(truth[:50]), table(keep_per_image(truth, 1, 0, 0)))


def test_counting_gives_k_with_its_interval() -> None:
    truth = full(2000)
    found = counted_positives(table(truth[:100]), table(keep_per_image(truth, 1, 0, 0)))
    assert found.how == "counted"
    assert found.per_image == pytest.approx(truth[:100].sum() / 100)
    assert found.interval[0] < truth.sum() / 2000 < found.interval[1]
    assert found.interval[1] - found.interval[0] == pytest.approx(4 * truth.sum(1).std() / 10, rel=0.2)
    assert found.trusted
    assert found.why == "counted in 100 images"


def test_few_counted_images_share_k_by_annotated_labels() -> None:
    truth = full(2000)
    observed = keep_per_image(truth, 1, 0, 0)
    annotated = (observed == POSITIVE).sum(0)
    few = counted_positives(table(truth[:10]), table(observed))
    by_labels = truth[:10].sum() / 10 * annotated
    own = truth[:10].mean(0) * 2000
    assert np.allclose(few.expected, by_labels + (own - by_labels) * 10 / 90)
    assert not few.trusted
    assert "fewer than 30" in few.why


def test_a_class_that_was_never_seen_has_an_interval_too() -> None:
    low, high = wilson(np.array([0.0, 5.0, 50.0]), 50)
    assert low == pytest.approx([0.0, 0.04347, 0.92865], abs=1e-5)
    assert high == pytest.approx([0.07135, 0.21360, 1.0], abs=1e-5)
    observed = np.full((1000, 4), UNKNOWN, dtype=np.int8)
    observed[np.arange(1000), np.arange(1000) % 3] = POSITIVE
    observed[:3] = np.eye(4, dtype=np.int8)[3] * 2 - 1  # fish is annotated three times, and never counted
    sample = np.tile(np.array([1, 1, 1, 0], dtype=np.int8), (50, 1))
    found = counted_positives(table(sample), table(observed))
    assert found.low[3] == 3
    assert found.high[3] == pytest.approx(71.35, abs=0.01)


def test_the_intervals_of_classes_hold_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_counts, "DRAWS", 2)  # of K's interval
    truth = full(4000)
    truth[:, 2] &= np.arange(4000) % 10 == 0  # a rare class, in about 2 % of the images
    truth[~truth.any(1), 0] = 1
    observed = table(keep_per_image(truth, 1, 0, 0))
    inside = []
    for seed in range(40):
        rows = np.random.default_rng(seed).choice(4000, 50, replace=False)
        found = counted_positives(table(truth[rows]), observed)
        inside.append((found.low <= truth.sum(0)) & (truth.sum(0) <= found.high))
    assert np.mean(inside) > 0.92
    assert np.mean(inside, axis=0).min() >= 0.85


def test_expected_positives_have_their_bounds() -> None:
    observed = np.full((40, 4), UNKNOWN, dtype=np.int8)
    observed[:30, 0] = POSITIVE  # more than the counted sample says
    observed[30:, 1] = POSITIVE
    observed[:25, 1] = NEGATIVE  # so that at most 15 remain
    sample = np.tile(np.array([0, 1, 1, 0], dtype=np.int8), (400, 1))
    found = counted_positives(table(sample), table(observed))
    assert found.expected.tolist() == [pytest.approx(found.expected[0]), 15, 0, 0]
    assert found.expected[0] >= 30


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


def test_k_is_the_samples_whatever_annotators_prefer() -> None:
    """Annotators who always name the most frequent class leave hardly a label to the others."""
    random = np.random.default_rng(0)
    truth = (random.random((1000, 4)) < (0.9, 0.7, 0.5, 0.4)).astype(np.int8)
    truth[~truth.any(1), 0] = 1
    observed = np.full_like(truth, UNKNOWN)
    observed[np.arange(1000), truth.argmax(1)] = POSITIVE  # the first class that is there
    assert (observed == POSITIVE).sum(0).tolist() == [922, 57, 13, 8]
    inside, found = [], []
    for seed in range(100):
        rows = np.random.default_rng(seed).choice(1000, 50, replace=False)
        counted = counted_positives(table(truth[rows]), table(observed), seed)
        assert counted.per_image == pytest.approx(truth[rows].sum() / 50)
        assert counted.expected[0] <= 1000
        found.append(counted.per_image)
        inside.append(counted.interval[0] <= truth.sum() / 1000 <= counted.interval[1])
    assert np.mean(found) == pytest.approx(truth.sum() / 1000, abs=0.03)  # their standard error is .012
    assert np.mean(inside) >= 0.9


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
