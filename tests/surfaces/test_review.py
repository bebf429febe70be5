"""Snapshots that wait are walked through in a terminal, or decided by name."""

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
    """Three that wait, one of them new."""
    monkeypatch.delenv("CI", raising=False)
    for name in ("one", "two", "three"):
        (tmp_path / f"{name}.pending.json").write_text(STATE.format("new"))
        if name != "three":
            (tmp_path / f"{name}.json").write_text(STATE.format("old"))
    return tmp_path


def waiting(folder: Path) -> list[str]:
    return sorted(path.name.partition(".")[0] for path in folder.glob("*.pending.json"))


def test_names_decide_without_a_terminal(folder: Path, offbook_command: Offbook):
    told = offbook_command("snapshot", "review", folder, "--accept", "one", "--reject", "three")
    assert told.code == 1  # one still waits
    assert [line.split()[0] for line in told.out.splitlines()] == ["accepted", "rejected", "waits"]
    assert (folder / "one.json").read_text() == STATE.format("new")
    assert waiting(folder) == ["two"]
    rest = offbook_command("snapshot", "review", folder, "--accept", "all", "--json")
    assert (rest.code, json.loads(rest.out)["left"]) == (0, [])
    assert offbook_command("snapshot", "review", folder).out == "nothing waits\n"


def test_without_a_terminal_and_without_names_nothing_is_decided(
    folder: Path, offbook_command: Offbook
):
    told = offbook_command("snapshot", "review", folder)
    assert (told.code, told.out.count("waits")) == (1, 3)
    assert waiting(folder) == ["one", "three", "two"]


def test_in_ci_a_decision_is_wrong(
    folder: Path, offbook_command: Offbook, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CI", "true")
    told = offbook_command("snapshot", "review", folder, "--accept", "all")
    assert (told.code, "in CI no snapshot is approved" in told.err) == (2, True)
    assert waiting(folder) == ["one", "three", "two"]


@pytest.mark.parametrize(
    "answers, left, code",
    [("ars", ["two"], 1), ("aaa", [], 0), ("q", ["one", "three", "two"], 1)],
)
def test_a_terminal_walks_through_them(folder: Path, answers: str, left: list[str], code: int):
    ours, theirs = pty.openpty()
    os.write(ours, "".join(f"{answer}\n" for answer in answers).encode())
    ended = subprocess.run(
        [sys.executable, "-m", "offbook", "snapshot", "review", str(folder)],
        stdin=theirs,
        capture_output=True,
        text=True,
        check=False,
    )
    os.close(ours)
    os.close(theirs)
    assert ended.returncode == code, ended.stderr
    assert waiting(folder) == left
    assert "one.pending.json (changed)" in ended.stdout
    assert "-old\n+new" in ended.stdout


def test_the_name_of_a_workspace_takes_a_snapshot(workspaces: Path, offbook_command: Offbook):
    offbook_command("setup", "review-me")
    told = offbook_command("snapshot", "--json", "review-me", "--id", "before")
    assert json.loads(told.out)["snapshot_id"] == "before"
