"""Next questions, and the progress that a review reports."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparselabel.data.dataset import Dataset
from sparselabel.errors import ConfigError
from sparselabel.review import session
from sparselabel.review.answer_log import AnswerFile
from sparselabel.review.complete_images import CompleteImageReview
from sparselabel.review.question_order import Pool
from sparselabel.review.session import LEASE_SECONDS, Leases, Review, rows_of
from tests.review.made_up import CLASSES, COUNT, SCORES, make_data


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_data(tmp_path_factory.mktemp("made-up"))


def entries(review: Review, count: int, column: int | None = None, **more: object) -> list[tuple[int, int]]:
    return [(q["row"], q["class"]) for q in review.next(count, column, **more)]  # type: ignore[arg-type]


def test_the_most_useful_come_first_and_answers_change_them(data: Dataset, tmp_path: Path) -> None:
    with AnswerFile(tmp_path / "a.csv") as file:
        review = Review(data.train, SCORES, file)
        first = entries(review, 3)
        assert first == [(0, 1), (0, 2), (1, 0)]  # (0, 0) is known; every class has four known positives
        for row, column in ((0, 1), (1, 2)):
            review.answer(row, column, "yes")
        assert entries(review, 2) == [(1, 0), (0, 2)]  # class 0 has the fewest known positives now
        # What somebody looks at counts as asked: the same as asking for three at once.
        assert entries(review, 2, without=[(1, 0)]) == entries(review, 3)[1:] == [(0, 2), (2, 0)]


def test_one_class_and_what_was_skipped(data: Dataset, tmp_path: Path) -> None:
    with AnswerFile(tmp_path / "a.csv") as file:
        review = Review(data.train, SCORES, file)
        unknown = [row for row in range(COUNT) if row % 3 != 1]
        assert entries(review, 99, 1) == [(row, 1) for row in unknown]
        review.answer(0, 1, "skip")
        review.answer(5, 2, "skip")
        assert entries(review, 9, skipped=True) == [(0, 1), (5, 2)]
        assert entries(review, 1, 1) == [(2, 1)]
        review.answer(0, 1, "no")
        assert entries(review, 9, skipped=True) == [(5, 2)]


def test_a_summary_counts_and_expects(data: Dataset, tmp_path: Path) -> None:
    with AnswerFile(tmp_path / "a.csv") as file:
        review = Review(data.train, SCORES, file)
        start = review.summary()
        unknown = data.train.observed.values == -1
        assert (start["known"], start["ahead"]) == (12, 24)
        assert start["expected"] == pytest.approx(SCORES[unknown].sum(), abs=0.01)
        for row, column, word in ((0, 1, "no"), (0, 2, "no"), (1, 0, "no"), (1, 2, "yes"), (2, 1, "skip")):
            review.answer(row, column, word)
        done = review.summary()
        counts = {name: done[name] for name in ("yes", "no", "skip", "answered", "found", "classes", "ahead")}
        assert counts == {
            "yes": 1, "no": 3, "skip": 1, "answered": 5, "found": 1, "classes": 1, "ahead": 19
        }  # fmt: skip
        left = unknown.copy()
        left[[0, 0, 1, 1, 2], [1, 2, 0, 2, 1]] = False
        assert (
            done["expected"] < SCORES[left].sum() - 2
        )  # scores of 0.9 that are wrong say something of others


def test_it_goes_on_where_it_was(data: Dataset, tmp_path: Path) -> None:
    with AnswerFile(tmp_path / "a.csv", "ann") as file:
        review = Review(data.train, SCORES, file)
        for word in ("yes", "no", "skip"):
            question = review.next(1)[0]
            review.answer(question["row"], question["class"], word)
        review.answer(0, 1, "no")  # somebody changed their mind
        before, coming = review.summary(), entries(review, 24)
    with AnswerFile(tmp_path / "a.csv", "bob") as file:
        review = Review(data.train, SCORES, file)
        assert (review.summary(), entries(review, 24)) == (before, coming)
        ((first,), *_) = [review.take_back() for _ in range(4)]
        assert [first[key] for key in ("row", "class", "answer", "before")] == [0, 1, "yes", "no"]
        assert review.take_back() == []
        assert review.summary()["answered"] == 0
    with AnswerFile(tmp_path / "a.csv") as file:
        review = Review(data.train, SCORES, file)
        assert (review.summary()["answered"], review.take_back()) == (0, [])


def test_answers_about_other_images_do_not_count(data: Dataset, tmp_path: Path) -> None:
    with AnswerFile(tmp_path / "a.csv") as file:
        file.add([("elsewhere.jpg", "cat", 1), (str(data.train.paths[0]), "cow", 1)])
        assert Review(data.train, SCORES, file).summary()["answered"] == 0


def test_a_image_without_scores_is_not_asked_about_and_is_valid_json(data: Dataset, tmp_path: Path) -> None:
    scores = SCORES.copy()
    scores[0] = np.nan  # it could not be read
    with AnswerFile(tmp_path / "a.csv") as file:
        review = Review(data.train, scores, file)
        for row in (0, 1):
            review.answer(row, 2, "skip")
        assert entries(review, 9, skipped=True) == [(1, 2)]
        assert not any(row == 0 for row, _ in entries(review, 99))
        review.answer(0, 1, "yes")
        (undone,) = review.take_back()
        assert (undone["row"], undone["score"], undone["chance"]) == (0, None, None)
        json.dumps([undone, review.next(9), review.summary()], allow_nan=False)


def test_only_images_with_answers_are_looked_up(data: Dataset) -> None:
    names = data.train.paths.tolist()
    assert rows_of({names[3], "elsewhere.jpg"}, data.train) == {names[3]: 3}


def test_wrong_answers_are_refused(data: Dataset, tmp_path: Path) -> None:
    with AnswerFile(tmp_path / "a.csv") as file:
        review = Review(data.train, SCORES, file)
        with pytest.raises(ConfigError, match="an answer is yes, no, skip, not 'perhaps'"):
            review.answer(0, 0, "perhaps")
        with pytest.raises(ConfigError, match="image 12 and class 0 are not there: rows go to 11"):
            review.answer(12, 0, "yes")
        assert file.answers == []


def test_more_questions_are_fetched_when_they_run_out(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "FEWEST", 1)
    with AnswerFile(tmp_path / "a.csv") as file:
        review = Review(data.train, SCORES, file)
        asked = set()
        while found := review.next(1):
            asked.add((found[0]["row"], found[0]["class"]))
            review.answer(found[0]["row"], found[0]["class"], "no")
        assert len(asked) == 24


def test_whole_images_are_random_and_complete(data: Dataset, tmp_path: Path) -> None:
    with AnswerFile(tmp_path / "c.csv") as file:
        review = CompleteImageReview(data.train, SCORES, file)
        rows = [question["row"] for question in review.next(99)]
        assert sorted(rows) == list(range(COUNT))
        assert rows != list(range(COUNT))
        review.take({"row": rows[0], "present": [0, 2]})
        review.take({"row": rows[1], "present": []})
        assert review.next(1)[0]["row"] == rows[2]
        goal = {"more": 10, "within": 0.1}  # 28 more would be wanted, and ten are there
        assert review.summary() == {"answered": 2, "mean": 1.0, "error": 1.0, "can_undo": True, "goal": goal}
        said = {
            label: value
            for (image, label), value in file.last_words().items()
            if image == review.name_of(rows[0])
        }
        assert said == {CLASSES[0]: 1, CLASSES[1]: 0, CLASSES[2]: 1}
    with AnswerFile(tmp_path / "c.csv") as file:
        review = CompleteImageReview(data.train, SCORES, file)
        assert review.summary()["answered"] == 2
        (undone,) = review.take_back()
        assert undone["row"] == rows[1]
        assert [index for index, ticked in undone["classes"] if ticked] == [rows[1] % 3]
        with pytest.raises(ConfigError, match="class 9 are not there"):
            review.take({"row": 0, "present": [9]})


def test_a_thousand_classes_and_many_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page asks for is found in a pool of a few questions a class; the scores are read once."""
    scores = np.random.default_rng(0).random((400, 1000), dtype=np.float32).astype(np.float16)
    observed = np.full(scores.shape, -1, np.int8)
    made: list[int] = []
    original = Pool.of

    def of(*given: Any, **more: Any) -> Pool:
        made.append(1)
        return original(*given, **more)

    monkeypatch.setattr(Pool, "of", of)
    names = np.array([f"{row}.jpg" for row in range(400)])
    part = SimpleNamespace(
        truth=SimpleNamespace(classes=tuple(map(str, range(1000)))),
        observed=SimpleNamespace(matrix=observed),
        paths=names,
        __len__=lambda: 400,
    )
    with AnswerFile(tmp_path / "a.csv") as file:
        review = Review(part, scores, file)  # type: ignore[arg-type]
        review.refuse_unknown = lambda row, column: None  # type: ignore[method-assign]
        for _ in range(20):
            question = review.next(6)[0]
            review.answer(question["row"], question["class"], "yes")
            assert review.summary()["ahead"] == 50
        assert made == [1]


