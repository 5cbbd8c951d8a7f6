"""``make torture``: kills, double starts, full disks, flipped bits, requests and mutated inputs.

``python -m tools.torture MINUTES [ATTACK ...]`` shares the minutes among the attacks, or these, and writes
what came out into the table of docs/reliability.md; ``--add`` adds it to what is there, for attacks of many
hours. Exits with 1 if something was lost, differed, went unnoticed or was let in.

An attack yields how often it tried something and whether all went well.
"""

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation, TrainConfig, Views
from sparselabel.data.answers import read_answers
from sparselabel.data.dataset import Dataset
from sparselabel.data.prepare import prepare
from sparselabel.data.prepared_files import open_prepared
from sparselabel.data.scenes import generate as scenes
from sparselabel.errors import SparselabelError
from sparselabel.inference.scorer import evaluation_view, load_classifier
from sparselabel.review.answer_log import AnswerFile
from sparselabel.review.server import HOST, Images, ReviewServer
from sparselabel.review.session import Review
from sparselabel.run import Run
from sparselabel.training.train_run import train_run

PAGE = Path(__file__).parent.parent / "docs" / "reliability.md"
BEGIN, END = "<!-- torture -->", "<!-- end of torture -->"
FORK = multiprocessing.get_context("fork")
FULL, NAMED, OTHER = 3, 1, 2  # exit codes of a child: the disk was full, our error, any other
Tries = Iterator[tuple[int, bool]]
METHODS = ("en+scl", "role", "pu+scl")
KILLS = 8  # of a run or a command, before it may finish


@dataclass
class Outcome:
    """How often something was tried, and how often it went wrong."""

    what: str
    tries: int = 0
    faults: int = 0


