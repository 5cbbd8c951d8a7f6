"""Prediction on a cluster: its folder with a stub of Ray, and on local Ray nodes."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparselabel
from sparselabel.data.dataset import Dataset
from sparselabel.errors import ConfigError, DataError, RunError
from sparselabel.inference import predict_on_ray
from sparselabel.inference.predict_on_ray import (
    JOB,
    PARTS,
    Done,
    PartWorker,
    Place,
    Task,
    predict_on_cluster,
    predict_parts,
)
from sparselabel.inference.prediction_csv import csv_line
from sparselabel.inference.prediction_shards import PARTIAL, PredictionShards
from sparselabel.ray_cluster import Node
from tests.data.shards import png, write_table, write_tar
from tests.inference.cluster_jobs import on_one_machine
from tests.inference.stub import CLASSES, paint, predictor

NODES = [Node("1", "one", 2, 0), Node("2", "two", 1, 0)]


class Nodes:
    """Stands in for Ray: parts one after the other, until somebody stops it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[int] = []
        self.stop_after = 10**6
        self.places = 0
        monkeypatch.setattr(predict_on_ray, "_on_ray", self.on_ray)
        monkeypatch.setattr(predict_on_ray, "refuse_unfit_nodes", lambda *_: None)

    def on_ray(
        self, ray: Any, task: Task, numbers: list[int], places: int, gpu: bool
    ) -> Iterator[tuple[int, Done]]:
        worker, self.places = PartWorker(task, str(Path.cwd())), places
        for number in numbers:
            if len(self.done) == self.stop_after:
                raise RunError("stopped")
            self.done.append(number)
            answer = worker({"part": np.array([number])})
            yield number, predict_on_ray._told(answer["told"][0])


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Nodes:
    monkeypatch.chdir(tmp_path)
    for number in range(20):
        paint(tmp_path / "photos" / f"{number:02}.png", 12 * number, 0)
    (tmp_path / "photos" / "07.png").write_bytes(b"no image")
    write_tar(tmp_path / "a.tar", {f"in/{number}.png": png(0, 40 * number) for number in range(6)})
    write_table(tmp_path / "b.parquet", {"jpg": [png(20 * number, 0) for number in range(10)] + [None]})
    return Nodes(monkeypatch)


WORDS = ["photos", "a.tar", "b.parquet"]


def job(words: list[str] = WORDS, kind: Any = "csv", about: Any = None, **how: Any) -> Done:
    shards = PredictionShards(Path("out").absolute(), kind, CLASSES, all_scores=how.pop("all_scores", False))
    task = Task(shards, predictor, batch=4)
    return predict_parts(None, NODES, words, task, about or {"run": "stub"}, 8, **how)


def lines(out: str = "out") -> list[str]:
    return [line for file in sorted(Path(out).glob("part-*")) for line in file.read_text().splitlines(True)]


def test_a_part_is_a_file_and_an_image_a_row(nodes: Nodes) -> None:
    done = job()
    assert (done["images"], done["broken"], done["engine"]) == (37, 2, "torch")
    assert [error.partition(" cannot")[0] for error in done["errors"]] == [
        "photos/07.png",
        "b.parquet, row 10: there is no image",
    ]
    assert nodes.places == 3
    written = [line for line in lines() if not line.startswith("image,")]
    assert written == [csv_line(one, CLASSES, False) for one in on_one_machine(WORDS)]
    assert sorted(path.name for path in Path("out").iterdir()) == [
        JOB,
        *(f"part-{number:05}.csv" for number in range(6)),  # 8 + 8 + 4 files, 6 in the tar, 8 + 3 rows
    ]
    assert json.loads(Path("out", JOB).read_text())["finished"] == done


