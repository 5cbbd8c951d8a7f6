"""Start several processes of a script with torchrun."""

import os
import socket
import subprocess
import sys
import time


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
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(*started: "subprocess.Popen[str]") -> list[str]:
    """What each said on standard error; none may fail."""
    said = []
    try:
        for process in started:
            said.append(process.communicate(timeout=300)[1])
            assert process.returncode == 0, said[-1][-3000:]
    finally:
        for process in started:
            process.kill()
            process.communicate()
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
