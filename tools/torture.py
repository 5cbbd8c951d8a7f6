"""``make torture``: kills, double starts, full disks, flipped bytes and requests, as many as fit into a time.

``python -m tools.torture MINUTES`` shares the minutes among the attacks and writes what came out of them into
the table of docs/reliability.md. Exits with 1 if something was lost, differed or went unnoticed.
"""

import contextlib
import http.client
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparselabel.config import FinetunePhase, Handling, HeadPhase, Machine, Preparation, TrainConfig, Views
from sparselabel.data.dataset import Dataset, open_prepared
from sparselabel.data.prepare import prepare
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


@dataclass
class Outcome:
    """How often something was tried, and what went wrong."""

    what: str
    tries: int = 0
    faults: int = 0


class Field:
    """Data, and a run that nothing happened to: what every other one must equal."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        source = scenes.make(folder / "data", train=40, test=10, size=32, seed=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.data: Dataset = prepare(source, folder / "data", Preparation(sparsify="single-positive"))
        self.config = TrainConfig(
            method="en+scl",
            backbone="test_efficientnet",
            weights="none",
            views=Views(size=32),
            head=HeadPhase(epochs=2, lr=1e-2, batch_size=16),
            finetune=FinetunePhase(epochs=0),
            watch=0,
        )
        began = time.monotonic()
        self.wait(self.start(folder / "whole"))
        self.seconds = time.monotonic() - began
        self.model = Run(folder / "whole").model_file.read_bytes()
        self.number = 0

    def new(self) -> Path:
        """A folder that is not there yet."""
        self.number += 1
        return self.folder / f"run-{self.number}"

    def start(self, out: Path, most: int | None = None) -> "multiprocessing.process.BaseProcess":
        """Train, or go on, in another process; no file may have more bytes than ``most``."""

        def work() -> None:
            code = 0
            if most is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
            try:
                machine = Machine(accelerator="cpu", workers=0, memories="file")
                data = open_prepared(self.data.folder)
                train_run(data, self.config, out, machine, Handling(quiet=True, resume=True))
            except SparselabelError:
                code = NAMED
            except OSError as error:
                code = FULL if error.filename else OTHER
            except BaseException:
                code = OTHER
            os._exit(code)

        process = FORK.Process(target=work)
        process.start()
        return process

    @staticmethod
    def wait(process: "multiprocessing.process.BaseProcess") -> int:
        """Its exit code."""
        process.join()
        return process.exitcode or 0

    def same(self, out: Path) -> bool:
        """Whether a run is finished and has the model of the one that nothing happened to."""
        return Run(out).finished and Run(out).model_file.read_bytes() == self.model


def kills(field: Field) -> Iterator[bool]:
    """Kill a run at random moments; it goes on to the same bytes."""
    while True:
        out = field.new()
        for _ in range(3):
            process = field.start(out)
            time.sleep(field.random.random() * field.seconds)
            process.kill()
            process.join()
        yield field.wait(field.start(out)) == 0 and field.same(out)
        shutil.rmtree(out)


def double_starts(field: Field) -> Iterator[bool]:
    """Start a run twice at once: one is refused by name, the other ends as it should."""
    while True:
        out = field.new()
        both = [field.start(out), field.start(out)]
        codes = {field.wait(process) for process in both}
        yield codes <= {0, NAMED} and 0 in codes and field.same(out)
        shutil.rmtree(out)


def full_disks(field: Field) -> Iterator[bool]:
    """Let no file have more than some bytes: an error with a name, and with room the run goes on."""
    while True:
        out = field.new()
        code = field.wait(field.start(out, most=int(2 ** field.random.uniform(6, 20))))
        yield code in (0, NAMED, FULL) and field.wait(field.start(out)) == 0 and field.same(out)
        shutil.rmtree(out)


def flipped_bits(field: Field) -> Iterator[bool]:
    """Flip a bit of prepared data, of an image or of a model: it is noticed when it is used."""
    run, train = Run(field.folder / "whole"), field.data.train
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
            yield False
        except SparselabelError:
            yield True
        finally:
            file.write_bytes(good)


def requests(field: Field) -> Iterator[bool]:
    """Send a review's server what no page sends: it lets nobody in, and goes on answering."""
    part = field.data.train
    scores = part.truth.values.astype("float16") * 0
    view = evaluation_view(field.config)
    with AnswerFile(field.folder / "answers.csv") as kept:
        images = Images(part, view, lambda row: scores)
        about = {"classes": list(field.data.classes)}
        with ReviewServer(Review(part, scores, kept), images, about, 0) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                while True:
                    yield _refused(field.random, server)
            finally:
                server.shutdown()


def _refused(random: random.Random, server: ReviewServer) -> bool:
    """Whether one bad request changed nothing and a good one still works."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=10)
    token = random.choice(["", "x" * 24, server.token[:-1], f"../{server.token}", "%00"])
    headers = {"Host": random.choice([f"{HOST}:{server.port}", "evil.example"])}
    body = bytes(random.randrange(256) for _ in range(random.randrange(200)))
    before = len(server.review.answers.answers)
    with contextlib.suppress(http.client.HTTPException, ConnectionError, ValueError):
        connection.request(random.choice(["GET", "POST"]), f"/{token}/answer", body, headers)
        if connection.getresponse().status == 200:
            return False
    connection.close()
    connection = http.client.HTTPConnection(HOST, server.port, timeout=10)
    connection.request("GET", f"/{server.token}/about")
    good = connection.getresponse().status == 200 and len(server.review.answers.answers) == before
    connection.close()
    return good


ATTACKS: dict[str, Callable[[Field], Iterator[bool]]] = {
    "runs killed three times each, then finished: other bytes": kills,
    "runs started twice: wrong or lost": double_starts,
    "runs on a full disk: lost, or an error without a name": full_disks,
    "flipped bits: unnoticed": flipped_bits,
    "requests of strangers: let in, or the server gone": requests,
}


def torture(seconds: float, attacks: Sequence[str] = (*ATTACKS,), seed: int = 0) -> list[Outcome]:
    """Attack until the time is over, with each attack at least once."""
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="sparselabel-torture-") as folder:
        field = Field(Path(folder), seed)
        for what in attacks:
            outcome, end = Outcome(what), time.monotonic() + seconds / len(attacks)
            with contextlib.closing(ATTACKS[what](field)) as tries:  # type: ignore[type-var]
                for good in tries:
                    outcome.tries += 1
                    outcome.faults += not good
                    if time.monotonic() > end:
                        break
            outcomes.append(outcome)
    return outcomes


def table(outcomes: list[Outcome]) -> str:
    """What came out, in Markdown."""
    rows = [f"| {outcome.what} | {outcome.tries:,} | {outcome.faults:,} |" for outcome in outcomes]
    return "\n".join(["| attack: fault | tries | faults |", "|---|---:|---:|", *rows])


def main() -> None:
    """Attack for the minutes that are given, and write the table."""
    outcomes = torture(60 * float(sys.argv[1]) if len(sys.argv) > 1 else 300)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table(outcomes)}\n{END}{after}", encoding="utf-8")
    print(table(outcomes))  # noqa: T201
    sys.exit(any(outcome.faults for outcome in outcomes))


if __name__ == "__main__":
    main()
