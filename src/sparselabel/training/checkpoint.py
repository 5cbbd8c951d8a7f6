"""Checkpoints: one folder per epoch, written under another name and renamed when it is complete.

    checkpoints/0007/model.safetensors      the trained part of the classifier (the head alone, or all)
                    /average.safetensors    its running average, if there is one
                    /optimizer.pt           read with weights_only: nothing in it is executed
                    /method.safetensors     the method's small state
                    /memory-0.safetensors   its memories, a file for each process; of those in RUN/memory
                                            only what tells which of their lines belong to it
                    /state.json             epoch, phase, best epoch, checksums of the others

The newest and the best are kept. Random state is not saved: every epoch seeds its generators anew.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypedDict

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from sparselabel.checksums import damaged, file_checksum, json_checksum
from sparselabel.config import Machine, TrainConfig
from sparselabel.distributed import all_gather
from sparselabel.errors import (
    MAKE_ROOM,
    ConfigError,
    ResourceError,
    RunError,
    SparselabelError,
    is_out_of_memory,
    listing,
    param,
)
from sparselabel.file_formats import of_kind, read_json, refuse_special
from sparselabel.files import BRING_BACK, write_json
from sparselabel.losses.base import ComposedLoss
from sparselabel.losses.memory.reshard import Share, restore_resharded
from sparselabel.losses.memory.row_store import (
    FileRowStore,
    RamRowStore,
    file_name,
    files_of_others,
    is_in_file,
)
from sparselabel.losses.step import Memory
from sparselabel.models.backbone import frozen_parts
from sparselabel.models.weights import refuse_traps
from sparselabel.resources import format_bytes, free_disk
from sparselabel.run import Run
from sparselabel.schema import Count, Range
from sparselabel.training.logger import Log
from sparselabel.training.network import Network

if TYPE_CHECKING:
    from lightning_fabric import Fabric

CHECKPOINTS = 3  # the newest, the best, and the one that is being written


@dataclass(frozen=True)
class TrainingState:
    """The progress of a run.

    ``epochs`` done in all phases; ``phase`` the current one, begun at ``phase_began``; ``phase_over`` whether
    it is at its end; ``best_epoch`` and ``best`` the best validation in this phase so far, None without one.
    """

    epochs: int = 0
    phase: str = ""
    phase_began: int = 0
    phase_over: bool = True
    best_epoch: int = 0
    best: float | None = None

    def in_new_phase(self, name: str) -> "TrainingState":
        """The state at the start of a new phase, in which no epoch is the best yet."""
        return TrainingState(self.epochs, name, self.epochs, False, self.epochs, None)


class StateFile(TypedDict):
    """state.json: a ``TrainingState``, how many processes wrote it, and checksums of all files and itself."""

    epochs: Count
    phase: str
    phase_began: Count
    phase_over: bool
    best_epoch: Count
    best: float | None
    processes: Annotated[int, Range(1, 1 << 16)]
    checksums: dict[str, int]
    checksum: int


class CheckpointSaver:
    """Saves the checkpoints of a run: ``save`` writes the files of one, which then are put on the disk.

    Waiting for the disk takes as long as an epoch of a small head. So a thread does it while training goes
    on, if there is one process and no memory waits for it, as one in a file does, which the next epoch
    changes. ``wait`` returns when the last checkpoint is safe, or raises what went wrong.
    """

    def __init__(self, folder: Path, fabric: "Fabric") -> None:
        self.folder, self.fabric = folder, fabric
        self._pending: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.wait()
        except SparselabelError:
            if kind is None:  # else what ended the training is told
                raise

    def wait(self) -> None:
        """Wait until the last checkpoint is safe."""
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def save(
        self,
        state: TrainingState,
        model: dict[str, Tensor],
        average: dict[str, Tensor] | None,
        optimizer: dict[str, Any],
        method: ComposedLoss,
    ) -> None:
        """Save the checkpoint of ``state.epochs`` and remove those that are neither it nor the best."""
        self.wait()
        folder, fabric = self.folder, self.fabric
        final = folder / f"{state.epochs:04d}"
        work = folder / f"{final.name}.partial"
        if fabric.is_global_zero:
            shutil.rmtree(work, ignore_errors=True)
            shutil.rmtree(final, ignore_errors=True)
            work.mkdir(parents=True)
        fabric.barrier()
        memories = method.row_stores()
        tensors = {
            f"{name}/{key}": value
            for name, memory in memories.items()
            for key, value in memory.state().items()
        }
        own = work / f"memory-{fabric.global_rank}.safetensors"
        with _unharmed(final):
            write_tensors(tensors, own)
            if fabric.is_global_zero:
                write_tensors(model, work / "model.safetensors")
                write_tensors(method.state_dict(), work / "method.safetensors")
                if average is not None:
                    write_tensors(average, work / "average.safetensors")
                torch.save(optimizer, work / "optimizer.pt")
            else:
                _sync(own)
        of_memories = all_gather(torch.tensor([file_checksum(own)]))  # every process has written its file now
        if fabric.is_global_zero:
            with _unharmed(final):
                memory_files = [f"memory-{number}.safetensors" for number in range(fabric.world_size)]
                checksums = dict(zip(memory_files, of_memories.tolist(), strict=True))
                others = (file for file in work.iterdir() if file.name not in checksums)
                checksums |= {file.name: file_checksum(file) for file in others}
                about = asdict(state) | {"processes": fabric.world_size, "checksums": checksums}
                write_json(work / "state.json", about | {"checksum": json_checksum(about)})
        if fabric.world_size == 1 and not any(map(_waits, memories.values())):
            self._pending = ThreadPoolExecutor(1).submit(self._commit, work, final, state.best_epoch)
            return
        if fabric.is_global_zero:
            self._commit(work, final, state.best_epoch)
        fabric.barrier()
        for memory in memories.values():
            memory.on_checkpoint_saved()

    def _commit(self, work: Path, final: Path, best_epoch: int) -> None:
        """Put a checkpoint's files on the disk, give it its name, and remove old ones."""
        with _unharmed(final):
            for file in work.iterdir():
                _sync(file)
            _sync(work)
        work.rename(final)
        _sync(self.folder)
        remove_old_files(self.folder, self.fabric.world_size)
        for other in checkpoints(self.folder):
            if other not in (final, self.folder / f"{best_epoch:04d}"):
                shutil.rmtree(other)


