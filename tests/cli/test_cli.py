"""Help, the list of methods, and errors."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sparselabel
from sparselabel.cli import GIVE_AGAIN
from sparselabel.errors import DataError
from tests.cli.conftest import Command, images, in_a_subprocess

VERBS = (
    "prepare", "data", "labels", "methods", "recipes", "expect", "train", "evaluate", "compare", "differ",
    "figure", "report", "review", "demo", "doctor",
)  # fmt: skip

EXPORTS = ("label-studio", "cvat", "fiftyone")


def test_help_lists_the_verbs(command: Command) -> None:
    done = command("--help")
    assert done == 0
    for word in (*VERBS, "--version"):
        assert word in done.out
    assert command().out == done.out  # without a word, too


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(command: Command, verb: str) -> None:
    done = command(verb, "--help")
    assert done == 0
    assert f"Usage: sparselabel {verb}" in done.out


READERS = ("voc", "coco", "nuswide", "cub", "imagenet", "table", "folder", "scenes", *EXPORTS)


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_has_help(command: Command, reader: str) -> None:
    done = command("prepare", reader, "--help")
    assert done == 0
    for flag in ("--out", "--force", "--sparsify", "--share", "--validation", "--skip-broken"):
        assert flag in done.out


def test_train_has_a_flag_for_everything(command: Command) -> None:
    out = command("train", "--help-all").out
    for flag in ("--method", "--settings.NAME", "--views.size", "--head.lr"):
        assert flag in out
    for flag in ("--finetune.ema-decay", "--workers", "--resume", "--force", "--quiet", "--partial-weights"):
        assert flag in out


def test_version(command: Command) -> None:
    done = command("--version")
    assert (done, done.out) == (0, f"{sparselabel.__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "imported"),
    [
        (["--help"], []),
        (["train", "--help"], []),
        (["train", "--help-all"], []),
        (["--version"], []),
        (["prepare", "--help"], ["PIL", "numpy"]),  # of the readers, whose options are the flags
        (["prepare", "coco", "--help"], ["PIL", "numpy"]),
    ],
)
def test_help_is_quick(arguments: list[str], imported: list[str], tmp_path: Path) -> None:
    code = (
        "import sys; from sparselabel.cli import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'timm', 'torchvision', 'numpy', 'PIL', 'lightning_fabric'} & set(sys.modules)\n"
        "print(sorted(heavy), file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(sparselabel.__file__).parents[1])}
    run = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(run, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
    assert done.stderr == f"{imported}\n"
    assert done.stdout


def test_the_module_is_the_command(tmp_path: Path) -> None:
    done = in_a_subprocess("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{sparselabel.__version__}\n", "")


# Methods.


def test_methods_lists_all(command: Command) -> None:
    from sparselabel.losses.registry import METHODS

    done = command("methods")
    assert done == 0
    listed = [line.split("│")[1].strip() for line in done.out.splitlines() if line.startswith("│")]
    assert [name for name in listed if name] == list(METHODS)
    assert "all labels (an oracle)" in done.out


def test_methods_explains_one(command: Command) -> None:
    done = command("methods", "role")
    assert done == 0
    assert done.out.startswith("role\nRegularized online label estimation: ")
    assert "Needs: expected_positives." in done.out
    assert "--settings.positive-weight" in done.out
    assert "nothing but the labels" in command("methods", "an").out


def test_methods_says_what_combines(command: Command) -> None:
    done = command("methods")
    assert "METHOD+ENTRY_LOSS+UNLABELED+CONSISTENCY" in done.out
    assert "UNLABELED cluster, fixmatch, for images without labels: on iu, csl-i, patchml, csl-p." in done.out
    assert "CONSISTENCY cl, scl: on all but role, soft." in done.out
    assert "instead of cross-entropy, or of splc's focal margin: on bce," in done.out
    assert "--settings.gamma-neg" in command("methods", "splc").out
    assert "--settings.threshold" in command("methods", "splc+hill").out
    assert "--settings.gamma-neg" not in command("methods", "splc+hill").out
    done = command("methods", "em+apl+scl")
    assert done == 0
    assert "Entropy maximization with asymmetric pseudo-labels" in done.out
    assert "Spatial consistency: γ times" in done.out
    assert "scale of the mean" in done.out
    assert "preset voc: entropy_weight 0.2, soft_weight 0.02, warm_up 5" in done.out


def test_methods_names_the_nearest(command: Command) -> None:
    done = command("methods", "rolle")
    assert done == 2
    assert done.err.startswith(
        "sparselabel: error: there is no method 'rolle': did you mean 'role'? known: an,"
    )
    assert done.err.count("\n") == 1
    assert done.out == ""


def test_an_error_is_one_line_without_traceback(command: Command, tmp_path: Path) -> None:
    done = command("data", "nothing")
    assert done == 1
    assert done.err == (
        "sparselabel: error: nothing is not prepared data (there is no such folder): "
        "make it with `sparselabel prepare READER SOURCE --out DIR`\n"
    )
    assert done.out == ""
    outside = in_a_subprocess("data", "nothing", cwd=tmp_path)
    assert (outside.returncode, outside.stdout, outside.stderr) == (1, "", done.err)


def test_a_warning_is_one_line(tmp_path: Path) -> None:
    images(tmp_path / "photos/train", cat=2, dog=1)
    images(tmp_path / "photos/test", cat=1, eel=1)
    done = in_a_subprocess("prepare", "folder", "photos", "--out", "data", "--validation", "0", cwd=tmp_path)
    assert done.returncode == 0
    warned = [line for line in done.stderr.splitlines() if "warning" in line]
    assert warned == [
        "sparselabel: warning: 1 of 3 classes have no positive label in training and cannot be learned: eel"
    ]
    assert "prepare.py" not in done.stderr


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes ``sparselabel data`` fail with an error."""

    def fail_with(error: BaseException) -> None:
        def fail(_: Path) -> None:
            raise error

        monkeypatch.setattr("sparselabel.data.prepared_files.open_prepared", fail)

    return fail_with


