"""The tested versions and the digests of their files."""

import pytest
from tools.lock import LOCK, PINS, digests_of, locked, pins, requirements

PAGE = """<!DOCTYPE html><html><body>
<a href="/files/Some_Tool-1.2.tar.gz#sha256={a}" data-requires-python="&gt;=3.8">Some_Tool-1.2.tar.gz</a><br/>
<a data-x="y" href="../some_tool-1.2-cp311-cp311-linux.whl#sha256={b}">wheel</a>
<a href="some_tool-1.2-cp39-cp39-linux.whl#sha256={c}">of an old Python</a>
<a href="some_tool-1.2-cp39-abi3-linux.whl#sha256={d}">of an old Python and all after it</a>
<a href="some_tool-1.2%2Bcpu-py3-none-any.whl#sha256={e}">a local version</a>
<a href="some_tool-1.2.1-py3-none-any.whl#sha256={f}">another version</a>
<a href="some_tool-1.2-py3-none-any.whl">without a digest</a></body></html>
"""
DIGEST = {letter: letter * 64 for letter in "abcdef"}


def test_files_of_a_version() -> None:
    assert digests_of(PAGE.format(**DIGEST), "1.2") == [DIGEST[letter] for letter in "abd"]


def test_what_pip_would_install_gets_its_digests() -> None:
    tool = {"metadata": {"name": "Some_Tool", "version": "1.2"}}
    lock = locked(f"# digests\nsome-tool 1.2 {DIGEST['a']} {DIGEST['b']}\n")
    assert requirements({"install": [tool]}, lock) == [
        f"some-tool==1.2 --hash=sha256:{DIGEST['a']} --hash=sha256:{DIGEST['b']}"
    ]
    tool["metadata"]["version"] = "1.3"
    with pytest.raises(SystemExit, match=r"not in constraints\.sha256: some-tool==1\.3: add"):
        requirements({"install": [tool]}, lock)


def test_every_tested_version_is_locked() -> None:
    lock = locked(LOCK.read_text(encoding="utf-8"))
    assert {name: version for name, (version, _) in lock.items()} == pins(PINS.read_text(encoding="utf-8"))
    assert all(digests and all(len(one) == 64 for one in digests) for _, digests in lock.values())
    assert "://" not in LOCK.read_text(encoding="utf-8")
