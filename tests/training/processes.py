"""Several processes of a script, as torchrun starts them."""

import os
import socket
import subprocess
import sys


def run_processes(count: int, script: str, *arguments: str) -> str:
    """Run a script in so many processes on this machine; what they said on standard error."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(count)]
    done = subprocess.run(
        [*command, "--master_addr", "127.0.0.1", "--master_port", port, script, *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr
