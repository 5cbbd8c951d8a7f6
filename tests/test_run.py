import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparselabel.config import HeadPhase, TrainConfig
from sparselabel.errors import RunError
from sparselabel.files import write_json
from sparselabel.run import Run

CONFIG = TrainConfig(method="role", settings={"expected_positives": 2.5})
ABOUT: dict[str, Any] = {"data": "somewhere", "data_digest": {"train": "abc"}, "classes": ["cat", "Möwe"]}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    folder = Run(tmp_path / "runs" / "role")
    folder.begin(CONFIG, ABOUT, resume=False, force=False)
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_begin_writes_what_the_run_is(run: Run) -> None:
    assert names(run.path) == {"config.toml", "run.json"}
    assert run.config() == CONFIG
    assert run.metadata() == ABOUT
    assert not run.finished


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    Run(tmp_path).begin(CONFIG, ABOUT, resume=False, force=False)
    assert Run(tmp_path).config() == CONFIG


def test_resume_begins_where_nothing_is(tmp_path: Path) -> None:
    run = Run(tmp_path / "new")
    run.begin(CONFIG, ABOUT, resume=True, force=False)
    assert run.config() == CONFIG


@pytest.mark.parametrize("finished", [False, True])
def test_nothing_is_overwritten_unasked(run: Run, finished: bool) -> None:
    if finished:
        write_json(run.result_file, {})
    with pytest.raises(
        RunError, match=r"holds a run already \((un)?finished\): .*resume=True.*force=True.*out"
    ) as error:
        run.begin(CONFIG, ABOUT, resume=False, force=False)
    assert ("(unfinished)" in str(error.value)) is not finished


def test_resume_leaves_the_run_as_it_is(run: Run) -> None:
    run.metrics_file.write_text("{}\n")
    run.begin(CONFIG, ABOUT | {"command": ["another"]}, resume=True, force=False)
    assert run.metrics_file.read_text() == "{}\n"
    assert run.metadata() == ABOUT


def test_force_replaces_the_run(run: Run) -> None:
    run.metrics_file.write_text("{}\n")
    run.checkpoints.mkdir()
    other = replace(CONFIG, seed=3)
    run.begin(other, ABOUT, resume=True, force=True)
    assert names(run.path) == {"config.toml", "run.json"}
    assert run.config() == other


def test_force_moves_nothing_to_where_a_link_points(run: Run) -> None:
    other = run.path.parent / "other"
    other.mkdir()
    (other / "config.toml").write_text("important")
    (run.path / ".replaced-run").symlink_to(other)
    run.begin(CONFIG, ABOUT, resume=False, force=True)
    assert names(run.path) == {"config.toml", "run.json"}
    assert (other / "config.toml").read_text() == "important"


def test_resume_refuses_another_configuration(run: Run) -> None:
    other = replace(
        CONFIG, seed=3, head=HeadPhase(epochs=7), settings={"expected_positives": 2.5, "weight": 2.0}
    )
    with pytest.raises(RunError, match="was begun with another configuration") as error:
        run.begin(other, ABOUT, resume=True, force=False)
    assert "(`head.epochs` was 25, not 7, `seed` was 0, not 3, `weight` was None, not 2.0)" in str(
        error.value
    )


def test_resume_refuses_other_data(run: Run) -> None:
    changed = ABOUT | {"data_digest": {"train": "xyz", "test": "new"}}
    with pytest.raises(
        RunError, match=r"\(somewhere has changed since; different: test, train\): resume it on"
    ):
        run.begin(CONFIG, changed, resume=True, force=False)
    # Other data make another configuration too (K is counted in it): the data is what to name.
    elsewhere = changed | {"data": "elsewhere"}
    with pytest.raises(RunError, match=r"begun on other data \(somewhere, not elsewhere; different: test"):
        run.begin(replace(CONFIG, seed=3), elsewhere, resume=True, force=False)


