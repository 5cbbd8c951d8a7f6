"""The report page in a browser: it shows the data of the run, logs nothing and fetches nothing."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparselabel.metrics.label_metrics import label_metrics
from sparselabel.report.examples import look_at_scores
from sparselabel.report.page import write_report
from sparselabel.report.run_data import read_runs
from tests.report.runs import CLASSES, STRONG, TEST, WEAK, finished, make_data

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made-up")
    data = make_data(folder)
    runs = [
        finished(folder / name, data, name, scores).path for name, scores in (("an", WEAK), ("bce", STRONG))
    ]
    about = read_runs(runs)
    out = folder / "report.html"
    write_report(about, look_at_scores(about), None, out, {}, "1.2.3")
    return out


class Opened:
    """The page in a window of this kind, and what went wrong in it."""

    def __init__(self, browser: Any, page: Path, **window: Any) -> None:
        self.context = browser.new_context(**window)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(page.as_uri())

    def __enter__(self) -> "Opened":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def texts(self, selector: str) -> list[str]:
        found: list[str] = self.page.locator(selector).all_inner_texts()
        return found


def test_it_shows_what_the_runs_hold(browser: Any, page: Path) -> None:
    with Opened(browser, page) as opened:
        assert opened.texts("h1") == ["2 runs on made <up>"]
        assert opened.texts("#class-table tbody th") == list(CLASSES)
        found = label_metrics(STRONG, make_labels())["classes"]
        cells = opened.texts("#class-table tbody td:nth-child(5)")
        assert [cell.split()[0] for cell in cells[:4]] == [
            f"{100 * row['average_precision']:.1f}" for row in found[:4]
        ]
        assert opened.page.locator("#learning .chart svg").count() == 2
        widths = opened.page.eval_on_selector_all(".card img", "images => images.map(i => i.naturalWidth)")
        assert len(widths) >= 4
        assert min(widths) > 0
        assert opened.said == []
        assert [url for url in opened.asked if not url.startswith("data:")] == [page.as_uri()]


def make_labels() -> Any:
    from sparselabel.data.label_table import LabelTable

    return LabelTable(np.array([f"{row}" for row in range(len(TEST))]), CLASSES, TEST)


def test_classes_can_be_sorted_and_found(browser: Any, page: Path) -> None:
    with Opened(browser, page) as opened:
        names = "#class-table tbody tr:visible th"
        opened.page.get_by_role("button", name="an, AP, %").click()
        order = np.argsort(
            [-row["average_precision"] for row in label_metrics(WEAK, make_labels())["classes"]]
        )
        assert opened.texts(names) == [CLASSES[index] for index in order]
        heading = opened.page.locator("#class-table th", has_text="an, AP, %")
        assert heading.get_attribute("aria-sort") == "descending"
        opened.page.keyboard.press("Enter")  # the button has the focus
        assert heading.get_attribute("aria-sort") == "ascending"
        assert opened.texts(names)[-1] == CLASSES[order[0]]
        opened.page.get_by_label("Find a class").fill("X</B>")
        assert opened.texts(names) == ["<b>x</b>"]
        assert opened.texts("[data-count]") == ["1 of 5"]
        assert opened.said == []


def test_without_scripts_everything_is_there(browser: Any, page: Path) -> None:
    with Opened(browser, page, java_script_enabled=False) as opened:
        assert opened.texts("#class-table tbody th") == list(CLASSES)
        assert opened.page.get_by_label("Find a class").is_hidden()  # it could do nothing


@pytest.mark.parametrize("width", [360, 800, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_runs_off_the_screen(browser: Any, page: Path, width: int, scheme: str) -> None:
    with Opened(browser, page, viewport={"width": width, "height": 800}, color_scheme=scheme) as opened:
        assert opened.page.evaluate("document.documentElement.scrollWidth") == width
        paper, ink = (
            opened.page.evaluate(f"getComputedStyle(document.body).{name}")
            for name in ("backgroundColor", "color")
        )
        light = {
            "light": sum(numbers(paper)) > sum(numbers(ink)),
            "dark": sum(numbers(paper)) < sum(numbers(ink)),
        }
        assert light[scheme]
        assert opened.said == []


def numbers(color: str) -> list[int]:
    return [int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(",")]


def test_images_enlarge(browser: Any, page: Path) -> None:
    with Opened(browser, page) as opened:
        image = opened.page.locator(".card img").first
        image.click()
        large = opened.page.locator("#large")
        assert large.get_attribute("open") is not None
        assert large.locator("img").get_attribute("src") == image.get_attribute("src")
        assert "test&" in large.locator("p").inner_text()
        file, *about = large.locator("p").inner_text().split(", ")
        assert file == opened.page.locator(".card .file").first.inner_text()
        assert about
        assert file not in about
        opened.page.keyboard.press("Escape")
        image.focus()
        opened.page.keyboard.press("Enter")
        assert large.get_attribute("open") is not None
        large.get_by_role("button").click()
        assert large.get_attribute("open") is None
        assert opened.said == []


def test_a_wide_table_says_that_it_moves_sideways(browser: Any, page: Path) -> None:
    told = "getComputedStyle(document.querySelector('[aria-label=\"Table of runs\"]'), '::before').content"
    with Opened(browser, page, viewport={"width": 360, "height": 800}) as opened:
        assert "Move sideways" in opened.page.evaluate(told)
    with Opened(browser, page, viewport={"width": 1600, "height": 800}) as opened:
        assert opened.page.evaluate(told) == "none"


def test_print_is_light(browser: Any, page: Path) -> None:
    with Opened(browser, page, color_scheme="dark") as opened:
        opened.page.emulate_media(media="print", color_scheme="dark")
        assert sum(numbers(opened.page.evaluate("getComputedStyle(document.body).color"))) < 200
        assert numbers(opened.page.evaluate("getComputedStyle(document.body).backgroundColor")) == [255] * 3
        assert opened.page.locator("nav").is_hidden()
