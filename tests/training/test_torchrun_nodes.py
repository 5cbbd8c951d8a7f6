"""torchrun on two local nodes equals one process, and survives the loss of a node."""

import json
from pathlib import Path

import pytest

from sparselabel.data.dataset import Dataset
from tests.training import doomed_node, some_processes, test_two_processes, two_processes
from tests.training.processes import (
    free_port,
    run_nodes,
    run_processes,
    start_torchrun,
    wait_for,
    wait_for_port,
)


@pytest.mark.slow
def test_two_nodes_give_what_one_process_gives(small: Dataset, tmp_path: Path) -> None:
    methods = ("an", "role", "en+scl")
    runs = test_two_processes.train_twice(small, tmp_path / "near", methods)
    run_nodes(2, two_processes.__file__, str(small.folder), str(tmp_path / "far"), *methods)
    for method in methods:
        test_two_processes.refuse_difference({"one": runs["one"], "two": tmp_path / "far"}, small, method)


@pytest.mark.slow
def test_a_lost_node_costs_an_epoch(small: Dataset, tmp_path: Path) -> None:
    """The other one goes on by itself, to what two processes and then one give."""
    data, lost, reference = str(small.folder), tmp_path / "lost", tmp_path / "reference"
    port = free_port()
    where = ["--rdzv-backend", "c10d", "--rdzv-id", "run", "--rdzv-endpoint", f"127.0.0.1:{port}"]
    elastic = ["--nnodes", "1:2", "--nproc_per_node", "1", "--max-restarts", "3", *where]
    stays = start_torchrun(elastic, doomed_node.__file__, data, str(lost))
    wait_for_port(port)  # the node that keeps the state of all must be the one that stays
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOOMED", "1")
        dies = start_torchrun(elastic, doomed_node.__file__, data, str(lost))
    said, _ = wait_for(stays, dies, codes=(0, -9))
    assert "resuming after epoch 2" in said
    assert "number of processes: 2 before, 1 now; row stores are redistributed" in said

    run_processes(2, some_processes.__file__, data, str(reference), "auto", "after", "2")
    some_processes.main(data, str(reference), "auto", "after", "99")
    results = [json.loads((run / "result.json").read_text()) for run in (lost, reference)]
    assert results[0] == results[1]
    models = [(run / "model.safetensors").read_bytes() for run in (lost, reference)]
    assert models[0] == models[1]