def test_what_was_stopped_goes_on(nodes: Nodes) -> None:
    nodes.stop_after = 3
    with pytest.raises(RunError, match="stopped"):
        job()
    before = Path("out/part-00001.csv").stat().st_mtime_ns
    Path("out", PARTS, "00002.done.json").unlink()  # killed before it could tell that it is done
    Path("out", f"{PARTIAL}part-00003.csv.b-1").write_text("half of")
    with pytest.raises(RunError, match="out has what an interrupted prediction wrote") as refused:
        job()
    assert refused.value.parameters == ["resume", "out", "force"]
    nodes.stop_after = 10**6
    assert job(resume=True)["images"] == 37
    assert nodes.done == [0, 1, 2, 2, 3, 4, 5]
    assert Path("out/part-00001.csv").stat().st_mtime_ns == before
    assert [line for line in lines() if not line.startswith("image,")] == [
        csv_line(one, CLASSES, False) for one in on_one_machine(WORDS)
    ]
    assert not [*Path("out").glob(f"{PARTIAL}*")]
    with pytest.raises(RunError, match="out has the predictions of stub already"):
        job(resume=True)
    assert job(["a.tar"], force=True)["images"] == 6
    assert [path.name for path in Path("out").glob("part-*")] == ["part-00000.csv"]


def test_a_job_of_something_else_does_not_go_on(nodes: Nodes) -> None:
    nodes.stop_after = 1
    with pytest.raises(RunError, match="stopped"):
        job()
    with pytest.raises(RunError, match=r"begun with other settings \(run was 'stub', not 'other'\)"):
        job(about={"run": "other"}, resume=True)
    with pytest.raises(RunError, match=r"begun with other images \(part 4 differs\)"):
        job(["photos", "b.parquet"], resume=True)
    with pytest.raises(RunError, match=r"begun with other images \(part 3 differs\)"):
        job(["photos"], resume=True)


def test_what_is_no_job_stays(nodes: Nodes) -> None:
    Path("out").mkdir()
    Path("out/thesis.doc").touch()
    with pytest.raises(RunError, match="out has something in it, and is no prediction") as refused:
        job(force=True)
    assert refused.value.parameters == ["out"]
    assert Path("out/thesis.doc").exists()


def test_no_images(nodes: Nodes) -> None:
    Path("empty").mkdir()
    with pytest.raises(DataError, match="no images in empty"):
        job(["empty"])
    assert not Path("out").exists()
    write_tar(Path("none.tar"), {"notes.txt": b"no image"})
    with pytest.raises(DataError, match=r"no images in none.tar"):
        job(["none.tar"])
    write_tar(Path("shards/deep/a.tar"), {"a.png": png(1, 2)})
    with pytest.raises(DataError, match="no images in empty, shards") as refused:
        job(["empty", "shards"], force=True)
    assert refused.value.remedies[0] == "name the shards there ('shards/deep/*.tar')"


def test_tables_and_json_lines(nodes: Nodes) -> None:
    from pyarrow import parquet

    job(["photos"], "parquet", all_scores=True)
    table = parquet.read_table("out")
    assert table.column_names == ["image", "labels", "scores", "error", "all_scores"]
    assert json.loads(table.schema.metadata[b"classes"]) == [*CLASSES]
    for row, one in zip(table.to_pylist(), on_one_machine(["photos"]), strict=True):
        assert row["image"] == one.image
        assert row["labels"] == [name for name, _ in one.labels]
        assert row["scores"] == [np.float32(score) for _, score in one.labels]
        assert (row["error"] is None) == (one.error is None)
        if one.error is None:
            assert row["all_scores"] == one.scores.astype(np.float32).tolist()
        else:
            assert row["all_scores"] is None
    job(["photos"], "jsonl", force=True)
    assert [json.loads(line)["image"] for line in lines()] == table["image"].to_pylist()
    assert not [*Path("out").glob("*.parquet")]


def test_workers_need_nodes(nodes: Nodes) -> None:
    task = Task(PredictionShards(Path("out"), "csv", CLASSES), predictor, cores=3)
    with pytest.raises(
        ConfigError, match=r"no node of the cluster has 3 cores for a worker \(there are: 2 cores"
    ):
        predict_parts(None, NODES, ["photos"], task, {})
    none = Task(task.shards, predictor, cores=0)
    with pytest.raises(ConfigError, match=r"cluster_cores.* must be at least 1 for a worker, not 0"):
        predict_parts(None, NODES, ["photos"], none, {})


