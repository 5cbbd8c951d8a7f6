"""Run by test_torchrun_nodes through torchrun: the node with DOOMED is killed in epoch 3."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from sparselabel.config import Handling, Machine
from sparselabel.data.prepared_files import open_prepared
from sparselabel.training.callbacks import Callback, Hooks
from sparselabel.training.train_run import train_run
from tests.training import some_processes


class Doom(Callback):
    """Kills a process and the torchrun that started it."""

    def on_epoch_end(self, trainer: Any, record: dict[str, Any]) -> None:
        """At the end of epoch 3, before its checkpoint."""
        if record["epoch"] == 3 and "DOOMED" in os.environ:
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    data, out = map(Path, sys.argv[1:])
    here, goes_on = Machine(accelerator="cpu", workers=0), Handling(resume=True)
    train_run(open_prepared(data), some_processes.CONFIG, out, here, goes_on, hooks=Hooks((Doom(),)))
