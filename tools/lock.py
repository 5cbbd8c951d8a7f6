"""``make lock`` and ``make test LOCKED=1``: the tested versions with the digests of all their files.

``python -m tools.lock write`` asks pip's index for the files of every version in constraints.txt, of all
platforms, and writes their SHA-256 into constraints.sha256. ``python -m tools.lock install`` lets pip resolve
the package and its extra ``dev`` by constraints.txt, then installs what this platform needs of it with
``--require-hashes``: a file of other bytes is refused. Nothing but pip is needed, and no package of the index
runs before its digest is checked.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from urllib.request import Request, urlopen

ROOT = Path(__file__).parent.parent
PINS, LOCK = ROOT / "constraints.txt", ROOT / "constraints.sha256"
HEAD = "# SHA-256 of every file of the tested versions (constraints.txt), by `make lock`.\n"
OTHER_PYTHONS = re.compile(r"-(?:cp2\d|cp3\d|cp310|pp\d+)-(?!abi3)")
FILE = re.compile(r"<a\s[^>]*href=[\"']([^\"'#]*)#sha256=([0-9a-f]{64})")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)$")
TOGETHER = 8


def normal(name: str) -> str:
    """A package's name as indexes have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    """Versions by name, of a file of constraints or of the lock."""
    found = (PIN.match(line.partition(" ")[0]) for line in text.splitlines())
    return {normal(one[1]): one[2] for one in found if one}


def digests_of(page: str, version: str) -> list[str]:
    """SHA-256 of a version's files for Python 3.11 and newer, on a package's page of an index (PEP 503)."""
    stem = re.compile(rf"-{re.escape(version)}(?:-[^/]*\.whl|\.tar\.gz|\.zip)$")
    files = [(unquote(file), digest) for file, digest in FILE.findall(page)]
    return sorted({one for name, one in files if stem.search(name) and not OTHER_PYTHONS.search(name)})


def locked(text: str) -> dict[str, tuple[str, list[str]]]:
    """Version and digests by name, of the lock."""
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {name: (version, digests) for name, version, *digests in lines}


def index() -> str:
    """Where pip looks for packages."""
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    set_to = (
        os.environ.get("PIP_INDEX_URL")
        or subprocess.run(asked, check=False, capture_output=True, text=True).stdout.strip()
    )
    if not set_to:
        from pip._internal.models.index import PyPI

        set_to = PyPI.simple_url
    return set_to.rstrip("/")


def write() -> int:
    """Write the lock; the exit code."""
    address, versions = index(), pins(PINS.read_text(encoding="utf-8"))

    def ask(name: str) -> list[str]:
        with urlopen(Request(f"{address}/{name}/", headers={"Accept": "text/html"}), timeout=120) as reply:
            return digests_of(reply.read().decode(), versions[name])

    with ThreadPoolExecutor(TOGETHER) as pool:
        found = dict(zip(versions, pool.map(ask, versions), strict=True))
    lacking = [f"{name} {versions[name]}" for name, digests in found.items() if not digests]
    if lacking:
        print(f"the index has no files of {', '.join(lacking)}")  # noqa: T201
        return 1
    lines = [" ".join([name, versions[name], *found[name]]) + "\n" for name in sorted(found)]
    LOCK.write_text(HEAD + "".join(lines), encoding="utf-8")
    print(f"{sum(map(len, found.values())):,} files of {len(found)} packages in {LOCK.name}")  # noqa: T201
    return 0


def requirements(report: dict[str, Any], lock: dict[str, tuple[str, list[str]]]) -> list[str]:
    """Lines for ``pip install --require-hashes`` of what pip would install; raises for what is not locked."""
    wanted = [(normal(one["metadata"]["name"]), one["metadata"]["version"]) for one in report["install"]]
    lacking = [f"{name}=={version}" for name, version in wanted if lock.get(name, ("", []))[0] != version]
    if lacking:
        raise SystemExit(
            f"not in {LOCK.name}: {' '.join(lacking)}: add them to constraints.txt and `make lock`, or "
            "install without LOCKED"
        )
    return [
        f"{name}=={version} " + " ".join(f"--hash=sha256:{digest}" for digest in lock[name][1])
        for name, version in wanted
    ]


def install() -> int:
    """Install the package for development, every file that comes from the index checked; the exit code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    direct = project["dependencies"] + project["optional-dependencies"]["dev"] + ["setuptools"]
    with tempfile.TemporaryDirectory() as folder:
        report, wanted = Path(folder, "report.json"), Path(folder, "requirements.txt")
        resolve = ["--dry-run", "--ignore-installed", "--report", report, "--constraint", PINS]
        if _pip(*resolve, *direct):
            return 1
        lines = requirements(json.loads(report.read_text()), locked(LOCK.read_text(encoding="utf-8")))
        wanted.write_text("\n".join(lines) + "\n", encoding="utf-8")
        failed = _pip("--require-hashes", "--no-deps", "--requirement", wanted)
        return failed or _pip("--no-deps", "--no-build-isolation", "--editable", ROOT)


def _pip(*words: object) -> int:
    asked = [sys.executable, "-m", "pip", "--quiet", "install", *map(str, words)]
    return subprocess.run(asked, check=False).returncode


if __name__ == "__main__":
    sys.exit({"write": write, "install": install}[sys.argv[1]]())
