"""Which runs can be in one report."""

from pathlib import Path

import pytest

from sparselabel.data.dataset import Dataset
from sparselabel.errors import ConfigError, RunError
from sparselabel.report.run_data import read_runs, shortened
from tests.report.runs import STRONG, TEST, WEAK, finished, make_data


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_data(tmp_path_factory.mktemp("made-up"))


def test_runs_of_the_same_data(tmp_path: Path, data: Dataset) -> None:
    paths = [finished(tmp_path / name, data, name, WEAK).path for name in ("an", "bce")]
    about = read_runs(paths)
    assert (about.split, about.reference.name, about.hidden) == ("test", "an", True)
    assert [len(run.epochs) for run in about.runs] == [3, 3]


def test_what_is_refused(tmp_path: Path, data: Dataset) -> None:
    run = finished(tmp_path / "an", data, "an", WEAK)
    with pytest.raises(ConfigError, match="nothing to report on: name one or more finished runs"):
        read_runs([])
    with pytest.raises(ConfigError, match="is named more than once"):
        read_runs([run.path, tmp_path / "an" / ".." / "an"])
    with pytest.raises(ConfigError, match="a report is about `split` test or val, not 'train'"):
        read_runs([run.path], "train")
    with pytest.raises(RunError, match="nothing is not a run"):
        read_runs([tmp_path / "nothing"])
    run.result_file.unlink()
    with pytest.raises(RunError, match=r"an is not finished: go on with it by `sparselabel train"):
        read_runs([run.path])


def test_runs_of_other_data(tmp_path: Path, data: Dataset) -> None:
    other = make_data(tmp_path / "other", TEST[:5])
    runs = finished(tmp_path / "an", data, "an", WEAK), finished(tmp_path / "bce", other, "bce", STRONG[:5])
    with pytest.raises(RunError, match=r"an and .*bce have other data in split 'test': .* a report of each"):
        read_runs([run.path for run in runs])


def test_data_that_was_moved(tmp_path: Path) -> None:
    data = make_data(tmp_path)
    run = finished(tmp_path / "an", data, "an", WEAK)
    data.folder.rename(tmp_path / "moved")
    with pytest.raises(RunError, match=r"is no longer in .*data: say where it is now"):
        read_runs([run.path])
    assert read_runs([run.path], moved=tmp_path / "moved").data.folder == tmp_path / "moved"


def test_damaged_metrics(tmp_path: Path, data: Dataset) -> None:
    run = finished(tmp_path / "an", data, "an", WEAK)
    run.metrics_file.write_text('{"epoch": 0')
    with pytest.raises(RunError, match=r"metrics.jsonl cannot be read"):
        read_runs([run.path])


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["an-0.01-seed0", "en+cl-0.01-seed0"], ["an", "en+cl"]),
        (["an-0", "an-1"], ["an-0", "an-1"]),
        (["an-0"], ["an-0"]),
        (["an", "x-an"], ["an", "x-an"]),
        (["a/run", "b/run"], ["a/run", "b/run"]),
    ],
)
def test_short_names(names: list[str], short: list[str]) -> None:
    assert shortened(names) == short
