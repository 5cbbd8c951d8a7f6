"""Imports go one way (docs/architecture.md), and what the sources never do."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparselabel

ROOT = Path(sparselabel.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
NAMES = [path.relative_to(ROOT).as_posix() for path in MODULES]

ORDER = (
    {"errors", "notebook_progress", "slow_imports"},
    {"checksums", "files", "progress", "schema"},
    {"file_formats", "locks"},
    {"config"},
    {"resources", "run", "recipes"},
    {"distributed", "ray_cluster"},
    {"data"},
    {"models"},
    {"losses"},
    {"expected_positives", "testing"},
    {"metrics"},
    {"inference", "estimator"},
    {"export", "hub", "training"},
    {"report"},
    {"comparison", "review"},
    {"plan", "doctor"},
    {"cli"},
    {"__main__"},
)
"""The parts of the package: each may import itself and those above it."""
MAY_SEE = {part: {part}.union(*ORDER[:place]) for place, parts in enumerate(ORDER) for part in parts}
for part in ("report", "cli"):
    MAY_SEE[part].add("")  # the package itself: its version
MAY_SEE["__init__"] = {  # the public names
    *("data", "models", "losses", "expected_positives", "metrics", "inference", "estimator", "run"),
    *("training", "comparison"),
}


FACADES = {"run"}
"""Parts whose methods import what is below them when they are called: only their own imports count."""


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module a source imports, wherever the import stands; ``from a import b`` gives ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)


def part_of(module: str) -> str:
    """The part of the package a full name belongs to: ``sparselabel.data.labels.POSITIVE`` to ``data``."""
    first = module.split(".")[1]
    return first if (ROOT / first).is_dir() or (ROOT / f"{first}.py").is_file() else ""


@pytest.fixture(params=MODULES, ids=NAMES)
def module(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), path.name)


def test_imports_go_one_way(module: Path) -> None:
    here = module.relative_to(ROOT).parts[0].removesuffix(".py")
    tree = tree_of(module)
    if here in FACADES:
        tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    seen = {part_of(name) for name in imported(tree) if name.split(".")[0] == "sparselabel"}
    assert seen <= MAY_SEE[here], f"{here} must not import {seen - MAY_SEE[here]}"


def test_imports_are_absolute(module: Path) -> None:
    assert [name for name in imported(tree_of(module)) if name.startswith(".")] == []


def test_the_rule_sees_imports_in_functions() -> None:
    source = "def f():\n    from sparselabel.cli import main\nif TYPE_CHECKING:\n    import sparselabel.data"
    assert [part_of(name) for name in imported(ast.parse(source))] == ["cli", "data"]
    assert part_of("sparselabel.__version__") == ""


def test_nothing_is_asserted(module: Path) -> None:
    assert [node.lineno for node in ast.walk(tree_of(module)) if isinstance(node, ast.Assert)] == []


def test_nothing_unpickles_or_runs_text(module: Path) -> None:
    assert dangers(tree_of(module)) == []


WRITTEN_DIRECTLY = {
    "resources.py": "/proc, to count memory anew",
    "split_writer.py": "a folder that gets its name when it is whole",
    "train_on_ray.py": "a file that shows whether a folder is shared",
    "export.py": "the partial file, by its caller",
    "predict.py": "/dev/null",
}


def test_files_are_written_atomically(module: Path) -> None:
    """Under another name, which ``atomic_write`` gives; what else may be written is in the list above."""
    assert module.name in WRITTEN_DIRECTLY or written_directly(tree_of(module)) == []


def written_directly(tree: ast.Module) -> list[str]:
    """Calls that write a whole file, not called partial."""
    found = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if not isinstance(call.func, ast.Attribute | ast.Name):
            continue
        path, _, name = ast.unparse(call.func).rpartition(".")
        mode = (call.args if path else call.args[1:])[:1]  # the built-in open has the file first
        writes = any(isinstance(one, ast.Constant) and str(one.value).startswith("w") for one in mode)
        direct = (name in ("write_text", "write_bytes") and path) or (name == "open" and writes)
        if direct and "partial" not in path and path != "digests":
            found.append(ast.unparse(call))
    return found


def test_the_rule_sees_what_is_written_directly() -> None:
    source = (
        "path.write_text(text)\nout.open('w')\npartial.write_bytes(b'')\nfile.open()\nwrite_text(path, text)"
        "\nopen(out, 'w')\nopen(out)"
    )
    assert written_directly(ast.parse(source)) == [
        "path.write_text(text)",
        "out.open('w')",
        "open(out, 'w')",
    ]


DANGEROUS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}


def dangers(tree: ast.Module) -> list[str]:
    """What could run a file's or a text's content."""
    found = [name for name in imported(tree) if name.split(".")[0] in DANGEROUS or name == "torch.load"]
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        if name in ("eval", "exec", "compile", "__import__", "os.system"):
            found.append(name)
        if name == "torch.load" and given.get("weights_only") != "True":
            found.append("torch.load without weights_only=True")
        if name in ("np.load", "numpy.load") and given.get("allow_pickle", "False") != "False":
            found.append("np.load with pickles")
        if name == "Image.open" and "formats" not in given:
            found.append("Image.open of any format")
        if given.get("shell", "False") != "False":
            found.append(f"{name} through a shell")
    return found


@pytest.mark.parametrize(
    ("source", "danger"),
    [
        ("import pickle", "pickle"),
        ("from pickle import loads", "pickle.loads"),
        ("eval('1')", "eval"),
        ("exec(text)", "exec"),
        ("torch.load(path)", "torch.load without weights_only=True"),
        ("torch.load(path, weights_only=False)", "torch.load without weights_only=True"),
        ("from torch import load", "torch.load"),
        ("np.load(path, allow_pickle=True)", "np.load with pickles"),
        ("Image.open(path)", "Image.open of any format"),  # for EPS Pillow starts Ghostscript
    ],
)
def test_the_rule_sees_dangers(source: str, danger: str) -> None:
    assert dangers(ast.parse(source)) == [danger]


def test_the_rule_sees_no_danger_where_none_is() -> None:
    assert (
        dangers(ast.parse("model.eval(); torch.load(f, weights_only=True); np.load(f, allow_pickle=False)"))
        == []
    )