def test_resume_refuses_a_file_of_other_content(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.begin(CONFIG, ABOUT | {"expected_identity": "1"}, resume=False, force=False)
    run.begin(CONFIG, ABOUT | {"expected_identity": "1"}, resume=True, force=False)
    with pytest.raises(RunError, match="with a file of expected positives of the same name, but of other"):
        run.begin(CONFIG, ABOUT | {"expected_identity": "2"}, resume=True, force=False)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("force", [False, True])
def test_a_folder_that_is_no_run_is_never_touched(tmp_path: Path, resume: bool, force: bool) -> None:
    (tmp_path / "holiday.jpg").write_text("a photo")
    with pytest.raises(RunError, match="exists and is not a run: choose another `out`"):
        Run(tmp_path).begin(CONFIG, ABOUT, resume=resume, force=force)
    assert names(tmp_path) == {"holiday.jpg"}


@pytest.mark.parametrize("force", [False, True])
def test_a_file_in_the_way(tmp_path: Path, force: bool) -> None:
    (tmp_path / "notes").write_text("text")
    with pytest.raises(RunError, match="exists and is not a run"):
        Run(tmp_path / "notes").begin(CONFIG, ABOUT, resume=False, force=force)
    assert (tmp_path / "notes").read_text() == "text"


def test_force_replaces_a_run_that_stopped_while_it_began(tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", ABOUT)
    Run(tmp_path).begin(CONFIG, ABOUT, resume=False, force=True)
    assert Run(tmp_path).config() == CONFIG


def test_not_a_run(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with pytest.raises(
        RunError, match=r"is not a run \(it has no config.toml\): make one with `sparselabel train`"
    ):
        run.config()
    with pytest.raises(RunError, match=r"is not a run \(it has no run.json\): make one with"):
        run.metadata()
    with pytest.raises(RunError, match=r"is not a run \(it has no run.json\)"):
        run.result()
    with pytest.raises(RunError, match=r"is not a run \(there is no such folder\)"):
        Run(tmp_path / "typo").metadata()
    write_json(tmp_path / "run.json", {})
    with pytest.raises(RunError, match=r"run\.json has no '\w+'") as lacking:
        run.metadata()
    assert lacking.value.what == tmp_path / "run.json"
    write_json(tmp_path / "run.json", ABOUT)
    with pytest.raises(RunError, match="is not finished: go on with it"):
        run.result()


def test_a_damaged_run(run: Run) -> None:
    run.config_file.write_text("[head]\nepoks = 3\n")
    said = (
        r"config.toml cannot be read \(config.toml\[head\] has an unknown key 'epoks'.*: bring it back as it"
    )
    with pytest.raises(RunError, match=said):
        run.config()
    run.config_file.write_text("seed =")
    said = (
        r"config.toml cannot be read \(Invalid value \(at end of document\)\): bring it back as it was, or "
    )
    with pytest.raises(RunError, match=said):
        run.begin(CONFIG, ABOUT, resume=True, force=False)
    (run.path / "run.json").write_text('{"data": ')
    with pytest.raises(RunError, match=r"run.json cannot be read \(Expecting value"):
        run.metadata()


def test_a_run_with_a_result_is_finished(run: Run) -> None:
    result = {
        "method": "an",
        "oracle": False,
        "best_epoch": 3,
        "epochs": 4,
        "validation": None,
        "test": None,
        "recovery": None,
        "model_checksum": 0,
    }
    write_json(run.result_file, result)
    assert run.finished
    assert run.result() == result
    write_json(run.result_file, result | {"test": {"name": "mAP", "value": "high"}})
    with pytest.raises(RunError, match="value must be a number") as damaged:
        run.result()
    assert (damaged.value.what, damaged.value.value) == (run.result_file, "high")


def test_paths(tmp_path: Path) -> None:
    run = Run(tmp_path)
    paths = (run.config_file, run.metrics_file, run.checkpoints, run.watched, run.memory, run.model_file)
    assert [path.name for path in paths] == [
        "config.toml",
        "metrics.jsonl",
        "checkpoints",
        "watched",
        "memory",
        "model.safetensors",
    ]
    assert {path.parent for path in paths} == {tmp_path}


def test_an_empty_configuration_is_no_run_of_defaults(run: Run) -> None:
    run.config_file.write_text("")
    with pytest.raises(RunError, match=r"config.toml is empty: bring it back as it was, or begin anew"):
        run.config()


class Killed(BaseException):
    """What no code catches to go on."""


@pytest.mark.parametrize("step", range(11))
def test_replacing_can_be_killed_at_any_moment(run: Run, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(CONFIG, method="an", settings={})
    write_json(run.result_file, {"best_epoch": 3})
    run.answers_file.write_text("answers")
    (run.checkpoints / "0001").mkdir(parents=True)
    (run.checkpoints / "0001" / "state.json").write_text("{}")
    left = step

    def killed_at(function: Any) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return function(*given, **more)

        return call

    with monkeypatch.context() as patch:
        for name in ("mkdir", "rename", "unlink", "replace"):
            patch.setattr(Path, name, killed_at(getattr(Path, name)))
        patch.setattr("shutil.rmtree", killed_at(shutil.rmtree))
        try:
            run.begin(other, ABOUT, resume=False, force=True)
        except Killed:
            pass
        else:
            assert left >= 0
    if run.config_file.exists() and run.config() == CONFIG:
        assert run.goes_on(CONFIG, ABOUT, resume=True, force=False)  # the old run, whole or to be evaluated
    else:
        run.begin(other, ABOUT, resume=True, force=False)
        assert run.config() == other
        assert not run.finished
        assert not run.checkpoints.exists()
    assert run.answers_file.read_text() == "answers"


def test_no_folder_but_a_run_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_text("photo")
    with pytest.raises(RunError):
        Run(tmp_path).begin(CONFIG, ABOUT, resume=False, force=True)
    assert names(tmp_path) == {"photo.jpg"}
