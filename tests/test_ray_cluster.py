import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparselabel.errors import ConfigError, RunError
from sparselabel.ray_cluster import (
    Node,
    Seen,
    alive_nodes,
    connect,
    connected,
    file_digest,
    listed,
    refuse_difference,
    wants_gpu,
)
from tests.data.http_files import served

NODE = Node("1f", "far (10.0.0.2)", 4, 0)


def test_ray_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    with pytest.raises(ConfigError, match=r"`cluster` needs a package") as missing, connected("auto"):
        pass
    assert missing.value.remedies == ("pip install 'sparselabel[cluster]'",)
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def test_no_cluster_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no Ray cluster at '127.0.0.1:1' .*refused") as refused:
        connect(None, "127.0.0.1:1")
    assert refused.value.parameters == ["cluster"]
    assert (refused.value.what, refused.value.value) == ("cluster", "127.0.0.1:1")
    assert "unauthenticated and runs what it is sent" in refused.value.remedies[0]
    with pytest.raises(ConfigError, match=r"there is no Ray cluster at 'host:port' "):
        connect(None, "host:port")
    with served(tmp_path) as (address, _), pytest.raises(ConfigError, match=r"listens there is not Ray"):
        connect(None, address.removeprefix("http://"))


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ray (the extra `cluster`)")
def test_a_connection_that_is_there_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "shutdown", lambda: pytest.fail("it is not ours to end"))
    with connected("auto") as found:
        assert found is ray


def test_nodes_that_are_alive() -> None:
    about = {"NodeManagerHostname": "far", "NodeManagerAddress": "10.0.0.2"}
    nodes = [
        {"NodeID": "1f", "Alive": True, "Resources": {"CPU": 4.0}, **about},
        {"NodeID": "2f", "Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}, **about},
    ]
    found = alive_nodes(SimpleNamespace(nodes=lambda: nodes))
    assert found == [NODE]
    assert listed(found) == "4 cores and 0 GPUs"
    assert not wants_gpu(found, "auto")
    assert wants_gpu(found, "gpu")
    assert wants_gpu([Node("2f", "b", 64, 8)], "auto")
    assert not wants_gpu([Node("2f", "b", 64, 8)], "cpu")


def test_a_node_that_has_something_else(tmp_path: Path) -> None:
    file = tmp_path / "dataset.json"
    file.write_text("{}")
    here = Seen({"sparselabel": "0.1.0"}, {str(file): file_digest(str(file))})
    refuse_difference(NODE, here, here)
    with pytest.raises(ConfigError, match=r"node far \(10.0.0.2\) has sparselabel 0.0.9, and this") as other:
        refuse_difference(NODE, here, here._replace(versions={"sparselabel": "0.0.9"}))
    error = other.value
    assert (error.what, error.where, error.value, error.allowed) == (
        *("sparselabel", "far (10.0.0.2)", "0.0.9", "0.1.0"),
    )
    with pytest.raises(ConfigError, match="has no package sparselabel, and this machine has 0"):
        refuse_difference(NODE, here, here._replace(versions={"sparselabel": None}))
    with pytest.raises(RunError, match=r"does not see .*dataset.json: data and results must be on a disk"):
        refuse_difference(NODE, here, here._replace(files={str(file): None}))
    with pytest.raises(RunError, match=r"has another file .*dataset.json") as unlike:
        refuse_difference(NODE, here, here._replace(files={str(file): "00"}))
    assert (unlike.value.what, unlike.value.where) == (str(file), "far (10.0.0.2)")
