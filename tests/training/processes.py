"""Start several processes of a script with torchrun."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import sparselabel

SOURCES = [str(Path(sparselabel.__file__).parents[1]), str(Path(__file__).parents[2])]
"""Where scripts import the package and other tests from."""


def free_port() -> str:
    """A port that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def run_processes(count: int, script: str, *arguments: str) -> str:
    """Run a script in so many processes on this machine; what they said on standard error."""
    where = ["--master_addr", "127.0.0.1", "--master_port", free_port()]
    (done,) = wait_for(start_torchrun(["--nproc_per_node", str(count), *where], script, *arguments))
    return done


def run_nodes(count: int, script: str, *arguments: str) -> list[str]:
    """The same with a torchrun of one process for each of so many nodes, all of them this machine."""
    where = ["--master_addr", "127.0.0.1", "--master_port", free_port()]
    nodes = ["--nnodes", str(count), "--nproc_per_node", "1", *where]
    return wait_for(
        *(start_torchrun([*nodes, "--node_rank", str(rank)], script, *arguments) for rank in range(count))
    )


def start_torchrun(flags: list[str], script: str, *arguments: str) -> "subprocess.Popen[str]":
    """Start a torchrun."""
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *flags, script, *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(SOURCES)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(*started: "subprocess.Popen[str]", codes: Sequence[int] = ()) -> list[str]:
    """What each said on standard error; each must end with 0, or with its code."""
    wanted, said = list(codes or [0] * len(started)), list[str]()
    try:
        for process, code in zip(started, wanted, strict=True):
            said.append(process.communicate(timeout=300)[1])
            if process.returncode != code:
                break
    finally:
        for process in started:
            process.kill()
        said += [process.communicate()[1] for process in started[len(said) :]]
    assert [process.returncode for process in started] == wanted, "\n".join(text[-3000:] for text in said)
    return said


def wait_for_port(port: str) -> None:
    """Wait until somebody listens there."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", int(port))).close()
        except ConnectionRefusedError:
            time.sleep(0.1)
        else:
            return
