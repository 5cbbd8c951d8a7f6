"""Predictions for very many images on a Ray cluster, with Ray Data (the extra ``cluster``).

The images are cut into parts: files, a tar, row groups of a table. Ray hands parts to workers, which have the
run's predictor, and each part becomes one file of the output:

    DIR/part-00000.parquet ...   a row per image
    DIR/_job.json                what is predicted, and how; in the end also how many images there were
    DIR/_parts/                  while it goes on: the images of every part, and which parts are done
    DIR/_planned/                before it begins: the images of every part

A file has its name once it is whole, so a worker or a node that dies costs the parts it was at. A part has
the batches that it has on one machine, and so the same scores.
"""

import json
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

from sparselabel import errors
from sparselabel.config import AUTO, ShardFormat
from sparselabel.data.image_paths import (
    STANDARD_INPUT,
    Part,
    check_image_words,
    count_images,
    first_file,
    no_images,
    parts,
)
from sparselabel.errors import ConfigError, RunError, SparselabelError, counted, param
from sparselabel.file_formats import read_json
from sparselabel.files import require_folder_to_write, write_json, write_text
from sparselabel.inference.engine import PACKAGES, TORCH, WORTH
from sparselabel.inference.prediction_csv import NAMED
from sparselabel.inference.prediction_shards import PARTIAL, PredictionShards
from sparselabel.inference.predictor import Prediction, Predictor, predictor_of
from sparselabel.inference.scorer import BATCH, Scorer
from sparselabel.locks import LOCK, locked
from sparselabel.progress import progress_bar, status_console
from sparselabel.ray_cluster import PACKAGES as SAME_EVERYWHERE
from sparselabel.ray_cluster import (
    Node,
    alive_nodes,
    connected,
    listed,
    refuse_unfit_nodes,
    wants_gpu,
)
from sparselabel.run import Run
from sparselabel.schema import Count

JOB, PARTS, PLANNED = "_job.json", "_parts", "_planned"
PART_IMAGES = 1024
"""Images of a part, where they are files or rows of a table: about so many, as it has whole batches."""
DEATHS = 10  # of workers in a row that die before they begin: then the fault is not a single node's
GO_ON = f"go on by the same command with {param('resume', True)}"
OTHER_OUT = (f"choose another {param('out')}", f"replace it ({param('force', True)})")


class Done(TypedDict):
    """What became of a part, or of all."""

    images: Count
    labels: Count
    broken: Count
    engine: str
    errors: list[str]


class JobFile(TypedDict):
    """_job.json."""

    about: dict[str, Any]
    id: NotRequired[str]  # drawn for each job: workers of another one may still live
    parts: NotRequired[Count]
    finished: NotRequired[Done]


class PartFile(TypedDict):
    """_parts/00000.json: the images of a part."""

    files: NotRequired[list[str]]
    shard: NotRequired[str]
    groups: NotRequired[list[Count]]


class Place(NamedTuple):
    """Where to predict: Ray's address, the cores of a worker, and whether it has a GPU."""

    address: str
    cores: int = 1
    accelerator: str = "auto"


@dataclass(frozen=True)
class Task:
    """What a worker does: parts by number, with a predictor that it loads once."""

    shards: PredictionShards
    load: Callable[[], Predictor]
    batch: int = BATCH
    column: str | None = None
    cores: int = 1
    job: str = ""

    def refuse_replaced(self) -> None:
        """Raise if another job has the folder: the command of this one was killed, and a worker lives."""
        out = self.shards.folder
        if read_json(out / JOB, JobFile).get("id", "") != self.job:
            raise RunError(f"{out} is of another job by now", *OTHER_OUT, what=out)

    def part_file(self, number: int) -> Path:
        """Where the images of a part are told."""
        return self.shards.folder / PARTS / f"{number:05}.json"

    def done_file(self, number: int) -> Path:
        """Where it is told that a part is done."""
        return self.shards.folder / PARTS / f"{number:05}.done.json"

    def part(self, number: int) -> Part:
        """A part's images."""
        given = read_json(self.part_file(number), PartFile)
        groups = given.get("groups")
        ends = (groups[0], groups[-1]) if groups else None
        return Part(tuple(given.get("files", ())), given.get("shard", ""), ends)


