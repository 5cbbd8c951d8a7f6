from typing import Any

import numpy as np
import pytest

from sparselabel.config import Sparsify
from sparselabel.data.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from sparselabel.data.sparsify import (
    keep_per_class,
    keep_per_image,
    keep_share,
    keep_weighted,
    sparsify,
    split_rows,
    stratified_rows,
    subset_rows,
)
from sparselabel.data.spatial_labels import SpatialLabels
from sparselabel.errors import ConfigError, DataError
from tests.conftest import Golden


def random_truth(rows: int = 400, classes: int = 9) -> Labels:
    return (np.random.default_rng(3).random((rows, classes)) < 0.3).astype(np.int8)


def coded(observed: Labels) -> Labels:
    """Our coding as Cole 2021's program writes it: +1, 0 for unknown, -1 for an observed negative."""
    return np.asarray(np.select([observed == POSITIVE, observed == NEGATIVE], [1, -1], 0), dtype=np.int8)


def test_observed_labels_equal_the_authors(cole: Golden) -> None:
    cases = cole.of_kind("labels")
    assert len(cases) == 5
    for case in cases:
        hyper = case["hyper"]
        for split in ("train", "val"):
            truth = case["inputs"][f"labels_{split}"].astype(np.int8)
            observed = keep_per_image(truth, hyper["num_pos"], hyper["num_neg"], hyper["seed"])
            np.testing.assert_array_equal(coded(observed), case["outputs"][f"obs_{split}"])


def formula_labels(hyper: dict[str, Any], rows: int) -> Labels:
    i, j = np.arange(rows)[:, None], np.arange(hyper["L"])[None]
    truth = (hyper["a"] * i + hyper["b"] * j + hyper["c"] * i * j + hyper["d"]) % hyper["M"] < hyper["t"]
    if hyper["zero_mod"]:
        truth[np.arange(rows) % hyper["zero_mod"] == hyper["zero_rem"]] = False
    return np.asarray(truth, dtype=np.int8)


@pytest.mark.parametrize("case_id", [f"cole/observe_full{number}" for number in range(5)])
def test_observed_labels_at_full_size(cole: Golden, case_id: str) -> None:
    case = cole.cases[case_id]
    hyper, expected = case["hyper"], case["values"]["train"]
    truth = formula_labels(hyper, hyper["N_train"])
    observed = keep_per_image(truth, hyper["num_pos"], hyper["num_neg"], hyper["seed"])
    positive = observed == POSITIVE
    first = np.where(positive.any(axis=1), positive.argmax(axis=1), -1)
    assert positive.sum() == expected["n_pos"]
    assert (observed == NEGATIVE).sum() == expected["n_neg"]
    for value, name in ((POSITIVE, "wsum_pos"), (NEGATIVE, "wsum_neg")):
        rows, columns = np.nonzero(observed == value)
        assert ((rows + 1) * (columns + 1)).sum() == expected[name]
    assert first[:24].tolist() == expected["first_pos_col_head"]
    assert first[-8:].tolist() == expected["first_pos_col_tail"]
    assert first.sum() == expected["sum_first_pos_col"]


def test_split_equals_the_authors(cole: Golden) -> None:
    for number in range(7):
        case = cole.cases[f"cole/split{number}"]
        hyper = case["hyper"]
        parts = split_rows(hyper["N"], hyper["val_frac"], hyper["seed"])
        for rows, name in zip(parts, ("train", "val"), strict=True):
            expected = case["values"][name]
            assert len(rows) == expected["n"]
            assert rows.sum() == expected["sum"]
            assert ((np.arange(len(rows)) + 1) * (rows + 1)).sum() == expected["wsum"]
            assert rows[: len(expected["head"])].tolist() == expected["head"]


@pytest.mark.parametrize("number", [0, 1])
def test_subsets_equal_the_authors(cole: Golden, number: int) -> None:
    case = cole.cases[f"cole/split_subsample{number}"]
    hyper = case["hyper"]
    parts = split_rows(hyper["N"], hyper["val_frac"], hyper["seed"])
    shares = [hyper["ss_frac_train"], hyper["ss_frac_val"]]
    kept = subset_rows([len(rows) for rows in parts], shares, hyper["ss_seed"])
    assert parts[0][kept[0]].tolist() == case["outputs"]["train_idx"].tolist()
    assert parts[1][kept[1]].tolist() == case["outputs"]["val_idx"].tolist()


def test_a_share_of_nothing_leaves_validation_empty() -> None:
    train, val = split_rows(10, 0.0)
    assert train.tolist() == list(range(10))
    assert len(val) == 0


@pytest.mark.parametrize(("positives", "negatives"), [(0.4, 0.0), (0.4, 0.4), (1.0, 0.1)])
def test_shares_are_kept(positives: float, negatives: float) -> None:
    truth = random_truth(4000)
    observed = keep_share(truth, positives, negatives, seed=1)
    assert (observed[observed != UNKNOWN] == truth[observed != UNKNOWN]).all()
    for value, share in ((POSITIVE, positives), (NEGATIVE, negatives)):
        kept = (observed == value).sum() / (truth == value).sum()
        assert kept == pytest.approx(share, abs=0.02)


def test_per_class_keeps_exact_counts() -> None:
    truth = random_truth()
    observed = keep_per_class(truth, 5, 7, seed=1)
    assert ((observed == POSITIVE).sum(axis=0) == 5).all()
    assert ((observed == NEGATIVE).sum(axis=0) == 7).all()
    assert (observed[observed != UNKNOWN] == truth[observed != UNKNOWN]).all()


