import pickle
import re
from pathlib import Path

import pytest

from sparselabel.cli.arguments import AS_FLAGS
from sparselabel.errors import (
    AS_PYTHON,
    ConfigError,
    DataError,
    DataWarning,
    RunError,
    SparselabelError,
    Spelling,
    command,
    param,
    spell,
)

NO_FLAGS = Spelling(lambda name, value: None, AS_PYTHON.command)

EXISTS = RunError(
    "runs/a holds a run already",
    f"go on with it ({param('resume', True)})",
    f"choose another {param('out')}",
    what="runs/a",
)


def test_the_librarys_words() -> None:
    assert str(EXISTS) == "runs/a holds a run already: go on with it (`resume=True`), or choose another `out`"
    assert EXISTS.parameters == ["resume", "out"]
    assert (EXISTS.what, EXISTS.where, EXISTS.value, EXISTS.allowed) == ("runs/a", None, None, None)


def test_another_spelling_leaves_out_what_it_does_not_have() -> None:
    def only_out(name: str, value: str | None) -> str | None:
        return "--out" if name == "out" else None

    assert (
        EXISTS.render(Spelling(only_out, AS_PYTHON.command))
        == "runs/a holds a run already: choose another --out"
    )
    assert EXISTS.render(NO_FLAGS) == "runs/a holds a run already"


def test_a_problem_keeps_its_words_where_a_flag_is_missing() -> None:
    error = ConfigError(f"{param('frozen')} needs {param('head.epochs', 3)}", value=0)
    assert error.render(NO_FLAGS) == "`frozen` needs `head={'epochs': 3}`"
    assert (
        error.render(Spelling(lambda name, value: f"--{name} {value or ''}".strip(), AS_PYTHON.command))
        == "--frozen needs --head.epochs 3"
    )


def test_braces_in_a_name_are_left_alone() -> None:
    assert str(DataError("the file {a}.jpg cannot be read")) == "the file {a}.jpg cannot be read"


@pytest.mark.parametrize("kind", [DataError, ConfigError, RunError, DataWarning])
def test_errors_travel_between_processes(kind: type[SparselabelError]) -> None:
    error = kind("problem", f"give {param('seed')}", what="seed", value=-1, allowed="0 or more")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (kind, str(error), vars(error))


def test_a_command_as_a_remedy() -> None:
    said = command("prepare", "table", "LABELS", images="photos", skip_missing=True)
    assert spell(said) == "`sparselabel prepare table LABELS` with `images=photos` and `skip_missing=True`"
    assert spell(said, AS_FLAGS) == "`sparselabel prepare table LABELS --images photos --skip-missing`"
    assert spell(command("predict")) == spell(command("predict"), AS_FLAGS) == "`sparselabel predict`"


def test_no_module_of_the_library_speaks_in_flags() -> None:
    source = Path(__file__).parents[1] / "src/sparselabel"
    flag = re.compile(r"(?<![\w-])--[a-z]")
    speaking = {
        str(file.relative_to(source))
        for file in source.rglob("*.py")
        if file.parent.name != "cli" and flag.search(file.read_text(encoding="utf-8"))
    }
    assert speaking == set()
