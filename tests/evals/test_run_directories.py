"""A run of evals is found by its path, its id, the beginning of one, or as the latest."""

import json
from pathlib import Path

import pytest

from offbook.errors import FormatError, UsageError
from offbook.evals import (
    RESULTS,
    CaseResult,
    RunDirectory,
    RunPlan,
    find_results,
    find_run,
    list_runs,
    read_plan,
    read_results,
)

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


@pytest.mark.parametrize("text", [None, ""])
def test_a_case_is_not_found_without_results(tmp_path: Path, text: str | None):
    if text is not None:
        (tmp_path / RESULTS).write_text(text)
    assert find_results(tmp_path, "one") == []


def test_a_case_is_found_at_the_beginning_of_a_whole_line(tmp_path: Path):
    ladder = {"id": "two", "ladder": {"tiers": [{"id": "one"}]}}
    lines = ['{"id":"one","trial":1}', json.dumps(ladder, separators=(",", ":"))]
    lines += ['{"id":"one","trial":2}', '{"id":"one","trial":3']  # the last one is torn
    (tmp_path / RESULTS).write_text("\n".join(lines))
    assert [result.trial for result in find_results(tmp_path, "one")] == [1, 2]


PLAN = RunPlan("r", [], [], "now", "1")


@pytest.mark.parametrize("torn, removed", [(b"", 0), (b'{"id":"tw', 9)])
def test_a_torn_last_line_is_removed(tmp_path: Path, torn: bytes, removed: int):
    directory = RunDirectory(tmp_path)
    try:
        directory.begin(PLAN)
        directory.append(CaseResult("one"))
        with (tmp_path / RESULTS).open("ab") as file:
            file.write(torn)
        assert directory.repair() == removed
        directory.append(CaseResult("two"))
    finally:
        directory.close()
    assert [result.id for result in read_results(tmp_path)] == ["one", "two"]
