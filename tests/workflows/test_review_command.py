"""`offbook workspace review`: pending snapshots, interactively or by name."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.surfaces.conftest import Offbook

STATE = '{{"files": {{"a.txt": "{}\\n"}}}}'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three pending snapshots, one of them new."""
    monkeypatch.delenv("CI", raising=False)
    for name in ("one", "two", "three"):
        (tmp_path / f"{name}.pending.json").write_text(STATE.format("new"))
        if name != "three":
            (tmp_path / f"{name}.json").write_text(STATE.format("old"))
    return tmp_path


def pending(folder: Path) -> list[str]:
    return sorted(path.name.partition(".")[0] for path in folder.glob("*.pending.json"))


def test_snapshots_are_accepted_and_rejected_by_name(folder: Path, workspace_command: Offbook):
    outcome = workspace_command("review", folder, "--accept", "one", "--reject", "three")
    assert outcome.code == 1  # one is still pending
    assert [line.split()[0] for line in outcome.out.splitlines()] == [
        "accepted",
        "rejected",
        "pending",
    ]
    assert (folder / "one.json").read_text() == STATE.format("new")
    assert pending(folder) == ["two"]
    rest = workspace_command("review", folder, "--accept", "all", "--json")
    assert (rest.code, json.loads(rest.out)["left"]) == (0, [])
    assert workspace_command("review", folder).out == "no pending snapshots\n"


def test_without_a_terminal_and_names_nothing_changes(folder: Path, workspace_command: Offbook):
    outcome = workspace_command("review", folder)
    assert (outcome.code, outcome.out.count("pending ")) == (1, 3)
    assert pending(folder) == ["one", "three", "two"]


def test_in_ci_a_decision_exits_with_2(
    folder: Path, workspace_command: Offbook, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CI", "true")
    outcome = workspace_command("review", folder, "--accept", "all")
    assert (outcome.code, "snapshots cannot be approved in CI" in outcome.err) == (2, True)
    assert pending(folder) == ["one", "three", "two"]


@pytest.mark.parametrize(
    "answers, left, code",
    [("ars", ["two"], 1), ("aaa", [], 0), ("q", ["one", "three", "two"], 1)],
)
def test_a_terminal_asks_for_each_snapshot(folder: Path, answers: str, left: list[str], code: int):
    master, terminal = pty.openpty()
    os.write(master, "".join(f"{answer}\n" for answer in answers).encode())
    ended = subprocess.run(
        [sys.executable, "-m", "offbook", "workspace", "review", str(folder)],
        stdin=terminal,
        capture_output=True,
        text=True,
        check=False,
    )
    os.close(master)
    os.close(terminal)
    assert ended.returncode == code, ended.stderr
    assert pending(folder) == left
    assert "one.pending.json (changed)" in ended.stdout
    assert "-old\n+new" in ended.stdout
