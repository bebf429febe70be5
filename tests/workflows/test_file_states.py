"""The files of a workspace in the trace: at the start of a loop, and after each iteration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offbook.trace.events import WORKSPACE_FILES, Event
from offbook.trace.hub import Hub
from offbook.trace.reader import Trace
from offbook.workflows.file_states import MAX_EVENT, MAX_FILES, MAX_TEXT, FileStates
from offbook.workflows.loop_tools import run
from offbook.workflows.tools import setup
from offbook.workflows.workspace import Workspaces


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[FileStates, list[dict[str, Any]]]:
    """The states of a folder, and the data of the events about it."""
    hub = Hub()
    seen: list[dict[str, Any]] = []

    def keep(event: Event) -> None:
        seen.append(event.data)

    hub.subscribe(keep)
    return FileStates(tmp_path, hub), seen


Recorded = tuple[FileStates, list[dict[str, Any]]]


def test_only_changes_are_recorded(tmp_path: Path, recorded: Recorded):
    states, seen = recorded
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("two")
    states.record()
    states.record()
    (tmp_path / "a.txt").write_text("three")
    (tmp_path / "b.txt").unlink()
    states.record()
    assert seen == [
        {"written": {"a.txt": "one", "b.txt": "two"}, "deleted": []},
        {"written": {"a.txt": "three"}, "deleted": ["b.txt"]},
    ]


def test_a_long_or_binary_file_is_its_size_and_hash(tmp_path: Path, recorded: Recorded):
    states, seen = recorded
    (tmp_path / "long.txt").write_text("x" * (MAX_TEXT + 1))
    (tmp_path / "data.bin").write_bytes(b"\xff")
    states.record()
    written = seen[0]["written"]
    assert written["long.txt"].startswith(f"{MAX_TEXT + 1} bytes, sha256 ")
    assert written["data.bin"].startswith("1 bytes, sha256 a8100ae6aa1940d0")


def test_a_link_is_not_followed(tmp_path: Path, recorded: Recorded):
    states, seen = recorded
    (tmp_path / "key").symlink_to("/etc/passwd")
    states.record()
    assert seen[0]["written"] == {"key": "link to /etc/passwd"}


def test_an_event_is_limited(tmp_path: Path, recorded: Recorded):
    states, seen = recorded
    for number in range(MAX_FILES + 1):
        (tmp_path / f"{number:04}").write_text("x" * 1000)
    states.record()
    written = seen[0]["written"]
    assert len(written) == MAX_FILES
    assert sum(len(text) == 1000 for text in written.values()) <= MAX_EVENT / 1000


def test_a_folder_that_is_gone_is_a_deletion(tmp_path: Path, recorded: Recorded):
    states, seen = recorded
    (tmp_path / "a.txt").touch()
    states.record()
    (tmp_path / "a.txt").unlink()
    tmp_path.rmdir()
    states.record()
    assert seen[1] == {"written": {}, "deleted": ["a.txt"]}


async def test_a_loop_records_the_files_of_each_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    setup("files", fixtures={"plan.md": "- one\n"})
    script = "echo x >> log.txt; test $(wc -l < log.txt) -gt 1 && echo LOOP_COMPLETE; true"
    await run("files", task="Go", backend="command", command=["sh", "-c", script])
    session = Workspaces().find("files").recorded_session
    seen = [event.data for event in Trace(session) if event.event == WORKSPACE_FILES]
    assert seen[0]["written"]["plan.md"] == "- one\n"
    assert [data["written"].get("log.txt") for data in seen[1:]] == ["x\n", "x\nx\n"]
