"""How fast a review goes, one question at a time and in the grid, by a scripted reviewer (docs/review.md).

    python -m benchmarks.review_speed RUN [--answers 240] [--goal labels]

A browser is driven by its keys, as a person would who knows the truth: RUN's data must have all labels. Keys
and the page's own time (from the key that saves to the next images on the screen) are measured. How long a
person looks at an image is not; answers a minute are told for a stated look and keystroke.
"""

import argparse
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Page, expect, sync_playwright

from sparselabel.data.labels import POSITIVE
from sparselabel.inference.class_thresholds import load_class_thresholds
from sparselabel.inference.maps import MapCache
from sparselabel.inference.review_scores import review_scores, write_review_scores
from sparselabel.inference.saved_scores import saved_scores
from sparselabel.review.answer_log import AnswerFile
from sparselabel.review.server import Images, ReviewServer
from sparselabel.review.session import Review
from sparselabel.review.threshold_review import ThresholdReview
from sparselabel.run import Run

LOOK, KEY = 0.5, 0.2
"""Seconds that a person is taken to look at an image, and for a key (a fair typist's, Card et al. 1980)."""
HINTS = "1234567890abcdfhijklopqr"  # keys of the images of a page, as review.js has them


@contextmanager
def served(run: Run, goal: str, folder: Path) -> Iterator[ReviewServer]:
    """The run's review, with answers that are thrown away."""
    split = run.split("val" if goal == "thresholds" else "train")
    with AnswerFile(folder / "answers.csv", "a program") as answers:
        if goal == "thresholds":
            scores = saved_scores(run, "val").array
            review: Review = ThresholdReview(split, scores, answers, load_class_thresholds(run))
        else:
            stored = review_scores(run, split)
            review = Review(split, write_review_scores(run, split) if stored is None else stored, answers)
        maps = MapCache(run, split)
        maps.load_ahead()
        about: dict[str, Any] = {
            "run": str(run.path),
            "file": "answers.csv",
            "reviewer": "a program",
            "goal": goal,
        }
        about |= {"classes": list(review.classes), "no_training": "it is measured"}
        with ReviewServer(review, Images(split, maps.view, maps.maps), about, 0) as server:
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            yield server
            server.shutdown()
            thread.join()


class Reviewer:
    """Presses keys, and counts them and the time that the page takes."""

    def __init__(self, page: Page, server: ReviewServer) -> None:
        self.page, self.review = page, server.review
        self.truth = server.review.split.truth
        self.rows = {name: row for row, name in enumerate(server.review.split.paths.tolist())}
        self.keys = self.answers = self.wrong = 0
        self.seconds = 0.0

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            self.page.keyboard.press(key)
        self.keys += len(keys)

    def there(self, name: str, label: str) -> bool:
        """Whether an image shows a class."""
        return bool(self.truth.values[self.rows[name], self.truth.classes.index(label)] == POSITIVE)

    def ready(self) -> None:
        """Wait until everything that is to be looked at is on the screen."""
        expect(self.page.locator("body[aria-busy]")).to_have_count(0)
        images = "#grid:not([hidden]) img, #stage:not([hidden]) #image"
        for image in self.page.locator(images).all():
            expect(image).to_have_js_property("complete", True)

    def save(self, key: str, answers: int) -> None:
        """Press the key that saves, and wait for what comes next."""
        began = time.perf_counter()
        self.press(key)
        self.ready()
        self.seconds += time.perf_counter() - began
        self.answers += answers

    def one(self) -> None:
        """Answer the question that is shown."""
        label = self.page.locator("#question strong").inner_text()
        name = str(self.page.locator("#image").get_attribute("alt")).removeprefix("Image ")
        yes = self.there(name, label)
        self.wrong += not yes
        self.save("y" if yes else "n", 1)

    def grid(self) -> None:
        """Mark the wrong ones of a page, by the shortest way, and save."""
        label = self.page.locator("#question strong").inner_text()
        names: list[str] = self.page.locator(".tile").evaluate_all("all => all.map(one => one.title)")
        no = [at for at, name in enumerate(names) if not self.there(name, label)]
        self.wrong += len(no)
        end = next(
            (at for at in range(len(names)) if [*range(at, len(names))] == no[-(len(names) - at) :]), None
        )
        for at in no:
            self.press(HINTS[at])
            if at == end and len(names) - at > 2:
                self.press("x")  # and all that follow
                break
        self.save("Enter", len(names))


def figures(reviewer: Reviewer) -> dict[str, Any]:
    """What was measured, per answer."""
    keys, page = reviewer.keys / reviewer.answers, reviewer.seconds / reviewer.answers
    return {
        "answers": reviewer.answers,
        "no, %": round(100 * reviewer.wrong / reviewer.answers),
        "keys per answer": round(keys, 2),
        "page, ms per answer": round(1000 * page),
        "answers per minute without looking": round(60 / (page + KEY * keys)),
        f"answers per minute with {LOOK} s to look": round(60 / (page + KEY * keys + LOOK)),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--answers", type=int, default=240)
    parser.add_argument("--goal", choices=["labels", "thresholds"], default="labels")
    given = parser.parse_args()
    run = Run.open(given.run)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for mode in ("one", "grid"):
            with TemporaryDirectory() as folder, served(run, given.goal, Path(folder)) as server:
                page = browser.new_page(viewport={"width": 1400, "height": 850})
                page.goto(f"{server.address}#{mode}")
                expect(page.locator("#details")).not_to_be_empty()
                reviewer = Reviewer(page, server)
                reviewer.ready()
                while reviewer.answers < given.answers and page.locator("#question strong").count():
                    (reviewer.grid if mode == "grid" else reviewer.one)()
                page.close()
            print(given.goal, mode, figures(reviewer), flush=True)
        browser.close()


if __name__ == "__main__":
    main()