def test_what_goes_wrong_in_a_worker_is_told(nodes: Nodes) -> None:
    torn = write_tar(Path("torn.tar.gz"), {f"{n}.png": png(n, n) for n in range(99)}, "w:gz")
    torn.write_bytes(torn.read_bytes()[: torn.stat().st_size // 2])
    with pytest.raises(DataError, match=r"torn.tar.gz is cut short, damaged or no tar") as told:
        job(["photos", "torn.tar.gz"])
    assert told.value.remedies == ("bring the whole file", "leave it out")
    assert len([*Path("out").iterdir()]) == 5  # three parts are kept


def test_a_disk_that_is_full_is_named(
    nodes: Nodes, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small_disk.parent)
    (small_disk / "filler").write_bytes(bytes(225_000))
    shards = PredictionShards(small_disk / "out", "csv", CLASSES)
    words = [str(path) for path in sorted(Path("photos").iterdir())] * 30
    with pytest.raises(RunError, match=r"could not write part .*No space left on device.*disk/out") as full:
        predict_parts(None, NODES, words, Task(shards, predictor, batch=4), {"run": "stub"}, 100)
    assert full.value.parameters == ["resume"]
    (small_disk / "filler").unlink()
    done = predict_parts(
        None, NODES, words, Task(shards, predictor, batch=4), {"run": "stub"}, 100, resume=True
    )
    assert done["images"] == 600


def test_a_node_with_a_disk_of_its_own(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = Done(images=8, labels=0, broken=0, engine="torch", errors=[])
    monkeypatch.setattr(predict_on_ray, "_on_ray", lambda *_: iter([(0, elsewhere)]))
    with pytest.raises(RunError, match=r"a node has written .*part-00000.csv, and it is not there"):
        job()


def test_a_job_that_cannot_begin_leaves_nothing(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    def unfit(*_: Any) -> None:
        raise RunError("node two has no package torch")

    with monkeypatch.context() as patch:
        patch.setattr(predict_on_ray, "refuse_unfit_nodes", unfit)
        with pytest.raises(RunError, match="node two"):
            job()
    assert not Path("out").exists()
    assert job()["images"] == 37


def test_what_is_there_stays_until_a_job_can_begin(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    def unfit(*_: Any) -> None:
        raise RunError("node two has no package torch")

    def content() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}

    job(["photos"])
    Path("empty").mkdir()
    for _ in ("finished", "interrupted"):
        before = content()
        with pytest.raises(DataError, match="no images in empty"):
            job(["empty"], force=True)
        assert content() == before
        with monkeypatch.context() as patch:
            patch.setattr(predict_on_ray, "refuse_unfit_nodes", unfit)
            with pytest.raises(RunError, match="node two"):
                job(["a.tar"], force=True)
        assert content() == before
        nodes.stop_after = len(nodes.done) + 1
        with pytest.raises(RunError, match="stopped"):
            job(["photos"], force=True)
    nodes.stop_after = 10**6
    assert job(["photos"], resume=True)["images"] == 20
    assert not Path("out", PARTS).exists()


def test_a_job_killed_as_it_replaces_another_begins_anew(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    job(["photos"])
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            job(["a.tar"], force=True)
    assert job(["a.tar"], resume=True)["images"] == 6
    assert sorted(path.name for path in Path("out").iterdir()) == [JOB, "part-00000.csv"]


def test_a_worker_of_a_job_that_was_replaced_writes_nothing(nodes: Nodes) -> None:
    """Its command was killed, and the same folder was given to another one: Ray ends it a little later."""
    tasks: list[Task] = []

    def on_ray(ray: Any, task: Task, numbers: list[int], *_: Any) -> Iterator[tuple[int, Done]]:
        tasks.append(task)
        if len(tasks) == 1:
            raise RunError("killed")
        told = PartWorker(tasks[0], str(Path.cwd()))({"part": np.array([0])})["told"]
        with pytest.raises(RunError, match="out is of another job by now"):
            predict_on_ray._told(told[0])
        assert not tasks[0].done_file(0).exists()
        assert [*Path("out").glob("*.csv*")] == []
        yield from nodes.on_ray(ray, task, numbers, 1, False)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predict_on_ray, "_on_ray", on_ray)
        with pytest.raises(RunError, match="killed"):
            job(["photos"], about={"run": "old"})
        assert job(["photos"], force=True)["images"] == 20
    assert "id" not in json.loads(Path("out", JOB).read_text())


def test_standard_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"standard input \(-\) is gone then: put them into a .txt file"):
        predict_on_cluster(sparselabel.Run(tmp_path), ["-"], tmp_path / "out", Place("auto"))


def test_a_run_predicts_on_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        predict_on_ray, "predict_on_cluster", lambda *given, **how: asked.append((given, how))
    )
    run = sparselabel.Run(tmp_path)
    out = run.predict_on_cluster(Path("photos"), "tags", column="picture", cluster_cores=2, force=True)
    assert out == Path("tags")
    ((given, how),) = asked
    assert given == (run, ["photos"], Path("tags"), Place("auto", 2))
    assert how == {
        "out_format": "parquet",
        "all_scores": False,
        "precision": None,
        "threshold": None,
        "column": "picture",
        "resume": False,
        "force": True,
    }
    assert run.predict_on_cluster(["a.tar", Path("b.parquet")], "tags", "host:1") == Path("tags")
    assert asked[1][0][1:] == (["a.tar", "b.parquet"], Path("tags"), Place("host:1"))


@pytest.mark.parametrize("unknown", [{"treshold": 0.5}, {"cluster": "auto"}])
def test_predict_takes_no_other_settings(tmp_path: Path, unknown: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{next(iter(unknown))}'"):
        sparselabel.Run(tmp_path).predict("photos", **unknown)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ray (the extra `cluster`)")
def test_two_nodes_of_which_a_worker_and_a_node_die(nodes: Nodes, tmp_path: Path) -> None:
    for number in range(320):
        paint(tmp_path / "many" / f"{number:03}.png", number % 256, 0)
    write_tar(tmp_path / "shard.tar", {f"{number}.png": png(0, number) for number in range(50)})
    write_tar(tmp_path / "many.tar", {file.name: file.read_bytes() for file in (tmp_path / "many").iterdir()})
    lines = (f"{number:03}.png,{number % 2},{number // 2 % 2}" for number in range(320))
    (tmp_path / "labels.csv").write_text("\n".join(["image,cat,dog", *lines]))
    Path("b.parquet").rename("table.parquet")
    torn = write_tar(tmp_path / "torn.tar.gz", {f"{n}.png": png(n, n) for n in range(99)}, "w:gz")
    torn.write_bytes(torn.read_bytes()[: torn.stat().st_size // 2])
    other = tmp_path / "other" / "sparselabel-0.0.1.dist-info" / "METADATA"
    other.parent.mkdir(parents=True)
    other.write_text("Metadata-Version: 2.1\nName: sparselabel\nVersion: 0.0.1\n")
    sources = [str(Path(sparselabel.__file__).parents[1]), str(Path(__file__).parents[2])]
    done = subprocess.run(
        [sys.executable, "-m", "tests.inference.cluster_jobs", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's word for: 127.0.0.1 stays that
            "RAY_worker_niceness": "0",  # by default 15: beside other work they would hardly run
            "PYTHONPATH": os.pathsep.join(sources),
            "OMP_NUM_THREADS": "1",
        },
        timeout=540,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    words = {"whole": ["photos", "shard.tar", "table.parquet"], "killed": ["many"]}
    for name, given in words.items():
        expected = [csv_line(one, CLASSES, False).rstrip("\n") for one in on_one_machine(given)]
        assert said["rows"][name] == expected
        assert said[name]["images"] == len(expected)
    assert said["left"] == 1
    prepared = Dataset.from_table("labels.csv", images="many", validation=0)
    assert said["prepared"] == {"many": prepared.train.digest, "many.tar": prepared.train.digest}
    assert "torn.tar.gz is cut short, damaged or no tar" in said["torn"]
    assert re.search(r"^node .* has sparselabel 0.0.1, and this machine has ", said["unfit"])
    assert not [*(tmp_path / "unfit").glob("part-*")]