def test_warnings_of_others(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    import warnings

    from sparselabel.errors import DataWarning

    def warn(_: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("mind this", DataWarning, stacklevel=1)
            warnings.warn("mind that", UserWarning, stacklevel=1)
            warnings.warn("for programmers", DeprecationWarning, stacklevel=1)
        raise DataError("no")

    monkeypatch.setattr("sparselabel.data.prepared_files.open_prepared", warn)
    assert command("data", "prepared").err.splitlines() == [
        "sparselabel: warning: mind this",
        "sparselabel: note: UserWarning: mind that",
        "sparselabel: error: no",
    ]


def test_memory_that_is_not_there(command: Command, failing: Any) -> None:
    words = "err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 3 bytes."
    failing(RuntimeError(f"[enforce fail at alloc_cpu.cpp:127] {words}"))
    done = command("data", "prepared")
    assert done == 1
    assert "not enough memory (err == 0. DefaultCPUAllocator: can't allocate" in done.err
    assert "take smaller views (--views.size) or batches" in done.err
    failing(MemoryError())
    assert "not enough memory (MemoryError)" in command("data", "prepared").err


@pytest.mark.parametrize(("number", "words"), [(28, "No space left on device"), (122, "Disk quota exceeded")])
def test_a_full_disk(
    command: Command, failing: Any, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    mounted = Path("run").absolute()
    monkeypatch.setattr("os.path.ismount", lambda path: path == mounted)
    failing(OSError(number, words, "run/model.safetensors"))
    done = command("data", "prepared")
    assert done == 1
    said = f"run/model.safetensors could not be written: {words} (disk {mounted}); {GIVE_AGAIN}"
    assert done.err == f"sparselabel: error: {said}\n"
    failing(OSError(number, words))
    assert f"error: a file could not be written: {words}; {GIVE_AGAIN}" in command("data", "prepared").err


def test_a_file_that_may_not_be_touched(command: Command, failing: Any) -> None:
    failing(PermissionError(13, "Permission denied", "prepared/dataset.json"))
    done = command("data", "prepared")
    assert done == 1
    said = "prepared/dataset.json could not be used: Permission denied; check its name and permissions"
    assert done.err == f"sparselabel: error: {said}\n"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("run/config.toml.partial", "run/config.toml"),
        ("run/checkpoints/0003.partial/state.json", "run/checkpoints/0003/state.json"),
        ("data/.partial/new/train/ids.npy", "data/train/ids.npy"),
        ("data/features/train-1a2b.here-4711.partial.npy", "data/features/train-1a2b.npy"),
        ("photos/no.partial.view.jpg", "photos/no.partial.view.jpg"),
    ],
)
def test_a_file_is_named_as_it_will_be_called(command: Command, failing: Any, file: str, name: str) -> None:
    failing(PermissionError(13, "Permission denied", file))
    assert command("data", "prepared").err.startswith(f"sparselabel: error: {name} could not be used")


def test_other_errors_keep_their_traceback(command: Command, failing: Any) -> None:
    failing(OSError(5, "Input/output error"))
    with pytest.raises(OSError, match="Input/output error"):
        command("data", "prepared")
    failing(ZeroDivisionError("a bug"))
    with pytest.raises(ZeroDivisionError):
        command("data", "prepared")


def test_a_stop_by_the_user(
    command: Command, failing: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparselabel.cli.WRITTEN", written := set[Path]())
    failing(KeyboardInterrupt())
    done = command("data", "prepared")
    assert done == 130
    assert "kept" not in done.err
    written.add(tmp_path)
    done = command("data", "prepared")
    assert done == 130
    again = "give the same command again (`train` with `--resume`"
    assert done.err.startswith(f"sparselabel: stopped: finished work is kept: {again}")
