"""How fast a review goes, one question at a time and in the grid, by a scripted reviewer (docs/review.md).

    python -m benchmarks.review_speed RUN [--answers 240] [--goal labels] [--look 0.1]

A browser is driven by its keys, as a person would who knows the truth: RUN's data must have all labels. The
reviewer waits ``--look`` seconds for each image, in which the page prepares what comes next. Keys are
counted, and the page's own time is taken inside the page, from the key that saves until the next images are
drawn. Answers a minute are computed from these, for a stated keystroke and several stated looks.
"""

import argparse
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
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

KEY = 0.2
"""Seconds for a key (a fair typist's, Card et al. 1980)."""
LOOKS = (0.5, 0.1, 0.0)
"""Seconds that a person is taken to look at an image; 0.1 is what Krishna et al. 2016 show images for."""
HINTS = "1234567890abcdfhijklopqr"  # keys of the images of a page, as review.js has them
WATCH = """
const shown = () => [...document.querySelectorAll("#grid:not([hidden]) img, #stage:not([hidden]) #image")];
const names = () => document.getElementById("question").textContent
  + shown().map((image) => image.src).join();
addEventListener("keydown", (event) => {
  if (!(document.body.className === "grid" ? ["Enter"] : ["y", "n"]).includes(event.key)) return;
  const began = performance.now(), before = names();
  window.took = null;
  const look = () => {
    if (names() === before || !shown().every((image) => image.complete)) return requestAnimationFrame(look);
    window.took = performance.now() - began;
  };
  requestAnimationFrame(look);
}, true);
"""
"""Runs in the page: how long it is from a key that saves until other images are there."""


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

    def __init__(self, page: Page, server: ReviewServer, look: float) -> None:
        self.page, self.review, self.look = page, server.review, look
        self.truth = server.review.split.truth
        self.rows = {name: row for row, name in enumerate(server.review.split.paths.tolist())}
        self.keys = self.answers = self.wrong = 0
        self.seconds: list[float] = []

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            self.page.keyboard.press(key)
        self.keys += len(keys)

    def there(self, name: str, label: str) -> bool:
        """Whether an image shows a class."""
        return bool(self.truth.values[self.rows[name], self.truth.classes.index(label)] == POSITIVE)

    def save(self, key: str, answers: int) -> None:
        """Press the key that saves, and wait for what comes next."""
        self.press(key)
        while (took := self.page.evaluate("window.took")) is None:
            if self.page.locator("#question strong").count() == 0:
                return  # nothing is left
            time.sleep(0.01)
        self.seconds.append(took / 1000 / answers)
        self.answers += answers

    def one(self) -> None:
        """Answer the question that is shown."""
        label = self.page.locator("#question strong").inner_text()
        name = str(self.page.locator("#image").get_attribute("alt")).removeprefix("Image ")
        yes = self.there(name, label)
        self.wrong += not yes
        time.sleep(self.look)
        self.save("y" if yes else "n", 1)

    def grid(self) -> None:
        """Set the marks of a page right, by the fewest keys, and save."""
        label = self.page.locator("#question strong").inner_text()
        tiles = self.page.locator(".tile")
        names: list[str] = tiles.evaluate_all("all => all.map(one => one.title)")
        marked: list[str] = tiles.evaluate_all("all => all.map(one => one.ariaPressed)")
        no = [not self.there(name, label) for name in names]
        self.wrong += sum(no)
        time.sleep(self.look * len(names))
        self.press(*fewest_keys(no, [mark == "true" for mark in marked]))
        self.save("Enter", len(names))


def fewest_keys(no: list[bool], marked: list[bool]) -> list[str]:
    """The keys that set a page's marks right: single ones, all from one on, or all up to one."""
    one_by_one = [HINTS[at] for at in range(len(no)) if no[at] != marked[at]]
    ways = [one_by_one]
    for end in range(len(no)):
        before = [HINTS[at] for at in range(end) if no[at] != marked[at]]
        after = [HINTS[at] for at in range(end, len(no)) if no[at] != marked[at]]
        ways.append(
            [f"Shift+{_key(HINTS[end])}", *before, *(HINTS[at] for at in range(end, len(no)) if not no[at])]
        )
        ways.append([HINTS[end], "y", *(HINTS[at] for at in range(end + 1) if no[at])])
        ways[-1] += [key for key in after if key != HINTS[end]]
    return min(ways, key=len)


def _key(hint: str) -> str:
    return f"Digit{hint}" if hint.isdigit() else f"Key{hint.upper()}"


def figures(reviewer: Reviewer) -> dict[str, Any]:
    """What was measured, per answer; the page's time is the median."""
    keys, page = reviewer.keys / reviewer.answers, median(reviewer.seconds)
    return {
        "answers": reviewer.answers,
        "no, %": round(100 * reviewer.wrong / reviewer.answers),
        "keys per answer": round(keys, 2),
        "page, ms per answer": round(1000 * page, 1),
    } | {f"answers per minute at {look} s a look": round(60 / (page + KEY * keys + look)) for look in LOOKS}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--answers", type=int, default=240)
    parser.add_argument("--look", type=float, default=0.1)
    parser.add_argument("--goal", choices=["labels", "thresholds"], default="labels")
    given = parser.parse_args()
    run = Run.open(given.run)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for mode in ("one", "grid"):
            with TemporaryDirectory() as folder, served(run, given.goal, Path(folder)) as server:
                page = browser.new_page(viewport={"width": 1400, "height": 850})
                page.add_init_script(WATCH)
                page.goto(f"{server.address}#{mode}")
                expect(page.locator("#details")).not_to_be_empty()
                reviewer = Reviewer(page, server, given.look)
                while reviewer.answers < given.answers and page.locator("#question strong").count():
                    (reviewer.grid if mode == "grid" else reviewer.one)()
                page.close()
            print(given.goal, mode, figures(reviewer), flush=True)
        browser.close()


if __name__ == "__main__":
    main()
