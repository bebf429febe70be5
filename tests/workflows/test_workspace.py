"""A workspace is a folder of its own, and nothing leads out of it."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook.errors import UsageError
from offbook.workflows import workspace as module
from offbook.workflows.workspace import MARKER, WorkspaceInfo, Workspaces


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    return Workspaces(tmp_path / "workspaces")


def test_setting_up_writes_exactly_the_files_asked_for(workspaces: Workspaces):
    made, files = workspaces.create(
        "t1", fixtures={"src/main.py": "x = 1\n"}, scratchpad="## Plan\n"
    )
    assert files == ["src/main.py", ".agent/scratchpad.md"]
    found = {str(p.relative_to(made.path)) for p in made.path.rglob("*") if p.is_file()}
    assert found == {*files, MARKER}
    assert workspaces.ids() == ["t1"]


def test_a_name_is_given_once_whatever_its_case(workspaces: Workspaces):
    workspaces.create("t1", fixtures={"a": "first"})
    for name in ("t1", "T1"):
        with pytest.raises(UsageError, match="exists already"):
            workspaces.create(name, fixtures={"a": "second"})
    assert (workspaces.find("t1").path / "a").read_text() == "first"


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/abs", "a/b", "a\0b", "x" * 300, "a..b"])
def test_a_wrong_name_is_refused_before_anything_is_written(workspaces: Workspaces, name: str):
    with pytest.raises(UsageError, match="no name for a workspace"):
        workspaces.create(name)
    assert not workspaces.root.exists()


@pytest.mark.parametrize(
    "path", ["../../evil", "/etc/x", "a/../../x", "", "a\0", "..\\x", "C:\\x", "a/.."]
)
def test_a_fixture_that_leads_out_leaves_nothing_behind(workspaces: Workspaces, path: str):
    with pytest.raises(UsageError, match=r"leads out|names a drive"):
        workspaces.create("t1", fixtures={"fine": "x", path: "evil"})
    assert workspaces.ids() == []
    assert not workspaces.root.exists() or not list(workspaces.root.iterdir())


def test_no_link_leads_out(workspaces: Workspaces, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    made, _ = workspaces.create("t1")
    (made.path / "link").symlink_to(outside)
    os.link(outside / "secret", made.path / "hard")
    for path in ("link/secret", "link", "hard"):
        with pytest.raises(UsageError, match=r"leads out|hard link"):
            made.place(path)


def test_cleaning_up_removes_links_and_not_what_they_point_to(
    workspaces: Workspaces, tmp_path: Path
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("s")
    made, _ = workspaces.create("t1", fixtures={"locked/file": "x"})
    (made.path / "link").symlink_to(outside)
    (made.path / "locked").chmod(0)
    workspaces.remove("t1")
    assert not made.path.exists()
    assert (outside / "kept").read_text() == "s"


def test_cleaning_up_may_keep_the_session_and_nothing_else(workspaces: Workspaces):
    made, _ = workspaces.create("t1", fixtures={"a/b": "x"})
    made.session.write_text("{}\n")
    assert workspaces.remove("t1", preserve_session=True) == ["session.jsonl"]
    assert [p.name for p in made.path.iterdir()] == ["session.jsonl"]
    assert workspaces.ids() == []


def test_a_name_whose_session_was_kept_can_be_given_again(workspaces: Workspaces):
    for number in (1, 2):
        made, _ = workspaces.create("t1", fixtures={"a": str(number)})
        made.session.write_text(f"{number}\n")
        assert workspaces.remove("t1", preserve_session=True)
        assert {p.name for p in made.path.iterdir()} == {"session.jsonl"}
    made, _ = workspaces.create("t1")
    assert (made.path / "session-1.jsonl").read_text() == "2\n"
    assert not made.session.exists()


def test_a_folder_that_is_no_workspace_is_not_taken_over(workspaces: Workspaces):
    foreign = workspaces.root / "t1"
    foreign.mkdir(parents=True)
    (foreign / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        workspaces.create("t1")
    assert [p.name for p in foreign.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "fixtures",
    [{"a": "x", "a/b": "y"}, {"d/": "x"}, {".": "x"}, {"": "x"}, {"a": 5}, {5: "a"}, ["a"], "a"],
)
def test_what_is_no_set_of_files_is_refused(workspaces: Workspaces, fixtures: Any):
    with pytest.raises(UsageError, match=r"fixtures"):
        workspaces.create("t1", fixtures=fixtures)
    assert workspaces.ids() == []
    assert not workspaces.root.exists()


def test_an_unknown_name_is_answered_with_those_there_are(workspaces: Workspaces):
    with pytest.raises(UsageError, match="available: none"):
        workspaces.find("t1")
    workspaces.create("t1")
    with pytest.raises(UsageError, match="available: t1"):
        workspaces.remove("t2")
    workspaces.remove("t1")
    with pytest.raises(UsageError, match="there is no workspace 't1'"):
        workspaces.remove("t1")


def test_only_what_dead_processes_left_long_ago_is_swept(
    workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
):
    for name in ("old-dead", "old-alive", "new-dead"):
        workspaces.create(name)
    (workspaces.root / "foreign").mkdir()

    def age(name: str, pid: int, seconds: float) -> None:
        card = WorkspaceInfo(name, pid, time.time() - seconds)
        (workspaces.root / name / MARKER).write_bytes(msgspec.json.encode(card))

    age("old-dead", 4_000_001, 2 * module.STALE_SECONDS)
    age("old-alive", os.getpid(), 2 * module.STALE_SECONDS)
    age("new-dead", 4_000_001, 5)
    assert workspaces.remove_stale() == ["old-dead"]
    assert workspaces.ids() == ["new-dead", "old-alive"]
    assert (workspaces.root / "foreign").is_dir()
    monkeypatch.undo()


def test_of_many_who_want_one_name_one_gets_it_whole(workspaces: Workspaces):
    def make(number: int) -> str:
        try:
            workspaces.create("same", fixtures={f"{n}.txt": str(number) for n in range(20)})
        except UsageError as error:
            assert "exists already" in str(error)  # noqa: PT017 - raised by all but one
            return ""
        return str(number)

    with ThreadPoolExecutor(8) as crowd:
        [winner] = filter(None, crowd.map(make, range(40)))
    made = workspaces.find("same").path
    assert {path.read_text() for path in made.glob("*.txt")} == {winner}
    assert [path.name for path in workspaces.root.iterdir()] == ["same"]