class PartWorker:
    """Predicts the parts that Ray gives it; Ray makes one for each place in the cluster."""

    def __init__(self, task: Task, folder: str) -> None:
        import torch

        with suppress(OSError):  # a node may lack the folder of the command, where all images have addresses
            os.chdir(folder)
        torch.set_num_threads(task.cores)
        self.task = task

    @cached_property
    def predictor(self) -> Predictor:
        """Loaded with the first part: what is wrong can be told then."""
        return self.task.load()

    def __call__(self, numbers: dict[str, Any]) -> dict[str, Any]:
        """Write a part and tell what became of it; errors are told too, as Ray hides them in its own."""
        (number,) = numbers["part"].tolist()
        try:
            told: dict[str, Any] = {"done": self.predict(number)}
        except SparselabelError as error:
            told = {"error": type(error).__name__, "texts": [error.problem, *error.remedies]}
        except OSError as error:  # of a disk that is full, or gone
            problem = f"node {os.uname().nodename} could not write part {number} ({error})"
            told = {"error": "RunError", "texts": [problem, "make room", GO_ON]}
        return {"part": [number], "told": [json.dumps(told)]}

    def predict(self, number: int) -> Done:
        """Write one part; what is there already stays."""
        task, file = self.task, self.task.done_file(number)
        if file.is_file():
            return read_json(file, Done)
        done = Done(images=0, labels=0, broken=0, engine=TORCH, errors=[])
        images = task.part(number).images(task.column)
        predictions = self.predictor(images, batch=task.batch, workers=0)
        task.shards.write(number, _counting(predictions, done, task))
        done["engine"] = self.predictor.engine
        write_json(file, done)
        return done


def _counting(predictions: Iterator[Prediction], done: Done, task: Task) -> Iterator[Prediction]:
    """Count them; after the last one, the part may still be written."""
    for prediction in predictions:
        done["images"] += 1
        done["labels"] += len(prediction.labels)
        if prediction.error is not None:
            done["broken"] += 1
            if len(done["errors"]) < NAMED:
                done["errors"].append(prediction.error)
        yield prediction
    task.refuse_replaced()


def predict_on_cluster(
    run: Run,
    images: Sequence[str],
    out: Path,
    place: Place,
    *,
    out_format: ShardFormat = "parquet",
    all_scores: bool = False,
    precision: float | None = None,
    threshold: float | None = None,
    batch: int = BATCH,
    column: str | None = None,
    engine: str = AUTO,
    resume: bool = False,
    force: bool = False,
) -> Done:
    """Predict images on a cluster, into files in ``out``; returns what there was.

    ``images`` are what the command is given: files, folders, lists, patterns, addresses, tars and Parquet
    tables, whose images are in ``column``.
    """
    run = Run(run.path.absolute(), own_model=run.own_model)
    if STANDARD_INPUT in images:
        raise ConfigError(
            f"a job on a cluster may go on later, and standard input ({STANDARD_INPUT}) is gone then",
            "put them into a .txt file",
        )
    check_image_words(images, column)
    _refuse_taken(out, resume=resume, force=force)
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # it remarks on how Ray Data makes workers
    with connected(place.address) as ray:
        nodes = alive_nodes(ray)
        gpu = wants_gpu(nodes, place.accelerator)
        device = None if gpu else "cpu"
        predictor = predictor_of(run, precision, threshold, "cpu", TORCH if gpu else engine)
        chosen = predictor.model.engine if isinstance(predictor.model, Scorer) else TORCH
        count = count_images(images)
        if engine == AUTO and count is not None and count < WORTH:
            chosen = TORCH
        about = {
            "run": str(run.path),
            "model": run.result().get("model_checksum"),
            "thresholds": [round(value, 6) for value in predictor.thresholds.tolist()],
            "engine": chosen,
            "out_format": out_format,
            "all_scores": all_scores,
            "batch": batch,
            "column": column,
        }

        def load() -> Predictor:
            return predictor_of(run, precision, threshold, device, chosen)

        shards = PredictionShards(out.absolute(), out_format, predictor.classes, all_scores)
        task = Task(shards, load, batch, column, place.cores)
        packages = (*SAME_EVERYWHERE, *PACKAGES.get(chosen, ()))
        return predict_parts(
            ray, nodes, images, task, about, gpu=gpu, packages=packages, seen=[run.metadata_file],
            resume=resume, force=force,
        )  # fmt: skip


