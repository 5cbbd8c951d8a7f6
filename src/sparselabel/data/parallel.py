"""Map a function over many items, by threads on this machine or a Ray cluster, with results in order."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from sparselabel.config import CORES
from sparselabel.errors import ResourceError, SparselabelError
from sparselabel.ray_cluster import alive_nodes, connected, refuse_unfit_nodes

Item = TypeVar("Item")
Result = TypeVar("Result")

WAITING = 4  # items per thread, so that none waits for the slowest


def in_parallel(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    cluster: str | None = None,
    seen: Sequence[Path] = (),
) -> Iterator[Result]:
    """Apply ``work`` to each item.

    With ``cluster``, Ray's address, its nodes work, which must see the files ``seen`` as this machine does.
    """
    if cluster is not None:
        yield from _on_ray(work, items, cluster, seen)
        return
    # Decoding and hashing release the interpreter's lock. Forks were no faster on two cores, and a fork while
    # threads of pyarrow or PyTorch hold a lock may wait for ever.
    with ThreadPoolExecutor(CORES) as pool:
        yield from map_ahead(pool, work, items, WAITING * CORES)


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