class Field:
    """Data, and runs that nothing happened to: what every other one must equal."""

    def __init__(self, folder: Path, seed: int) -> None:
        torch.set_num_threads(1)  # children are forked
        self.folder, self.random, self.number = folder, random.Random(seed), 0
        source = scenes.make(folder / "data", train=40, test=10, size=32, seed=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.data: Dataset = prepare(source, folder / "data", Preparation(sparsify="single-positive"))
        self.whole, self.seconds = {}, {}
        for method in METHODS:
            out = folder / f"whole-{method}"
            self.train(method, out)  # here, so that children need not import anything
            began = time.monotonic()
            shutil.rmtree(out)
            self.train(method, out)
            self.seconds[method] = time.monotonic() - began
            self.whole[method] = Run(out).model_file.read_bytes()

    def new(self) -> Path:
        """A folder that is not there yet."""
        self.number += 1
        return self.folder / f"new-{self.number}"

    def train(self, method: str, out: Path) -> None:
        """Train, or go on."""
        config = TrainConfig(
            method=method,
            settings={"expected_positives": 3.0},
            backbone="test_efficientnet",
            weights="none",
            views=Views(size=32),
            head=HeadPhase(epochs=3, lr=1e-2, batch_size=16),
            finetune=FinetunePhase(epochs=0),
            watch=0,
        )
        machine = Machine(accelerator="cpu", workers=0, memories="file")
        train_run(open_prepared(self.data.folder), config, out, machine, Handling(quiet=True, resume=True))

    def start_training(self, method: str, out: Path, most: int | None = None) -> "Child":
        """The same in a child; no file may have more bytes than ``most``."""

        def work() -> None:
            if most is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
            self.train(method, out)

        return Child(work)

    def same(self, method: str, out: Path) -> bool:
        """Whether a run is finished and has the model of the one that nothing happened to."""
        return Run(out).finished and Run(out).model_file.read_bytes() == self.whole[method]

    def server(self, file: Path) -> ReviewServer:
        """A review of the training images, whose answers go to a file."""
        part = self.data.train
        scores = part.truth.values.astype("float16") * 0
        images = Images(part, evaluation_view(TrainConfig(views=Views(size=32))), lambda row: scores)
        about = {"classes": list(self.data.classes)}
        return ReviewServer(Review(part, scores, AnswerFile(file, "ann")), images, about, 0)


class Child:
    """Work in another process, without a word."""

    def __init__(self, work: Callable[[], None]) -> None:
        def silent() -> None:
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
            try:
                warnings.simplefilter("ignore")
                work()
                code = 0
            except SparselabelError:
                code = NAMED
            except OSError as error:
                code = FULL if error.filename else OTHER
            except BaseException:
                code = OTHER
            os._exit(code)

        self.process = FORK.Process(target=silent)
        self.process.start()

    def wait(self) -> int:
        """Its exit code."""
        self.process.join()
        return self.process.exitcode or 0

    def kill_after(self, seconds: float) -> bool:
        """End it unless it ends by itself before; whether it was ended."""
        self.process.join(seconds)
        ended = self.process.exitcode is None
        self.process.kill()
        self.process.join()
        return ended


def kills(field: Field) -> Tries:
    """Kill a run at random moments; it goes on to the same bytes."""
    while True:
        for method in METHODS:
            out = field.new()
            done = sum(
                field.start_training(method, out).kill_after(field.random.random() * field.seconds[method])
                for _ in range(KILLS)
            )
            yield done, field.start_training(method, out).wait() == 0 and field.same(method, out)
            shutil.rmtree(out)


def double_starts(field: Field) -> Tries:
    """Start a run twice at once: one is refused by name, the other ends as it should."""
    while True:
        for method in METHODS:
            out = field.new()
            both = [field.start_training(method, out), field.start_training(method, out)]
            codes = {child.wait() for child in both}
            yield 1, codes <= {0, NAMED} and 0 in codes and field.same(method, out)
            shutil.rmtree(out)


def full_disks(field: Field) -> Tries:
    """Train on a disk that is nearly full: an error with a name, and with room the run goes on.

    The disk is one of a few hundred kilobytes in memory where it can be mounted, and a limit of files' sizes
    in turn with it.
    """
    while True:
        method = field.random.choice(METHODS)
        out, size = field.new(), int(2 ** field.random.uniform(6, 20))
        code = field.start_training(method, out, most=size).wait()
        ended = code in (0, NAMED, FULL)
        yield 1, ended and field.start_training(method, out).wait() == 0 and field.same(method, out)
        shutil.rmtree(out)
        out.mkdir()
        if not _mount(out, field.random.randrange(32, 2000)):
            continue
        try:
            code = field.start_training(method, out / "run").wait()
            ended = code in (0, NAMED, FULL)
            _mount(out, 64_000, "remount")
            done = field.start_training(method, out / "run").wait() == 0
            yield 1, ended and done and field.same(method, out / "run")
        finally:
            subprocess.run(["umount", "--lazy", out], check=True)


def _mount(folder: Path, kilobytes: int, *more: str) -> bool:
    """Give a folder a disk in memory, if this user may."""
    options = ",".join([f"size={kilobytes}k", *more])
    words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return os.geteuid() == 0 and not subprocess.run(words, check=False, capture_output=True).returncode


@dataclass(frozen=True)
class Command:
    """A command as users give it, ``out`` standing for what it writes, and what it must come to."""

    words: tuple[str, ...]
    out: str
    good: Callable[[Path, Path], bool]  # what was killed and given again, and what nothing happened to
    broken: Callable[[Path], bool] = lambda out: False  # what nobody may find under the name after a kill
    kills: int = KILLS


def _same_files(folder: Path, other: Path) -> bool:
    """Whether two folders have the same files, without what tells of times and places."""
    files = [
        {
            path.relative_to(root): path.read_bytes()
            for pattern in ("**/*.npy", "**/*.safetensors", "**/thresholds.json")
            for path in root.glob(pattern)
        }
        for root in (folder, other)
    ]
    return bool(files[0]) and files[0] == files[1]


def _same_lines(file: Path, other: Path) -> bool:
    return file.read_bytes() == other.read_bytes()


def _torn_archive(file: Path) -> bool:
    if not file.exists():
        return False
    with zipfile.ZipFile(file) as archive:
        return archive.testzip() is not None


def _commands(field: Field) -> dict[str, Command]:
    data, run = str(field.data.folder), str(field.folder / "whole-role")
    images = str(field.data.train.root)
    table = field.folder / "labels.csv"
    truth = field.data.train.truth
    rows = [
        f"{name},{label},1\n"
        for name, values in zip(field.data.train.paths, truth.values, strict=True)
        for label, value in zip(truth.classes, values, strict=True)
        if value == 1
    ]
    table.write_text("image,label,value\n" + "".join(rows), encoding="utf-8")
    small = ("--backbone", "test_efficientnet", "--weights", "none", "--views.size", "32", "--workers", "0")
    epochs = ("--head.epochs", "2", "--finetune.epochs", "0", "--watch", "0", "--accelerator", "cpu")
    return {
        "prepare": Command(
            ("prepare", "table", str(table), "--images", images, "--force", "--out"), "data", _same_files
        ),
        "predict": Command(
            ("predict", run, images, "--batch", "2", "--workers", "0", "--resume", "--out"),
            "tags.csv",
            _same_lines,
        ),
        "compare": Command(
            ("compare", data, "--methods", "an", "en", *small, *epochs, "--frozen", "--out"),
            "comparison",
            _same_files,
        ),
        "export": Command(
            ("export", run, "--force"), "model.pt2", lambda out, _: not _torn_archive(out), _torn_archive, 2
        ),
    }


def killed_commands(field: Field) -> Tries:
    """Kill commands at random moments, and give them again: what comes out is as if nothing had been."""
    commands = _commands(field)
    whole, seconds = {}, {}
    for name, command in commands.items():
        whole[name] = field.new() / command.out
        _give(command, whole[name])
        shutil.rmtree(whole[name].parent)
        began = time.monotonic()
        _give(command, whole[name])
        seconds[name] = time.monotonic() - began
    while True:
        for name, command in commands.items():
            out = field.new() / command.out
            done, good = 0, True
            for _ in range(command.kills):
                child = Child(lambda command=command, out=out: _give(command, out))  # type: ignore[misc]
                done += child.kill_after(field.random.random() * seconds[name])
                good &= not command.broken(out)
                if name == "predict" and out.exists():  # finished: it is not done twice
                    out.unlink()
            code = Child(lambda command=command, out=out: _give(command, out)).wait()  # type: ignore[misc]
            yield done, good and code == 0 and command.good(out, whole[name])
            shutil.rmtree(out.parent)


def _give(command: Command, out: Path) -> None:
    """Run a command in this process."""
    from sparselabel.cli import app

    out.parent.mkdir(exist_ok=True)
    with open(os.devnull, "w") as void, contextlib.redirect_stdout(void), contextlib.redirect_stderr(void):  # noqa: PTH123
        app([*command.words, str(out)], result_action="return_value")


def killed_reviews(field: Field) -> Tries:
    """Kill a review while it takes answers: what it said was saved is there, and the file is whole."""
    while True:
        file = field.new()
        for _ in range(KILLS):
            ready = FORK.SimpleQueue()

            def serve(file: Path = file, ready: Any = ready) -> None:
                with field.server(file) as server:
                    ready.put((server.port, server.token))
                    server.serve_forever()

            before = len(read_answers(file)) if file.is_file() and file.stat().st_size else 0
            child = Child(serve)
            port, token = ready.get()
            killer = threading.Timer(field.random.random() / 4, child.process.kill)
            killer.start()
            saved = _answers(field.random, port, token, most=10_000)
            killer.join()
            child.wait()
            with AnswerFile(file, "ann") as kept:
                lost = len(kept.answers) < before + saved
            yield 1, not lost
        file.unlink()


def _answers(random: random.Random, port: int, token: str, most: int, name: str = "") -> int:
    """Answer questions until the server is gone; how many it said were saved."""
    saved = 0
    with contextlib.suppress(http.client.HTTPException, OSError), _connection(port) as connection:
        while saved < most:
            given = {"row": random.randrange(30), "class": random.randrange(5), "reviewer": name}
            given["answer"] = random.choice(["yes", "no", "skip"])
            if _post(connection, port, f"/{token}/answer", json.dumps(given).encode())[0] != 200:
                break
            saved += 1
    return saved


@contextlib.contextmanager
def _connection(port: int) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(HOST, port, timeout=20)
    try:
        yield connection
    finally:
        connection.close()


def _post(connection: http.client.HTTPConnection, port: int, path: str, body: bytes) -> tuple[int, bytes]:
    own = f"{HOST}:{port}"
    headers = {"Host": own, "Origin": f"http://{own}", "Content-Type": "application/json"}
    connection.request("POST", path, body, headers)
    reply = connection.getresponse()
    return reply.status, reply.read()


CLIENTS, TOGETHER = 8, 200


def load(field: Field) -> Tries:
    """Answers of eight clients at once: each that was said to be saved is there, once, under its name."""
    while True:
        file = field.new()
        with _served(field, file) as server:
            saved: dict[str, int] = {}

            def client(name: str, seed: int, server: ReviewServer = server, saved: Any = saved) -> None:
                saved[name] = _answers(random.Random(seed), server.port, server.token, TOGETHER, name)

            seeds = [field.random.random() for _ in range(CLIENTS)]
            threads = [
                threading.Thread(target=client, args=(f"client {number}", seed))
                for number, seed in enumerate(seeds)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        found = [answer.reviewer for answer in read_answers(file)]
        good = all(found.count(name) == count == TOGETHER for name, count in saved.items())
        yield len(found), good and len(found) == CLIENTS * TOGETHER
        file.unlink()


@contextlib.contextmanager
def _served(field: Field, file: Path) -> Iterator[ReviewServer]:
    with field.server(file) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
            server.review.answers.close()


def flipped_bits(field: Field) -> Tries:
    """Flip a bit of prepared data, of an image or of a model: it is noticed when it is used."""
    run, train = Run(field.folder / "whole-role"), field.data.train
    files = [*sorted((field.data.folder / "train").glob("*.npy")), field.data.folder / "dataset.json"]
    while True:
        file = field.random.choice([*files, run.model_file, train.path(0)])
        good = file.read_bytes()
        bad = bytearray(good)
        bad[field.random.randrange(len(bad))] ^= 1 << field.random.randrange(8)
        file.write_bytes(bad)
        try:
            open_prepared(field.data.folder).train.image(0)
            load_classifier(run)
            yield 1, False
        except SparselabelError:
            yield 1, True
        finally:
            file.write_bytes(good)


def requests(field: Field) -> Tries:
    """Send a review's server what no page sends: it lets nobody in, and goes on answering."""
    with _served(field, field.folder / "answers.csv") as server:
        raised: list[object] = []
        server.handle_error = lambda *_: raised.append(sys.exc_info()[1])  # type: ignore[method-assign]
        while True:
            answered = _refused(field.random, server)
            yield 1, answered and all(isinstance(error, OSError) for error in raised)
            raised.clear()


PLACES = (
    *("answer", "next", "undo", "finish", "train", "image/0", "about", "map/0/0"),
    *("../answers.csv", "%2e%2e/answers.csv"),
)
BODY = {
    "row": 1, "class": 2, "answer": "yes", "count": 3, "without": [[1, 2]], "page": "p", "reviewer": "b",
    "answers": [{"row": 1, "class": 2, "answer": "no"}], "only": 1, "grid": True, "skipped": False,
}  # fmt: skip


def _refused(random: random.Random, server: ReviewServer) -> bool:
    """Whether a bad request changed nothing that it should not, and a good one still works."""
    stranger = random.random() < 0.5
    own = f"{HOST}:{server.port}"
    token = random.choice(["", "x" * 24, server.token[:-1], f"../{server.token}", "%00"])
    headers = {"Host": random.choice([own, "evil.example"]), "Origin": f"http://{own}"}
    body = bytes(random.randrange(256) for _ in range(random.randrange(200)))
    before = len(server.review.answers.answers)
    if not stranger:  # it has the token, and says nonsense
        from tests.fuzz.mutate import mutate

        token, headers["Host"] = server.token, own
        headers["Content-Type"] = random.choice(["application/json", "text/plain"])
        given = {key: BODY[key] for key in random.sample([*BODY], random.randrange(1, len(BODY)))}
        body = mutate(random, "a.json", json.dumps(given).encode())
    method, place = random.choice(["GET", "POST"]), random.choice(PLACES)
    status = 0
    with contextlib.suppress(http.client.HTTPException, OSError, ValueError), _connection(server.port) as one:
        one.request(method, f"/{token}/{place}", body, headers)
        status = one.getresponse().status
    if stranger and (status == 200 or len(server.review.answers.answers) != before):
        return False
    if status >= 500:
        return False
    with _connection(server.port) as connection:
        connection.request("GET", f"/{server.token}/about")
        return connection.getresponse().status == 200


def mutated_inputs(field: Field) -> Tries:
    """Files of every format with damage: data, or an error of ours that names the file."""
    from tests.fuzz.formats import FORMATS
    from tests.fuzz.session import fuzz

    while True:
        result = fuzz([*FORMATS], 1_000_000, seed=field.random.randrange(10**9), seconds=60)
        for line in result.lines() if result.wrong else ():
            print(line)  # noqa: T201
        yield result.read.total(), not result.wrong


ATTACKS: dict[str, tuple[str, Callable[[Field], Tries]]] = {
    "kills": ("runs killed, then finished: other bytes", kills),
    "commands": ("prepare, predict, compare, export killed, then given again: other bytes", killed_commands),
    "reviews": ("reviews killed while they take answers: an answer lost", killed_reviews),
    "load": ("answers of 8 clients at once: lost, or not theirs", load),
    "double": ("runs started twice: wrong or lost", double_starts),
    "disks": ("runs on a full disk: lost, or an error without a name", full_disks),
    "bits": ("flipped bits: unnoticed", flipped_bits),
    "requests": ("requests without the token, or of nonsense: let in, or the server gone", requests),
    "inputs": ("mutated inputs: an error without a name, a death, a hang", mutated_inputs),
}


def torture(seconds: float, attacks: Sequence[str] = (*ATTACKS,), seed: int = 0) -> list[Outcome]:
    """Attack until the time is over, with each attack at least once."""
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="sparselabel-torture-") as folder:
        field = Field(Path(folder), seed)
        for name in attacks:
            what, attack = ATTACKS[name]
            outcome, end = Outcome(what), time.monotonic() + seconds / len(attacks)
            with contextlib.closing(attack(field)) as tries:  # type: ignore[type-var]
                for count, good in tries:
                    outcome.tries += count
                    outcome.faults += not good
                    if time.monotonic() > end:
                        break
            outcomes.append(outcome)
    return outcomes


def table(outcomes: list[Outcome]) -> str:
    """What came out, in Markdown."""
    rows = [f"| {outcome.what} | {outcome.tries:,} | {outcome.faults:,} |" for outcome in outcomes]
    return "\n".join(["| attack: fault | tries | faults |", "|---|---:|---:|", *rows])


ROW = re.compile(r"^\| (.+) \| ([\d,]+) \| ([\d,]+) \|$", re.MULTILINE)


def with_table(page: str, outcomes: list[Outcome], *, add: bool) -> str:
    """The page with these outcomes in its table, in the order of the attacks; others' rows stay."""
    before, _, rest = page.partition(BEGIN)
    old, _, after = rest.partition(END)
    rows = {
        what: Outcome(what, *(int(number.replace(",", "")) for number in numbers))
        for what, *numbers in ROW.findall(old)
    }
    for outcome in outcomes:
        earlier = rows.get(outcome.what) if add else None
        tries, faults = (earlier.tries, earlier.faults) if earlier else (0, 0)
        rows[outcome.what] = Outcome(outcome.what, outcome.tries + tries, outcome.faults + faults)
    ordered = [rows[what] for what, _ in ATTACKS.values() if what in rows]
    return f"{before}{BEGIN}\n{table(ordered)}\n{END}{after}"


def main() -> None:
    """Attack for the minutes that are given, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("minutes", type=float, nargs="?", default=5.0)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=", ".join(ATTACKS), default=[*ATTACKS])
    parser.add_argument("--add", action="store_true", help="add to the table's numbers")
    parser.add_argument("--seed", type=int, default=None, help="of the random moments and damage")
    given = parser.parse_args()
    if unknown := {*given.attacks} - {*ATTACKS}:
        parser.error(f"no attack: {', '.join(sorted(unknown))}")
    seed = time.time_ns() if given.seed is None else given.seed
    outcomes = torture(60 * given.minutes, given.attacks, seed)
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), outcomes, add=given.add), encoding="utf-8")
    print(table(outcomes))  # noqa: T201
    sys.exit(any(outcome.faults for outcome in outcomes))


if __name__ == "__main__":
    main()