def predict_parts(
    ray: Any,
    nodes: Sequence[Node],
    words: Sequence[str],
    task: Task,
    about: dict[str, Any],
    part_images: int = PART_IMAGES,
    *,
    gpu: bool = False,
    packages: Sequence[str] = SAME_EVERYWHERE,
    seen: Sequence[Path] = (),
    resume: bool = False,
    force: bool = False,
) -> Done:
    """Give the parts of all images to the cluster's nodes, those that are done already aside."""
    out = task.shards.folder
    if task.cores < 1:
        raise ConfigError(
            f"{param('cluster_cores')} must be at least 1 for a worker, not {task.cores}",
            what="cluster_cores",
        )
    able = [node for node in nodes if node.cores >= task.cores and node.gpus >= gpu]
    if not able:
        raise ConfigError(
            f"no node of the cluster has {counted(task.cores, 'core')}{' and a GPU' if gpu else ''} for a "
            f"worker (there are: {listed(nodes)})",
            f"ask for less ({param('cluster_cores')})",
        )
    places = sum(min(node.cores // task.cores, node.gpus if gpu else node.cores) for node in able)
    with ExitStack() as held:
        held.enter_context(locked(out))
        job = _job(out, about, resume=resume, force=force)
        new = not (out / JOB).exists()
        try:
            if new:  # for the nodes to see
                write_json(out / JOB, {"about": about})
            first = first_file(words)
            files = [out / JOB, *seen, *([] if first is None else [Path(first)])]
            refuse_unfit_nodes(ray, able, files, packages)
            count = _plan(task, words, part_images, job)
            if not count:
                raise no_images(words)
        except BaseException:
            shutil.rmtree(out / PLANNED, ignore_errors=True)
            if new:
                (out / JOB).unlink(missing_ok=True)
            raise
        if job is None:
            job = JobFile(about=about, id=uuid.uuid4().hex, parts=count)
            _replace(out, job)
        task = replace(task, job=job.get("id", ""))
        total = _all_done(ray, task, count, places, gpu)
        if not total["images"]:  # shards may have none
            raise no_images(words)
        write_json(out / JOB, {"about": about, "parts": count, "finished": total})
        shutil.rmtree(out / PARTS)
        for left in out.glob(f"{PARTIAL}*"):  # of workers that were killed
            left.unlink()
    return total


def _refuse_taken(out: Path, *, resume: bool, force: bool) -> None:
    """Raise if something is in the way that nobody asked to go on with, or to replace."""
    require_folder_to_write(out)
    entries = {entry.name for entry in out.iterdir()} - {LOCK} if out.exists() else set()
    if not entries:
        return
    if JOB not in entries:
        raise RunError(f"{out} has something in it, and is no prediction", OTHER_OUT[0], what=out)
    if force:
        return
    job = read_json(out / JOB, JobFile)
    if "finished" in job:
        raise RunError(
            f"{out} has the predictions of {job['about'].get('run')} already", *OTHER_OUT, what=out
        )
    if not resume:
        raise RunError(
            f"{out} has what an interrupted prediction wrote",
            f"go on with it ({param('resume', True)})",
            *OTHER_OUT,
            what=out,
        )


def _job(out: Path, about: dict[str, Any], *, resume: bool, force: bool) -> JobFile | None:
    """The job that goes on in a folder, or None for a new one; refuses one of something else."""
    _refuse_taken(out, resume=resume, force=force)
    if force or not (out / JOB).is_file():
        return None
    job = read_json(out / JOB, JobFile)
    other = [key for key in about if job["about"].get(key) != about[key]]
    if other:
        was = ", ".join(
            f"{key} was {_short(job['about'].get(key))}, not {_short(about[key])}" for key in other
        )
        raise RunError(f"{out} was begun with other settings ({was})", "give the same", *OTHER_OUT, what=out)
    return job if "parts" in job else None


def _replace(out: Path, job: JobFile) -> None:
    """Begin what is planned; only now what an older job wrote goes."""
    write_json(out / JOB, {"about": job["about"]})  # without parts: killed on the way, it begins anew
    for old in [*out.glob("part-*"), *out.glob(f"{PARTIAL}*")]:
        old.unlink()
    shutil.rmtree(out / PARTS, ignore_errors=True)
    (out / PLANNED).rename(out / PARTS)
    write_json(out / JOB, job)


def _short(value: object) -> str:
    return f"{value!r:.60}"


def _plan(task: Task, words: Sequence[str], part_images: int, job: JobFile | None) -> int:
    """Write what will be in each part; of a job that goes on, refuse other images than it was begun with."""
    out, count = task.shards.folder, 0
    if job is None:
        shutil.rmtree(out / PLANNED, ignore_errors=True)  # of a command that was killed
        (out / PLANNED).mkdir()
    whole_batches = max(1, part_images // task.batch) * task.batch
    for count, part in enumerate(parts(words, whole_batches, task.column), 1):
        text = json.dumps({key: value for key, value in part._asdict().items() if value})
        file = task.part_file(count - 1)
        if job is None:
            write_text(out / PLANNED / file.name, text)
        elif not file.is_file() or file.read_bytes() != text.encode():
            raise _other_images(out, count)
    if job is not None and job.get("parts") != count:
        raise _other_images(out, count)
    return count


def _other_images(out: Path, number: int) -> RunError:
    return RunError(
        f"{out} was begun with other images (part {number:,} differs)",
        "name the same ones",
        *OTHER_OUT,
        what=out,
        where=number,
    )


def _all_done(ray: Any, task: Task, count: int, places: int, gpu: bool) -> Done:
    """Have all parts predicted; what there was in all."""
    total = Done(images=0, labels=0, broken=0, engine="", errors=[])
    left = []
    for number in range(count):
        file = task.done_file(number)
        if file.is_file() and task.shards.file(number).is_file():
            _add(total, read_json(file, Done))
        else:
            file.unlink(missing_ok=True)
            left.append(number)
    console = status_console()
    with progress_bar(console, count, f"predicting {counted(count, 'part')}") as bar:
        bar.skip(count - len(left))
        for number, done in _on_ray(ray, task, left, places, gpu) if left else ():
            if not task.shards.file(number).is_file():
                raise RunError(
                    f"a node has written {task.shards.file(number)}, and it is not there for this machine",
                    "put it on a disk that all nodes share, under the same path",
                )
            named = total["errors"][:]
            _add(total, done)
            for error in total["errors"][len(named) :]:
                console.print(f"skipped: {error}")
            bar.advance()
    return total


def _add(total: Done, done: Done) -> None:
    total["images"] += done["images"]
    total["labels"] += done["labels"]
    total["broken"] += done["broken"]
    total["errors"] = (total["errors"] + done["errors"])[:NAMED]
    engines = {*total["engine"].split(" and "), done["engine"]} - {""}
    total["engine"] = " and ".join(sorted(engines))


def _on_ray(ray: Any, task: Task, numbers: list[int], places: int, gpu: bool) -> Iterator[tuple[int, Done]]:
    """Parts as they are done, in any order."""
    from ray import data

    context = data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.max_consecutive_actor_init_deaths = DEATHS  # by default Ray gives up when a node dies so early
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    done = data.from_items(
        [{"part": number} for number in numbers], override_num_blocks=len(numbers)
    ).map_batches(
        PartWorker,
        fn_constructor_args=(task, str(Path.cwd())),
        batch_size=1,
        compute=data.ActorPoolStrategy(min_size=1, max_size=min(places, len(numbers))),
        num_cpus=task.cores,
        num_gpus=int(gpu),
    )
    out = task.shards.folder
    try:
        for row in done.iter_rows():
            yield int(row["part"]), _told(row["told"])
    except SparselabelError:
        raise
    except KeyboardInterrupt:
        raise RunError(
            f"stopped: what was predicted is in {out}",
            GO_ON,
        ) from None
    except Exception as error:
        raise RunError(
            f"the cluster could not go on ({' '.join(str(error).split())[-500:]})",
            GO_ON,
        ) from error


def _told(text: str) -> Done:
    """What a worker tells of a part; an error of ours is raised here."""
    told = json.loads(text)
    if "error" in told:
        raise getattr(errors, told["error"], RunError)(*told["texts"])
    done: Done = told["done"]
    return done