def _unharmed(checkpoint: Path) -> AbstractContextManager[None]:
    return disk_errors(f"the checkpoint {checkpoint}", "the one before it is unharmed")


def _waits(memory: Memory) -> bool:
    """Whether a memory must know when a checkpoint is on the disk."""
    return type(memory).on_checkpoint_saved is not Memory.on_checkpoint_saved


def remove_old_files(folder: Path, processes: int) -> None:
    """Remove files of row stores that the newest checkpoint, of this many processes, does not need."""
    for file in files_of_others(_memory_folder(folder), processes):
        file.unlink()


def _memory_folder(folder: Path) -> Path:
    return Run(folder.parent).memory


def checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints of a folder, oldest first."""
    return sorted(path for path in folder.glob("[0-9]*") if path.suffix != ".partial")


class Checkpoint:
    """A checkpoint on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        file = path / "state.json"
        content = read_json(file, dict, _way_out(path))
        about = of_kind(content, StateFile, file, _way_out(path))
        if about["checksum"] != json_checksum(content):
            raise damaged(file, _way_out(path))
        self.processes, self._unchecked = about["processes"], about["checksums"]
        self.state = TrainingState(**{one.name: about[one.name] for one in fields(TrainingState)})  # type: ignore[literal-required]

    def model(self) -> dict[str, Tensor]:
        """The trained weights."""
        return load_tensors(self._checked("model.safetensors"))

    def average(self) -> dict[str, Tensor] | None:
        """The running average of the weights, if one was kept."""
        file = self.path / "average.safetensors"
        return load_tensors(self._checked(file.name)) if file.exists() else None

    def optimizer(self) -> dict[str, Any]:
        """The state of the optimizer, and of loss scaling."""
        file = self._checked("optimizer.pt")
        with _reading(file):
            refuse_traps(file)
            state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        return state

    def restore_method(self, method: ComposedLoss, fabric: "Fabric") -> None:
        """Restore the method and its memories."""
        method.load_state_dict(load_tensors(self._checked("method.safetensors")))
        share = Share(fabric.global_rank, fabric.world_size)
        for name, memory in method.row_stores().items():
            if share.processes == self.processes:
                memory.restore(self._memory_state(name, share.process))
            else:
                states = [self._memory_state(name, number) for number in range(self.processes)]
                restore_resharded(memory, states, _memory_folder(self.path.parent), share)

    @property
    def in_files(self) -> bool:
        """Whether some memories are in files, which hold the newest checkpoint only."""
        return any(name.endswith("/identity") for file in self._memory_files() for name in _names(file))

    def _memory_state(self, name: str, process: int) -> dict[str, Tensor]:
        """A row store's state as one process saved it; raises if the file that it names is missing."""
        path, prefix = self._checked(f"memory-{process}.safetensors"), f"{name}/"
        names = [name for name in _names(path) if name.startswith(prefix)]
        with _reading(path), safe_open(path, "pt") as file:
            state = {name.removeprefix(prefix): file.get_tensor(name) for name in names}
        folder = _memory_folder(self.path.parent)
        if is_in_file(state) and not (folder / file_name(state)).is_file():
            raise RunError(
                f"{folder} lacks {file_name(state)}, which the checkpoint {self.path.name} needs, with what "
                "the method remembers of every image",
                *BRING_BACK,
            )
        return state

    def _checked(self, name: str) -> Path:
        """The path of one of its files, whose checksum is compared when it is first used."""
        file = self.path / name
        if name in self._unchecked:
            with _reading(file):
                checksum = file_checksum(file)
            if checksum != self._unchecked[name]:
                raise damaged(file, _way_out(self.path))
            del self._unchecked[name]
        return file

    def _memory_files(self) -> list[Path]:
        return [self.path / f"memory-{number}.safetensors" for number in range(self.processes)]


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint to resume from, if there is one."""
    complete = checkpoints(folder)
    return Checkpoint(complete[-1]) if complete else None


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, memory-mapped."""
    with _reading(path):
        return load_file(path)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn errors of reading a checkpoint's file into a ``RunError`` with a remedy."""
    refuse_special(path, _way_out(path.parent), error=RunError)
    try:
        yield
    # torch raises what its unpickler meets in a damaged file: EOFError, IndexError, RuntimeError, ...
    except Exception as error:
        if is_out_of_memory(error):
            raise
        fault = "is missing" if not path.exists() else f"is damaged ({str(error).partition(chr(10))[0]})"
        raise RunError(f"{path} {fault}", _way_out(path.parent)) from error


