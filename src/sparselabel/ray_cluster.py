"""Join a Ray cluster (the extra ``cluster``), list its nodes, and refuse nodes that cannot work.

Ray's protocol is unauthenticated and runs what it is sent: it is for networks that one trusts.
"""

import hashlib
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from sparselabel.errors import ConfigError, RunError, counted, listing, param

PACKAGES = ("sparselabel", "torch", "numpy")
"""Packages of which all nodes must have the version of the machine that asks: others may change results."""
PATIENCE = 120  # seconds until a node that says nothing counts as unreachable
ATTEMPTS = "2"  # to reach the head, of about 40 seconds each: Ray makes twenty by default
SETTINGS = b"\x04"  # the type of the frame that each side of HTTP/2, which gRPC is made of, sends first
DUMPS = "Raylet is terminated|temporarily unavailable"
"""What Ray's messages of many lines have in them: its own logs, for every node that dies."""
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + SETTINGS + b"\0" * 5


def import_ray() -> Any:
    """Import Ray, without its usage reports and dumps."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", DUMPS)
    try:
        import ray
    except ImportError as error:
        problem = f"{param('cluster')} needs a package"
        raise ConfigError(problem, "pip install 'sparselabel[cluster]'") from error
    return ray


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, joined to the cluster at ``address``; ``auto`` is the one that this machine belongs to.

    A connection that there is already, as in a notebook, is what ``auto`` takes, and stays.
    """
    ray = import_ray()
    if address == "auto" and ray.is_initialized():
        yield ray
        return
    connect(ray, address)
    try:
        yield ray
    finally:
        ray.shutdown()


def connect(ray: Any, address: str) -> None:
    """Join a cluster; refuses an address where there is none, or one of another version of Ray or Python."""
    try:
        _knock(address)
        os.environ.setdefault("RAY_gcs_server_port_wait_time_s", ATTEMPTS)
        with _silent():
            ray.init(address=address, log_to_driver=False, logging_level="error", namespace="sparselabel")
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"there is no Ray cluster at {address!r} that this machine belongs to ({error})",
            "start one, or join it here, with `ray start` as docs/clusters.md says, and give "
            f"{param('cluster', 'auto')}; only in a network that you trust, as Ray's own protocol is "
            "unauthenticated and runs what it is sent",
            what="cluster",
            value=address,
        ) from error


def _knock(address: str) -> None:
    """Raise at once if nobody at HOST:PORT speaks gRPC, as Ray does: Ray would try for minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or "://" in address:
        return
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        if os.environ.get("RAY_USE_TLS", "0") != "0":
            return
        connection.sendall(HELLO)
        if connection.recv(9, socket.MSG_WAITALL)[3:4] != SETTINGS:
            raise OSError("what listens there is not Ray")


@contextmanager
def _silent() -> Iterator[None]:
    """Silence standard error while Ray starts: its C++ code logs there whatever the log level."""
    sys.stderr.flush()
    stderr, devnull = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(devnull)


class Node(NamedTuple):
    """A live node of the cluster, with its total resources."""

    id: str
    name: str
    cores: int
    gpus: int


def alive_nodes(ray: Any) -> list[Node]:
    """The nodes that are alive, in the order in which they joined."""
    return [
        Node(
            node["NodeID"],
            f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})",
            int(node["Resources"].get("CPU", 0)),
            int(node["Resources"].get("GPU", 0)),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


class Seen(NamedTuple):
    """What a node has: versions of packages and digests of files; None for missing ones."""

    versions: dict[str, str | None]
    files: dict[str, str | None]


def answering_nodes(ray: Any) -> list[Node]:
    """The nodes that are alive and answer: one that is lost counts as alive for half a minute.

    Work that Ray sends to such a node would wait for it without end.
    """
    answers = look_at(ray, alive_nodes(ray), [], [])
    return [node for node, answer in answers if isinstance(answer, Seen)]


def wants_gpu(nodes: Sequence[Node], accelerator: str) -> bool:
    """Whether work is for GPUs: asked for, or left open where some node has one."""
    return accelerator == "gpu" or (accelerator == "auto" and any(node.gpus for node in nodes))


def listed(nodes: Sequence[Node]) -> str:
    """A text on what nodes have, for an error message."""
    return listing(f"{counted(node.cores, 'core')} and {counted(node.gpus, 'GPU')}" for node in nodes)


def refuse_unfit_nodes(
    ray: Any, nodes: Sequence[Node], files: Sequence[Path] = (), packages: Sequence[str] = PACKAGES
) -> None:
    """Raise if a node lacks this package, has another version, or does not see ``files`` as they are here.

    Files are small, on the disk that all nodes share: a folder of the same name may be another disk's.
    """
    paths = [str(file.absolute()) for file in files]
    here = Seen({name: version(name) for name in packages}, {path: file_digest(path) for path in paths})
    for node, there in look_at(ray, nodes, list(packages), paths):
        if isinstance(there, Seen):
            refuse_difference(node, here, there)
        elif not isinstance(there, NodeGoneError):
            raise RunError(
                f"node {node.name} of the cluster does not work ({str(there).strip().splitlines()[-1]})",
                "look at it with `ray status`",
                where=node.name,
            ) from there


def refuse_difference(node: Node, here: Seen, there: Seen) -> None:
    """Raise if a node has something else than this machine."""
    for name, wanted in here.versions.items():
        has = there.versions[name]
        if has != wanted:
            problem = f"has {name} {has}" if has else f"has no package {name}"
            raise ConfigError(
                f"node {node.name} {problem}, and this machine has {wanted}",
                "install the same versions on every node",
                what=name,
                where=node.name,
                value=has,
                allowed=wanted,
            )
    for path, digest in here.files.items():
        if there.files[path] != digest:
            problem = f"does not see {path}" if there.files[path] is None else f"has another file {path}"
            raise RunError(
                f"node {node.name} {problem}: data and results must be on a disk that all nodes share, under "
                "the same path",
                "mount it there",
                "leave that node out of the cluster",
                what=path,
                where=node.name,
            )


class NodeGoneError(Exception):
    """A node that counted as alive is not there any more."""


def look_at(
    ray: Any, nodes: Sequence[Node], packages: list[str], paths: list[str]
) -> Iterator[tuple[Node, Seen | Exception]]:
    """Find out by a task on each node what it has, or why that is unknown."""
    from ray.exceptions import GetTimeoutError, NodeDiedError, RayError, TaskUnschedulableError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # Ray sends a function inside another one as its code: a node without this package could not import it.
    def look() -> tuple[dict[str, str | None], dict[str, str | None]]:
        import hashlib
        import importlib.metadata

        versions: dict[str, str | None] = {}
        files: dict[str, str | None] = {}
        for name in packages:
            try:
                versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                versions[name] = None
        for path in paths:
            try:
                with open(path, "rb") as file:  # noqa: PTH123
                    files[path] = hashlib.blake2b(file.read(), digest_size=16).hexdigest()
            except OSError:
                files[path] = None
        return versions, files

    task = ray.remote(num_cpus=0, max_retries=0)(look)
    answers = [
        task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)).remote()
        for node in nodes
    ]
    for node, answer in zip(nodes, answers, strict=True):
        try:
            yield node, Seen(*ray.get(answer, timeout=PATIENCE))
        except (NodeDiedError, TaskUnschedulableError) as error:
            yield node, NodeGoneError(str(error))
        except (GetTimeoutError, RayError) as error:
            yield node, error


def file_digest(path: str) -> str | None:
    """The digest of a small file; None if it cannot be read."""
    try:
        return hashlib.blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return None
