"""A reviewer's session in a browser."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparselabel
from sparselabel.data.answers import last_words, read_answers
from sparselabel.data.dataset import Dataset
from tests.report.test_browser import CHROMIUM, FLAGS, numbers
from tests.review.made_up import CLASSES, HOSTILE, make_data, served

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
MOST_KEYS = 100
TREE = Path(sparselabel.__file__).parents[1]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_data(tmp_path_factory.mktemp("made-up"))


class Window:
    """The page in a window of this kind, one question at a time or a grid, and what went wrong in it."""

    def __init__(self, browser: Any, address: str, mode: str = "one", **window: Any) -> None:
        self.context = browser.new_context(**window)
        self.page = self.context.new_page()
        self.pressed = 0
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(f"{address}#{mode}")
        api.expect(self.page.locator("#details")).not_to_be_empty()  # the page's rules forbid other waiting

    def __enter__(self) -> "Window":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def sees(self, **texts: str) -> None:
        """Wait until these parts of the page contain these texts."""
        for name, text in texts.items():
            api.expect(self.page.locator(f"#{name}")).to_contain_text(text)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.pressed += 1
            assert self.pressed <= MOST_KEYS  # a test that waits for what never comes ends
            self.page.keyboard.press(key)
            api.expect(self.page.locator("body[aria-busy]")).to_have_count(0)

    def click(self, name: str) -> None:
        """Click a button once the page is ready: what is pressed before is dropped on purpose."""
        api.expect(self.page.locator("body[aria-busy]")).to_have_count(0)
        self.page.get_by_role("button", name=name, exact=True).click()

    def choose(self, label: str) -> None:
        self.page.get_by_role("combobox", name="Ask about").select_option(label=label)
        api.expect(self.page.locator("body[aria-busy]")).to_have_count(0)

    def loads_images(self, count: int) -> None:
        """Wait until the page has asked for so many images."""
        for _ in range(200):
            if len({url for url in self.asked if "/image/" in url}) >= count:
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"the page asked for {self.asked} only")

    def image(self) -> str:
        """The name of the image that is shown."""
        text: str = self.page.locator("#details").inner_text()
        return text[text.index("a b") : text.index(".png") + 4]


def words(file: Path) -> list[int]:
    return list(last_words(read_answers(file)).values())


def test_a_whole_session(browser: Any, data: Dataset, tmp_path: Path) -> None:
    file = tmp_path / "answers.csv"
    with served(data, file) as server, Window(browser, server.address) as window:
        # Known positives: four of each class. The first row has cat observed; its second class comes first.
        window.sees(question=f"Is there {HOSTILE} in this image?", counts="0 answered: 0 yes")
        window.sees(details="Score 0.96, about", gain="training knows 12 positive labels; each yes adds one")
        window.sees(run="runs/<i>first</i>", kept="Every answer is saved at once, in")
        assert window.page.title() == "Review of runs/<i>first</i>"
        for image in ("#image", "#map"):
            api.expect(window.page.locator(image)).to_have_js_property("naturalWidth", 90)
        assert window.page.locator("#map").get_attribute("alt") == f"Heat map: where the model sees {HOSTILE}"
        first = window.image()
        window.loads_images(3)  # two of them before they are asked about
        window.press("y")
        window.sees(
            counts="1 answered: 1 yes, 0 no, 0 skipped", gain="you have found 1 missing label of 1 class"
        )
        window.sees(announce=f"Yes: {HOSTILE}. Is there")
        assert words(file) == [1]
        window.press("n", "s")
        window.sees(counts="3 answered: 1 yes, 1 no, 1 skipped")
        assert words(file) == [1, 0, -2]
        fourth = window.page.locator("#question").inner_text()
        window.press("u", "u")
        window.sees(counts="1 answered: 1 yes, 0 no, 0 skipped", announce="Taken back. Is there")
        assert words(file) == [1]
        assert [answer.value for answer in read_answers(file)] == [1, 0, -2, None, None]
        window.press("n", "s")
        window.sees(question=fourth, counts="3 answered: 1 yes, 1 no, 1 skipped")
        # Arrows move without answering, and back to what was answered, which can be changed.
        window.press("ArrowRight", "ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowLeft")
        window.sees(details="You said yes.")
        assert window.image() == first
        assert window.page.locator("#yes").get_attribute("class") == "said"
        window.press("ArrowLeft")  # there is nothing before it
        window.press("n")
        window.sees(counts="3 answered: 0 yes, 2 no, 1 skipped")
        window.press("m")
        assert window.page.locator("#map").is_hidden()
        assert window.page.locator("#heat").get_attribute("aria-pressed") == "false"
        window.press("m")
        assert window.page.locator("#map").is_visible()
        # The mouse does it too; a filter by class; what was skipped.
        window.choose("cat")
        window.sees(question="Is there a cat in this image?")
        window.click("Yes")
        window.sees(counts="4 answered: 1 yes, 2 no, 1 skipped", question="Is there a cat in this image?")
        window.choose("what was skipped")
        window.sees(question="in this image?")
        assert window.page.evaluate("document.activeElement.id") != "only"  # keys answer again
        window.click("No")
        window.sees(question="No skipped question is left.", counts="4 answered: 1 yes, 3 no, 0 skipped")
        assert window.said == []
        assert window.page.title() == "Review of runs/<i>first</i>"
        assert [url for url in window.asked if not url.startswith(server.address)] == []
    assert sorted(words(file)) == [0, 0, 0, 1]


def test_going_on_until_nothing_is_left(browser: Any, data: Dataset, tmp_path: Path) -> None:
    file = tmp_path / "answers.csv"
    with served(data, file) as server, Window(browser, server.address) as window:
        for number in range(24):  # twelve images, two unknown labels each
            window.sees(counts=f"{number} answered")
            window.press("y")
        window.sees(question="Nothing is left to ask about.", counts="24 answered: 24 yes")
        window.press("y", "ArrowRight")
        window.press("u")
        window.sees(counts="23 answered", question="Is there")
    with served(data, file) as server, Window(browser, server.address) as window:
        window.sees(counts="23 answered: 23 yes")
        window.press("n")
        window.sees(question="Nothing is left to ask about.")
    assert sorted(words(file)) == [0] + [1] * 23


def test_a_crash_loses_nothing(browser: Any, data: Dataset, tmp_path: Path) -> None:
    file = tmp_path / "answers.csv"
    run = [sys.executable, "-m", "tests.review.made_up", str(data.folder), str(file)]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TREE), str(root)])}

    def start() -> "tuple[subprocess.Popen[str], str]":
        process = subprocess.Popen(run, stdout=subprocess.PIPE, text=True, cwd=root, env=environment)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    process, address = start()
    try:
        with Window(browser, address) as window:
            window.press("y", "n", "s", "y")
            window.sees(counts="4 answered: 2 yes, 1 no, 1 skipped")
            asked = window.page.locator("#question").inner_text(), window.image()
            process.send_signal(signal.SIGKILL)
            process.wait()
            window.press("y")
            window.sees(problem="The program does not answer any more. Start it again", counts="4 answered")
            assert (window.page.locator("#question").inner_text(), window.image()) == asked
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    assert words(file) == [1, 0, -2, 1]
    process, address = start()
    try:
        with Window(browser, address) as window:
            window.sees(counts="4 answered: 2 yes, 1 no, 1 skipped")
            assert (window.page.locator("#question").inner_text(), window.image()) == asked
            window.press("u")
            window.sees(counts="3 answered: 1 yes, 1 no, 1 skipped")
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_a_image_that_cannot_be_shown(browser: Any, tmp_path: Path) -> None:
    data = make_data(tmp_path)
    data.train.path(0).write_bytes(b"no image")
    data.train.path(1).unlink()
    with served(data, tmp_path / "answers.csv") as server, Window(browser, server.address) as window:
        window.sees(problem="a b1?&#'<.png cannot be shown and was passed over.")
        window.sees(question="Is there", counts="0 answered")
        assert window.image() not in ("a b0?&#'<.png", "a b1?&#'<.png")
        window.press("y")
        window.sees(counts="1 answered: 1 yes")
        assert window.page.locator("#problem").is_hidden()


def test_the_keyboard_alone_reaches_everything(browser: Any, data: Dataset, tmp_path: Path) -> None:
    with served(data, tmp_path / "answers.csv") as server, Window(browser, server.address) as window:
        reached = []
        for _ in range(11):
            window.page.keyboard.press("Tab")
            reached.append(window.page.evaluate("document.activeElement.id"))
            assert window.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        assert reached == [
            "no",
            "skip",
            "yes",
            "back",
            "undo",
            "heat",
            "next",
            "only",
            "mode",
            "finish",
            "name",
        ]
        window.page.locator("#only").focus()
        window.page.keyboard.press("y")  # in the list it is a letter
        window.sees(counts="0 answered")
        window.page.locator("#no").focus()
        window.press("Enter")
        window.sees(counts="1 answered: 0 yes, 1 no")
        assert window.page.evaluate("document.activeElement.id") == "no"  # it keeps the focus
        names = window.page.eval_on_selector_all(
            "button, select, input, img", "all => all.filter(one => one.offsetParent).map(one => "
            "one.textContent || one.alt || one.labels[0].textContent)"
        )  # fmt: skip
        assert all(name.strip() for name in names)
        assert window.said == []


@pytest.mark.parametrize("width", [360, 800, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_screen(browser: Any, data: Dataset, tmp_path: Path, width: int, scheme: str) -> None:
    look = {"viewport": {"width": width, "height": 760}, "color_scheme": scheme}
    with served(data, tmp_path / "a.csv") as server, Window(browser, server.address, "", **look) as window:
        window.press("Space", "ArrowRight", "s")
        assert window.page.evaluate("document.documentElement.scrollWidth") == width
        ratios = window.page.evaluate(CONTRASTS)
        assert len(ratios) >= 24
        assert {name: ratio for name, ratio in ratios if ratio < 4.5} == {}
        box = window.page.locator("#save").bounding_box()
        assert box["height"] >= 44
        assert box["y"] + box["height"] <= 760  # seen without scrolling
        window.press("g")
        window.sees(question="Is there")
        assert window.page.evaluate("document.documentElement.scrollWidth") == width
        ratios = window.page.evaluate(CONTRASTS)
        assert len(ratios) >= 14
        assert {name: ratio for name, ratio in ratios if ratio < 4.5} == {}
        for name in ("no", "skip", "yes"):
            box = window.page.locator(f"#{name}").bounding_box()
            assert box["height"] >= 44
            assert box["y"] + box["height"] <= 760  # seen without scrolling
        paper = numbers(window.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert (sum(paper) > 380) == (scheme == "light")
        if "REVIEW_SHOTS" in os.environ:
            api.expect(window.page.locator("#map")).to_have_js_property("naturalWidth", 90)
            window.page.screenshot(path=Path(os.environ["REVIEW_SHOTS"]) / f"made-up-{width}-{scheme}.png")


CONTRASTS = """() => {
  const parts = (color) => color.match(/[0-9.]+/g).map(Number);
  const light = (color) => parts(color).slice(0, 3).map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const paper = (one) => {
    const color = getComputedStyle(one).backgroundColor;
    return parts(color)[3] === 0 ? paper(one.parentElement) : color;
  };
  return [...document.querySelectorAll("p, h1, button, b, small, select, label")]
    .filter((one) => one.offsetParent && one.textContent.trim())
    .filter((one) => one.getAttribute("aria-disabled") !== "true")
    .map((one) => {
      const [a, b] = [light(getComputedStyle(one).color), light(paper(one))];
      return [one.id || one.textContent, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
    });
}"""


def test_motion_is_reduced_where_it_is_asked_for(browser: Any, data: Dataset, tmp_path: Path) -> None:
    with (
        served(data, tmp_path / "a.csv") as server,
        Window(browser, server.address, reduced_motion="reduce") as window,
    ):
        duration = "getComputedStyle(document.querySelector('#map')).transitionProperty"
        assert window.page.evaluate(duration) in ("none", "all")
        assert window.page.evaluate(duration.replace("Property", "Duration")) == "0s"


def pressed(window: Window) -> list[int]:
    """Places of the images that are marked as wrong."""
    states = window.page.locator(".tile").evaluate_all("all => all.map(one => one.ariaPressed)")
    return [at for at, state in enumerate(states) if state == "true"]


def test_many_images_at_a_time(browser: Any, data: Dataset, tmp_path: Path) -> None:
    file = tmp_path / "answers.csv"
    look = {"viewport": {"width": 1200, "height": 760}}
    with served(data, file) as server, Window(browser, server.address, "", **look) as window:
        page = window.page
        window.sees(question=f"Which images show {CLASSES[2]}?", saving="Save 4 yes, 4 no")
        window.sees(details="8 images, the likeliest first. 4 are taken for yes, 4 for no (✕): change")
        assert page.locator(".tile").count() == 8
        assert page.locator(".tile small").first.inner_text() == "has cat"
        api.expect(page.locator(".tile img").first).to_have_js_property("naturalWidth", 90)
        # Keys: arrows go, space and n mark, s is not sure; a click marks, and marks off.
        assert page.evaluate("document.activeElement.className") == "tile yes"
        assert pressed(window) == [4, 5, 6, 7]  # what is likelier
        window.press("ArrowRight", "Space", "ArrowDown", "n", "ArrowUp", "ArrowRight", "s")
        assert pressed(window) == [1, 4, 5, 6]
        window.sees(saving="Save 3 yes, 4 no, 1 not sure")
        page.locator(".tile").nth(7).click()
        assert page.locator(".tile kbd").all_inner_texts() == [*"12345678"]
        window.press("5")  # the key that the image shows
        assert pressed(window) == [1, 5, 6, 7]
        window.press("y")  # and all before it
        assert pressed(window) == [5, 6, 7]
        window.press("Shift+Digit4")  # it and all that follow
        assert pressed(window) == [3, 4, 5, 6, 7]
        for wanted in ([3, 4, 7], [3, 4, 5, 6, 7]):  # a drag marks what it touches as the first
            page.locator(".tile").nth(6).hover()
            page.mouse.down()
            page.locator(".tile").nth(5).hover()
            page.mouse.up()
            assert pressed(window) == wanted
        window.press("4", "2", "3", "s")
        assert pressed(window) == [1, 4, 5, 6, 7]
        window.sees(counts="0 answered")
        assert words(file) == []
        window.press("Enter")
        window.sees(counts="8 answered: 2 yes, 5 no, 1 skipped", announce="8 answers given. Which images")
        window.sees(question=f"Which images show {HOSTILE}?", pace="seconds per answer")
        assert words(file) == [1, 0, -2, 1, 0, 0, 0, 0]
        # Undo brings the whole page back as it was; the one that was shown comes after it.
        window.press("u")
        window.sees(question=f"Which images show {CLASSES[2]}?", counts="0 answered")
        assert (pressed(window), words(file)) == ([1, 4, 5, 6, 7], [])
        window.press("Enter")
        window.sees(question=f"Which images show {HOSTILE}?", counts="8 answered")
        window.click("Heat map")
        assert page.locator(".tile img").count() == 16
        page.locator(".tile").first.focus()
        window.press("e")
        api.expect(page.locator("#largest")).to_have_js_property("naturalWidth", 90)
        window.press("Enter")  # closes it, and saves nothing
        api.expect(page.locator("#large")).not_to_have_attribute("open", "")
        window.sees(counts="8 answered")
        # The other mode, and back.
        window.press("g")
        window.sees(question="Is there", known="Labels it has: ")
        window.press("y")
        window.sees(counts="9 answered")
        window.click("Many at a time")
        for counts in ("17 answered", "24 answered"):
            window.sees(question="Which images show")
            page.locator(".tile").first.focus()
            window.press("Enter")
            window.sees(counts=counts)
        window.sees(question="Nothing is left to ask about.", counts="24 answered")
        assert window.said == []
        assert page.title() == "Review of runs/<i>first</i>"


def test_an_impatient_second_press_does_not_switch_back(browser: Any, data: Dataset, tmp_path: Path) -> None:
    with served(data, tmp_path / "a.csv") as server, Window(browser, server.address) as window:
        there, ask = threading.Event(), server.review.next
        server.review.next = lambda *given, **more: there.wait(60) and ask(*given, **more)  # type: ignore
        window.click("Many at a time")
        for key in ("Enter", "g", "Enter"):
            window.page.keyboard.press(key)
        there.set()
        window.sees(question="Which images show", other="One at a time")
        window.press("g")
        window.sees(question="Is there", other="Many at a time")
        assert window.page.locator(".tile").count() == 0


@pytest.mark.parametrize("mode", ["", "one"])
def test_what_could_not_be_saved_can_be_answered_again(
    browser: Any, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    file, (key, saved) = tmp_path / "a.csv", ("y", 1) if mode else ("Enter", 8)
    with served(data, file) as server, Window(browser, server.address, mode) as window:
        question = window.page.locator("#question").inner_text()
        with monkeypatch.context() as full:
            full.setattr(server.review.answers, "_write", no_room)
            for _ in range(2):
                window.press(key)
                window.sees(problem="could not be saved (No space left on device): make room, then answer")
                window.sees(question=question, counts="0 answered")
        window.press(key)
        window.sees(counts=f"{saved} answered")
        window.press("u")
        window.sees(counts="0 answered", question=question)
    assert len(read_answers(file)) == 2 * saved


def test_whoever_has_no_name_yet_sees_where_to_write_it(browser: Any, data: Dataset, tmp_path: Path) -> None:
    look = {"viewport": {"width": 390, "height": 760}}
    with served(data, tmp_path / "a.csv") as server:
        server.about["reviewer"] = ""  # as where it is shared
        with Window(browser, server.address, "", **look) as window:
            window.sees(problem="Write your name first")
            box = window.page.locator("#name").bounding_box()
            assert box["y"] + box["height"] <= window.page.locator(".tile").first.bounding_box()["y"]
            window.page.locator("#name").fill("bob")
            window.page.locator("#name").blur()
            api.expect(window.page.locator("#problem")).to_be_hidden()
            assert window.page.locator("#name").bounding_box()["y"] > 760  # below the images again


def no_room(content: bytes) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_two_people_answer_all_of_it_once(browser: Any, data: Dataset, tmp_path: Path) -> None:
    file = tmp_path / "answers.csv"
    with (
        served(data, file) as server,
        Window(browser, server.address) as bob,
        Window(browser, server.address, "") as ann,
    ):
        bob.page.get_by_label("Your name").fill("bob")
        bob.page.locator("#no").focus()
        for _ in range(3):
            bob.press("n")
        shown = ann.page.locator(".tile").evaluate_all("all => all.map(one => one.title)")
        assert bob.image() not in shown
        for window in (ann, bob, ann, bob):
            window.press("Enter" if window is ann else "n")
        answers = read_answers(file)
        assert {answer.reviewer for answer in answers} == {"ann <b>", "bob"}
        assert len({(answer.image, answer.label) for answer in answers}) == len(answers)


class MadeUpTraining:
    """Trains nothing, in two steps."""

    def __init__(self) -> None:
        self.asked = 0

    def start(self) -> None:
        self.asked = 1

    def status(self) -> dict[str, Any]:
        if not self.asked:
            return {"state": "none"}
        about = {"run": "runs/<i>second</i>", "epoch": self.asked - 1, "epochs": 2}
        self.asked += 1
        if self.asked < 4:
            return about | {"state": "running"}
        change = {
            "trusted_before": 1,
            "trusted_after": 3,
            "classes": 3,
            "split": "test",
            "before": 0.5,
            "complete": False,
        }
        return about | {"state": "done", "change": change | {"after": 0.625, "low": 0.1, "high": 0.2}}


def test_finish_and_train(browser: Any, data: Dataset, tmp_path: Path) -> None:
    more: dict[str, Any] = {
        "retraining": MadeUpTraining(),
        "finish": lambda: {"trusted_before": 1, "trusted": 2, "all_classes": 3},
    }
    with (
        served(data, tmp_path / "answers.csv", **more) as server,
        Window(browser, server.address, "", viewport={"width": 390, "height": 760}) as window,
    ):
        box = window.page.locator("#save").bounding_box()
        assert box["y"] + box["height"] <= 760  # seen without scrolling
        window.click("Finish")
        window.sees(brought="0 answers in")
        assert window.page.locator("#train").get_attribute("aria-disabled") == "true"
        window.click("Go on answering")
        window.press("ArrowRight", "Enter")  # the first key waits until the page is there
        window.sees(counts="8 answered")
        window.click("Finish")
        window.sees(brought="8 answers in", trusted="2 of 3 can be trusted now, 1 could before")
        window.click("Train with the answers")
        window.sees(training="Training runs/<i>second</i>: epoch 1 of at most 2.")
        window.sees(training="The new run is in runs/<i>second</i>.")
        window.sees(
            change="on the test images: 50.0 before, 62.5 now. Labels that nobody gave count as wrong there"
        )
        window.sees(change="Thresholds that can be trusted: 1 of 3 before, 3 now.")
        assert window.page.evaluate("document.documentElement.scrollWidth") == 390
        assert window.said == []


def test_whole_images(browser: Any, data: Dataset, tmp_path: Path) -> None:
    file = tmp_path / "complete.csv"
    look: dict[str, Any] = {"viewport": {"width": 360, "height": 760}}
    with served(data, file, whole=True) as server, Window(browser, server.address, **look) as window:
        window.sees(question="What is in this image?", counts="0 images done")
        boxes = window.page.get_by_role("checkbox")
        assert [box.is_checked() for box in boxes.all()] == [True, False, False]  # what is observed
        window.page.get_by_label("Find a class").fill("IMG SRC")
        assert window.page.locator(".choice:visible").all_inner_texts() == [HOSTILE]
        window.page.get_by_label("Find a class").fill("")
        for name in CLASSES:
            window.page.get_by_label(name, exact=True).set_checked(name != "cat")
        window.click("Done: nothing else is there")
        window.sees(counts="1 image done", gain="so far an image has 2.00 classes")
        assert sorted(words(file)) == [0, 1, 1]
        window.click("Done: nothing else is there")
        window.sees(counts="2 images done", gain="1.50 ± 0.50 (standard error) classes")
        window.click("Undo")
        window.sees(counts="1 image done", announce="Taken back.")
        assert len(words(file)) == 3
        assert window.page.evaluate("document.documentElement.scrollWidth") == 360
        assert window.said == []
    with served(data, file, whole=True) as server, Window(browser, server.address) as window:
        window.sees(counts="1 image done")


def test_the_browser_is_debians() -> None:
    if CHROMIUM is not None:
        assert shutil.which("chromium") == CHROMIUM