def test_a_page_is_of_one_class_and_is_saved_and_undone_as_one(data: Dataset, tmp_path: Path) -> None:
    with AnswerFile(tmp_path / "a.csv", "ann") as file:
        review = Review(data.train, SCORES, file)
        page = entries(review, 24, grid=True)
        assert page == [(row, 2) for row in range(COUNT) if row % 3 != 2]  # of it the most yes are expected
        after = entries(review, 24, grid=True, without=page)
        assert {column for _, column in after} == {1}  # the page that is shown counts
        answers = [
            {"row": row, "class": column, "answer": "no" if at == 1 else "yes"}
            for at, (row, column) in enumerate(page)
        ]
        with pytest.raises(ConfigError, match="not 'maybe'"):
            review.take({"answers": [*answers, {"row": 0, "class": 1, "answer": "maybe"}]})
        assert file.answers == []  # all or none
        review.take({"answers": answers})
        assert [answer.value for answer in file.answers] == [1, 0, *[1] * 6]
        undone = review.take_back()
        assert [(one["row"], one["class"]) for one in undone] == page
        assert [one["before"] for one in undone][:3] == ["yes", "no", "yes"]
        assert (review.summary()["answered"], review.take_back()) == (0, [])


def test_labels_that_an_image_has_are_told(data: Dataset, tmp_path: Path) -> None:
    with AnswerFile(tmp_path / "a.csv") as file:
        review = Review(data.train, SCORES, file)
        assert review.question(1, 0)["known"] == [CLASSES[1]]
        review.answer(1, 2, "yes")
        review.answer(1, 1, "no")  # what was observed is corrected
        assert review.question(1, 0)["known"] == [CLASSES[2]]