def test_kinds_and_seeds() -> None:
    truth = random_truth()
    single = sparsify(truth, Sparsify("single-positive"))
    assert ((single == POSITIVE).sum(axis=1) == truth.any(axis=1)).all()
    assert not (single == NEGATIVE).any()
    assert (sparsify(truth, Sparsify("uniform", share=0.5)) == UNKNOWN).mean() == pytest.approx(0.5, abs=0.03)
    assert ((sparsify(truth, Sparsify("per-image", 1, 1)) == NEGATIVE).sum(axis=1) == 1).all()
    assert (sparsify(truth, Sparsify("none")) == truth).all()
    other = sparsify(truth, Sparsify("single-positive", label_seed=1))
    assert (single != other).any()


def test_the_largest_or_the_most_frequent_class_is_kept() -> None:
    truth = np.array([[1, 1, 1], [1, 1, 0], [0, 1, 1], [0, 0, 0], [0, 0, 1]], dtype=np.int8)
    rows, classes = [0, 0, 0, 0, 1, 2], [0, 1, 2, 1, 0, 2]
    sizes = [[0.4, 0.4], [0.1, 0.2], [0.5, 0.2], [0.5, 0.5], [0.1, 0.1], [0, 0]]  # the last is a point
    spatial_labels = SpatialLabels(np.array(rows), np.array(classes), np.full((6, 2), 0.5), np.array(sizes))
    larger = Sparsify("single-positive", prefer="larger")
    kept = sparsify(truth, larger, spatial_labels)
    assert kept[:2].tolist() == [[UNKNOWN, 1, UNKNOWN], [1, UNKNOWN, UNKNOWN]]
    assert (kept == POSITIVE).sum(1).tolist() == [1, 1, 1, 0, 1]
    assert not ((kept == POSITIVE) & (truth != POSITIVE)).any()
    frequent = Sparsify("single-positive", prefer="frequent")
    kept = sparsify(truth, frequent, frequency=np.array([9, 2, 3]))
    assert (kept == POSITIVE).argmax(1)[[0, 1, 2, 4]].tolist() == [0, 0, 2, 2]
    with pytest.raises(DataError, match="needs boxes, and these 5 images have none: take `prefer=frequent`"):
        sparsify(truth, larger, spatial_labels.take([2]))
    with pytest.raises(DataError, match="needs boxes"):
        sparsify(truth, larger)


def test_ties_of_a_preference_are_drawn_by_the_seed() -> None:
    truth = np.ones((3000, 3), dtype=np.int8)
    one, again = (sparsify(truth, Sparsify("single-positive", 1, prefer="frequent")) for _ in range(2))
    other = sparsify(truth, Sparsify("single-positive", label_seed=1, prefer="frequent"))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert (one == POSITIVE).mean(0) == pytest.approx([1 / 3] * 3, abs=0.03)


def test_weights_are_chances() -> None:
    truth = np.tile(np.array([[1, 0, 1]], dtype=np.int8), (4000, 1))
    kept = keep_weighted(truth, np.tile([1.0, 5.0, 3.0], (4000, 1)), seed=0)
    assert (kept == POSITIVE).mean(0) == pytest.approx([0.25, 0, 0.75], abs=0.02)
    assert ((kept == POSITIVE).sum(1) == 1).all()


def test_bad_input_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"`share` must be in \(0, 1\], not 0"):
        Sparsify("uniform", share=0.0)
    with pytest.raises(ConfigError, match="-1 for all, not -2"):
        Sparsify("per-class", positives=-2)
    with pytest.raises(
        ConfigError, match=r"`share=0.3` is for positive-share and uniform, .*leave `share` out"
    ):
        Sparsify("single-positive", share=0.3)
    with pytest.raises(
        ConfigError, match="`positives=3` is for per-image and per-class, not for `sparsify=none`"
    ):
        Sparsify(positives=3)
    with pytest.raises(DataError, match="1 labels are unknown already"):
        sparsify(np.array([[1, UNKNOWN]], dtype=np.int8), Sparsify("single-positive"))


def test_a_stratified_split_has_every_class_in_both_parts() -> None:
    random = np.random.default_rng(4)
    counts = [400, 90, 40, 10, 5, 3, 2, 1]
    labels = np.full((600, len(counts)), UNKNOWN, np.int8)
    for column, number in enumerate(counts):
        labels[random.choice(600, number, replace=False), column] = 1
    labels[:50] = UNKNOWN  # nobody labeled these
    train, val = stratified_rows(labels, 0.2)
    assert len(val) == 120
    assert np.array_equal(np.sort(np.concatenate([train, val])), np.arange(600))
    positives = (labels == 1).sum(axis=0)
    held_out = (labels[val] == 1).sum(axis=0)
    assert held_out[2:].tolist() == [round(0.2 * number) for number in positives[2:].tolist()]
    assert np.abs(held_out - 0.2 * positives).max() < 4  # a common class on the images of a rare one
    again = stratified_rows(labels, 0.2)
    assert np.array_equal(again[1], val)


def test_a_stratified_split_of_many_small_classes_has_its_size_and_leaves_each_an_example() -> None:
    labels = np.repeat(np.eye(30, dtype=np.int8), 2, axis=0)
    train, val = stratified_rows(labels, 0.2)  # of two images a share of 0.2 is none
    assert len(val) == 12
    assert (labels[train] == 1).any(axis=0).all()
    three = np.repeat(np.eye(30, dtype=np.int8), 3, axis=0)
    train, val = stratified_rows(three, 0.2)
    assert len(val) == 18
    assert (three[val].sum(axis=0) <= 1).all()
