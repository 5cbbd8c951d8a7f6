"""Map a function over many items, by processes on this machine or a Ray cluster, with results in order."""

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from sparselabel.config import CORES
from sparselabel.errors import ResourceError, SparselabelError
from sparselabel.ray_cluster import alive_nodes, connected, refuse_unfit_nodes

Item = TypeVar("Item")
Result = TypeVar("Result")

WAITING = 4  # items per process, so that none waits for the slowest


def in_parallel(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    cluster: str | None = None,
    seen: Sequence[Path] = (),
) -> Iterator[Result]:
    """Apply ``work``, a module's function, to each item.

    With ``cluster``, Ray's address, its nodes work, which must see the files ``seen`` as this machine does.
    """
    if cluster is not None:
        yield from _on_ray(work, items, cluster, seen)
        return
    processes = CORES
    rest = iter(items)
    first = [*islice(rest, 2)]
    if len(first) < 2:  # nothing to share
        yield from map(work, first)
        return
    pool: Executor
    if sys.platform == "linux":  # processes that are not forked would run the user's program again
        pool = ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), _ignore_interrupts)
    else:
        pool = ThreadPoolExecutor(processes)
    with pool:
        with _without_interrupts():
            pool.submit(os.getpid)  # the first item forks all processes
        try:
            yield from map_ahead(pool, work, chain(first, rest), WAITING * processes)
        except BrokenProcessPool as error:
            raise ResourceError(
                "a process was killed while it read images, by the system if memory ran out",
                "free memory and begin again",
            ) from error


def _ignore_interrupts() -> None:
    """Ctrl-C reaches all processes of a terminal; the one that shares the work out ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back: what is raised in the midst of a fork Python prints and forgets."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupts: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if interrupts:
        signal.raise_signal(signal.SIGINT)


def map_ahead(
    pool: Executor, work: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    """Results of a pool in the order of the items, at most ``ahead`` of which are taken before their turn."""
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for left in waiting:
            left.cancel()


def _on_ray(
    work: Callable[[Item], Result], items: Iterable[Item], cluster: str, seen: Sequence[Path]
) -> Iterator[Result]:
    with connected(cluster) as ray:
        from ray.exceptions import NodeDiedError, OutOfMemoryError, WorkerCrashedError

        nodes = alive_nodes(ray)
        refuse_unfit_nodes(ray, nodes, seen)
        folder = str(Path.cwd())

        def there(item: Item) -> Any:
            with suppress(OSError):  # a node may lack it, where all images have addresses
                os.chdir(folder)
            try:
                return work(item)
            except SparselabelError as error:  # Ray would hide it in one of its own
                return error

        task = ray.remote(there)
        waiting: deque[Any] = deque()
        most = WAITING * max(1, sum(node.cores for node in nodes))

        def oldest() -> Result:
            try:
                result: Result | SparselabelError = ray.get(waiting.popleft())
            except (NodeDiedError, OutOfMemoryError, WorkerCrashedError) as error:  # again and again
                raise ResourceError(
                    "a process of the cluster was killed while it read images, by the system if memory ran "
                    f"out ({str(error).partition(chr(10))[0]})",
                    "look at the memory of the nodes and begin again",
                ) from error
            if isinstance(result, SparselabelError):
                raise result
            return result

        for item in items:
            waiting.append(task.remote(item))
            if len(waiting) >= most:
                yield oldest()
        while waiting:
            yield oldest()
