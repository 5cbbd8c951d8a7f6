"""Two Ray nodes on this machine, each with one core, in a process of their own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


@contextmanager
def local_nodes(count: int = 2, cores: int = 1, **last: Any) -> Iterator[Any]:
    """A cluster of so many nodes; ``last`` is said to the one that joins last."""
    from ray.cluster_utils import Cluster

    address: dict[str, Any] = {"node_ip_address": "127.0.0.1"}
    nodes: Any = Cluster(
        initialize_head=True, head_node_args={"num_cpus": cores, "include_dashboard": False, **address}
    )
    try:
        for number in range(1, count):
            nodes.add_node(num_cpus=cores, **address, **(last if number == count - 1 else {}))
        yield nodes
    finally:
        nodes.shutdown()
