from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sparselabel.errors import ConfigError, RunError
from sparselabel.inference.predictor import Prediction
from sparselabel.report import gallery
from sparselabel.report.gallery import Gallery, check_gallery
from tests.report.test_browser import CHROMIUM, FLAGS

ODD = "</script><script>document.title='taken'</script>"


def predicted(image: Path, *labels: tuple[str, float], error: str | None = None) -> Prediction:
    return Prediction(str(image), labels, np.zeros(0), error)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "my photos").mkdir()
    made = Gallery(tmp_path / "out" / "look.html", "runs & more")
    labels = [(("cat", 0.61), (ODD, 0.5)), (("cat", 0.93),), ()]
    for number, of_image in enumerate(labels):
        file = tmp_path / "my photos" / f"{number} <b>.png"
        Image.new("RGB", (800, 200 + number)).save(file)
        made.write(predicted(file, *of_image))
    made.write(predicted(tmp_path / "broken.jpg", error="broken"))
    assert made.finish() == f"{tmp_path / 'out' / 'look.html'}: a gallery of 3 images"
    return tmp_path / "out" / "look.html"


def test_nothing_of_a_name_becomes_markup(page: Path) -> None:
    text = page.read_text()
    assert "<b>" not in text
    assert text.count("<script") == 2  # the data and ours
    assert "runs &amp; more" in text
    assert "../my%20photos/0%20%3Cb%3E.png" in text
    assert "broken.jpg" not in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text


def test_a_gallery_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "MOST", 1)
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    made = Gallery(tmp_path / "look.html", "run")
    for _ in range(3):
        made.write(predicted(tmp_path / "a.png"))
    assert made.finish().endswith("a gallery of 1 image; 2 more than the 1 of a gallery")
    assert "2 more are not shown" in (tmp_path / "look.html").read_text()


def test_what_is_in_the_way(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        check_gallery(tmp_path / "look.png", force=False)
    assert caught.value.what == "gallery"
    (tmp_path / "look.html").touch()
    with pytest.raises(RunError, match="exists already"):
        check_gallery(tmp_path / "look.html", force=False)
    check_gallery(tmp_path / "look.html", force=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


def test_labels_are_searched(page: Path, browser: Any) -> None:
    tab = browser.new_page(viewport={"width": 390, "height": 800})
    heard: list[str] = []
    tab.on("console", lambda message: heard.append(message.text))
    tab.on("pageerror", lambda error: heard.append(str(error)))
    tab.goto(page.as_uri())
    assert tab.title() == "runs & more: predictions"
    assert tab.locator("figure").count() == 3
    assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    tab.get_by_role("button", name="cat 2").click()
    assert tab.locator("figcaption li:first-child span").all_inner_texts() == ["93", "61"]  # the surest first
    tab.get_by_role("button", name="cat 2").click()
    tab.get_by_role("button", name="no label 1").click()
    assert tab.locator("figcaption li").all_inner_texts() == ["no label"]
    tab.get_by_role("button", name="no label 1").click()
    tab.fill("#words", "SCRIPT")
    assert tab.locator("figure").count() == 1
    assert tab.locator("figcaption b").all_inner_texts() == ["cat", ODD]
    tab.fill("#words", "1 <b>")
    file = tab.locator(".file")
    assert file.all_inner_texts() == ["1 <b>.png"]  # the folder is the same of all
    assert file.get_attribute("title") == str(page.parents[1] / "my photos" / "1 <b>.png")
    assert heard == []
    tab.close()