def _way_out(checkpoint: Path) -> str:
    then = (
        f"{param('resume', True)} goes on from the checkpoint before it, if there is one, or from the start"
    )
    return f"remove the folder {checkpoint}: then {then}"


def _names(path: Path) -> list[str]:
    with _reading(path), safe_open(path, "pt") as file:
        return list(file.offset_keys())


def write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors to a file."""
    path.touch()
    mode = path.stat().st_mode
    save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, path)
    path.chmod(mode)  # safetensors leaves its files to their owner alone


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors to a file and sync it to the disk."""
    write_tensors(tensors, path)
    _sync(path)


@contextmanager
def disk_errors(what: str, comfort: str) -> Iterator[None]:
    """Turn errors of writing into a ``ResourceError``: libraries differ in their error for a full disk."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        raise ResourceError(
            f"{what} could not be written ({error}); {comfort}",
            *MAKE_ROOM,
        ) from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def files_of(method: ComposedLoss) -> list[FileRowStore]:
    """The row stores in files, including those that are first written after the warm-up."""
    values = (value for module in method.modules() for value in vars(module).values())
    return [value for value in values if isinstance(value, FileRowStore)]


def in_ram(method: ComposedLoss) -> int:
    """Bytes of the row stores in RAM when all are filled; every checkpoint holds them."""
    values = {id(value): value for module in method.modules() for value in vars(module).values()}
    return sum(value.rows * value.row_bytes for value in values.values() if isinstance(value, RamRowStore))


def say_where(method: ComposedLoss, machine: Machine, log: Log) -> None:
    """Log which row stores are in files, and their sizes."""
    files = files_of(method)
    if not files:
        return
    sizes = (f"{_name(memory)} ({format_bytes(memory.bytes)})" for memory in files)
    log.say(f"kept in files of the run: {listing(sizes)}")
    if machine.memories == "ram":
        log.say("this run already keeps them in files, so memories=ram has no effect")


def refuse_best_start(method: ComposedLoss) -> None:
    """Raise if fine-tuning shall start from the best epoch and row stores are in files, which lack it."""
    files = files_of(method)
    if files:
        raise ConfigError(
            f"{_name(files[0])} are kept in a file (too large for RAM, or {param('memories', 'file')}), "
            "which has the last epoch only: fine-tuning cannot start from the best",
            f"take {param('finetune.start', 'last')}",
        )


def _name(memory: FileRowStore) -> str:
    """What it stores, from the name of its file: running scores, heat maps, ..."""
    return memory.path.stem.rsplit("-", 3)[0].replace("-", " ")


MOMENTS = {"adam": 2, "adamw": 2, "sgd": 1}
"""Numbers that an optimizer keeps for every weight."""


def refuse_full_disk(
    config: TrainConfig, method: ComposedLoss, run: Run, network: Network, fabric: "Fabric", validated: bool
) -> None:
    """Raise if checkpoints and files of the method cannot fit where the run is.

    This is a lower bound: without validation the newest checkpoint is the best, and the weights of a head
    alone are left out.
    """
    at_once = min(CHECKPOINTS if validated else CHECKPOINTS - 1, config.finetune.epochs or config.head.epochs)
    model, trained = _weights(config, network)
    model, trained = model // fabric.world_size, trained // fabric.world_size  # one process writes them
    memories = in_ram(method)
    one = trained + memories
    files = sum(memory.bytes_still_needed()[1] for memory in files_of(method))
    needed = max(at_once * one, max(at_once - 1, 1) * one + model) + files
    written = _size_of([*run.checkpoints.rglob("*"), run.model_file])  # what the run will write over
    free = free_disk(run.path) + written // fabric.world_size
    if not files:  # beside new files there must be room for the old ones, until a checkpoint is safe
        free += _size_of(files_of_others(run.memory, fabric.world_size)) // fabric.world_size
    if needed <= free:
        return
    beside = f", and {format_bytes(files)} of files" if files else ""
    remembered = f" ({format_bytes(memories)} of it what {config.method} remembers of every image)"
    in_files = f"take {param('memories', 'file')} (once {format_bytes(2 * memories)} instead)"
    raise ResourceError(
        f"the run needs {format_bytes(needed)} of disk: {at_once} × {format_bytes(one)} for checkpoints"
        f"{remembered if memories else ''}{beside}; {format_bytes(free)} are free in {run.path}",
        "make room",
        f"take an {param('out')} on a larger disk",
        *([in_files] if memories > trained else []),
    )


def _weights(config: TrainConfig, network: Network) -> tuple[int, int]:
    """Bytes of the backbone, and of what a checkpoint of fine-tuning has of it."""
    finetune = config.finetune
    if not finetune.epochs:
        return 0, 0
    backbone = network.backbone
    parts = frozen_parts(backbone, norm=finetune.frozen_norm, stages=finetune.frozen_stages)
    frozen = {id(parameter) for part in parts for parameter in part.parameters()}
    moved = bytes_of(parameter for parameter in backbone.parameters() if id(parameter) not in frozen)
    model = bytes_of(backbone.state_dict().values())
    return model, model * (2 if finetune.ema_decay else 1) + MOMENTS[finetune.optimizer] * moved


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Bytes of tensors."""
    return sum(tensor.nbytes for tensor in tensors)


def _size_of(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.is_file())