def test_people_take_back_their_own(data: Dataset, tmp_path: Path) -> None:
    with AnswerFile(tmp_path / "a.csv", "ann") as file:
        review = Review(data.train, SCORES, file)
        review.answer(0, 1, "skip", "ann")
        review.answer(1, 0, "yes", "bob")
        review.answer(0, 1, "yes", "bob")  # what ann could not tell
        assert review.take_back("ann") == []
        assert review.said((0, 1)) == 1
        assert [one["row"] for one in review.take_back("bob")] == [0]
        assert review.said((0, 1)) == -2
        assert [answer.reviewer for answer in file.answers] == ["ann", "bob", "bob", "bob"]


def test_no_image_is_shown_to_two_people(data: Dataset, tmp_path: Path) -> None:
    now = [0.0]
    with AnswerFile(tmp_path / "a.csv") as file:
        for review in (Review(data.train, SCORES, file), CompleteImageReview(data.train, SCORES, file)):
            review.leases = Leases(lambda: now[0])

            def rows(page: str, count: int = 4) -> set[int]:
                return {question["row"] for question in review.next(count, page=page)}  # noqa: B023

            first, second = rows("ann"), rows("bob")
            assert not first & second
            now[0] += LEASE_SECONDS / 2
            review.leases.renew("ann")
            now[0] += LEASE_SECONDS / 2 + 1  # bob is silent for too long
            assert rows("cid", 99) == set(range(COUNT)) - first
            review.leases.release("cid")
            assert second <= rows("dan", 99)


@pytest.mark.parametrize("row", [-1, 12, 10**9])
@pytest.mark.parametrize("present", [[], [1]])
def test_labels_of_an_image_that_is_not_there(
    data: Dataset, tmp_path: Path, row: int, present: list[int]
) -> None:
    with AnswerFile(tmp_path / "answers.csv") as file:
        review = CompleteImageReview(data.train, SCORES, file)
        with pytest.raises(ConfigError):
            review.take({"row": row, "present": present})
        assert file.answers == []


def test_people_come_and_go_while_others_ask() -> None:
    """Threads of the server share the leases."""
    leases, errors = Leases(), []

    def somebody(name: str) -> None:
        try:
            for number in range(2000):
                leases.hold(f"{name}{number % 50}", [(number, 0)])
                leases.of_others(name)
                leases.release(f"{name}{(number + 25) % 50}")
        except RuntimeError as error:
            errors.append(error)

    threads = [threading.Thread(target=somebody, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
