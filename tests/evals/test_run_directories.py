"""A run of evals is found by its path, its id, the beginning of one, or as the latest."""

from pathlib import Path

import pytest

from offbook.errors import FormatError, UsageError
from offbook.evals.run_directory import find_run, list_runs, read_plan, read_results

RUNS = ("20260101-a", "20260101-b", "20260202-c")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name in RUNS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("[]")
    return tmp_path


@pytest.mark.parametrize(
    "name, found",
    [("latest", RUNS[2]), ("20260101-a", RUNS[0]), ("202602", RUNS[2])],
)
def test_a_run_is_found_by_its_name(runs: Path, name: str, found: str):
    assert find_run(name, runs) == runs / found


def test_a_run_is_found_by_its_path(runs: Path):
    assert find_run(str(runs / RUNS[1]), runs / "other") == runs / RUNS[1]


@pytest.mark.parametrize("name", ["20260101", "2027"])
def test_a_name_of_several_runs_or_none_is_refused(runs: Path, name: str):
    with pytest.raises(UsageError, match=f"'{name}'"):
        find_run(name, runs)


def test_a_folder_without_runs_has_none(tmp_path: Path):
    assert list_runs(tmp_path / "none") == []


def test_a_folder_that_is_no_run_is_refused(runs: Path):
    with pytest.raises(FormatError, match="not the directory of a run"):
        read_plan(runs)
    with pytest.raises(FormatError, match="invalid plan"):
        read_plan(runs / RUNS[0])
    with pytest.raises(FormatError, match="no results in this directory"):
        read_results(runs)
