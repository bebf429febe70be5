"""A file that cannot be read fails its own assertion, and the other verdicts are kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import FormatError, UsageError
from offbook.workflows import (
    Workspaces,
    check,
    diff,
    read_scenario,
    read_target,
    run,
    setup,
    snapshot,
)

LONG = "d/" * 2_500 + "x"
SNAPSHOT = {"type": "snapshot_matches", "snapshot_id": "before"}
CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "file_contains", "path": "pipe", "pattern": "x"}, "fail", "not a regular file"),
    ({"type": "file_not_contains", "path": "pipe", "pattern": "x"}, "fail", "not a regular file"),
    (
        {"type": "file_contains", "path": "loop", "pattern": "x"},
        "error",
        "levels of symbolic links",
    ),
    ({"type": "file_exists", "path": "loop"}, "error", "levels of symbolic links"),
    ({"type": "file_exists", "path": LONG}, "error", "File name too long"),
    ({"type": "file_contains", "path": LONG, "pattern": "x"}, "error", "File name too long"),
    ({**SNAPSHOT, "snapshot_id": "s" * 300}, "error", "File name too long"),
    ({**SNAPSHOT, "redactions": {"paths": ["$..*"]}}, "error", "replaces the whole snapshot"),
    ({**SNAPSHOT, "redactions": {"paths": ["$"]}}, "error", "replaces the whole snapshot"),
    ({**SNAPSHOT, "redactions": {"patterns": {"a": "("}}}, "error", "invalid pattern"),
]


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    path = Path(setup("w", fixtures={"a.txt": "a"}).workspace_path)
    snapshot("w", snapshot_id="before")
    run("w", "Go", mock_responses=["LOOP_COMPLETE"])
    os.mkfifo(path / "pipe")
    (path / "loop").symlink_to("other")
    (path / "other").symlink_to("loop")


@pytest.mark.parametrize("raw, status, message", CASES)
def test_what_cannot_be_read_is_one_failed_verdict_of_many(
    raw: dict[str, Any], status: str, message: str
):
    exit_code = {"type": "exit_code", "expected": 0}
    first, unreadable, last = check("w", [exit_code, raw, exit_code]).results
    assert (first.status, last.status) == ("pass", "pass")
    assert (unreadable.status, message in unreadable.message) == (status, True), unreadable.message
    assert len(unreadable.message) < 500


def test_a_damaged_snapshot_is_named():
    path = Workspaces().find("w").snapshots / "before.json"
    path.write_text('{"files": {"a.t')
    (result,) = check("w", [SNAPSHOT]).results
    assert (result.status, f"{path}: invalid JSON" in result.message) == ("error", True)
    with pytest.raises(FormatError, match="invalid JSON") as caught:
        diff("w", "before")
    assert caught.value.path == str(path)


def test_a_damaged_snapshot_of_a_scenario_is_named_before_the_run(tmp_path: Path):
    (tmp_path / "snaps").mkdir()
    (tmp_path / "snaps" / "before.json").write_text('{"files": {"a.t')
    scenario = tmp_path / "flow.yaml"
    scenario.write_text(
        "snapshots: snaps\nrun: {task: Go, mock_responses: [LOOP_COMPLETE]}\n"
        "assert: [{type: snapshot_matches, snapshot_id: before}]\n"
    )
    with pytest.raises(FormatError, match="invalid JSON") as caught:
        read_scenario(scenario)
    assert caught.value.path == str(tmp_path / "snaps" / "before.json")


def test_a_pipe_is_not_judged():
    with pytest.raises(UsageError, match="pipe cannot be judged: not a regular file"):
        read_target(Workspaces().find("w"), "file:pipe")
