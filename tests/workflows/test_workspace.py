"""A workspace is an isolated folder: no path or link leads out of it."""

from __future__ import annotations

import errno
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook.errors import FormatError, UsageError
from offbook.workflows import MARKER, WorkspaceInfo, Workspaces
from offbook.workflows import workspace as module


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    return Workspaces(tmp_path / "workspaces")


def test_create_writes_exactly_the_fixtures(workspaces: Workspaces):
    workspace, files = workspaces.create(
        "t1", fixtures={"src/main.py": "x = 1\n"}, scratchpad="## Plan\n"
    )
    assert files == ["src/main.py", ".agent/scratchpad.md"]
    paths = {str(p.relative_to(workspace.path)) for p in workspace.path.rglob("*") if p.is_file()}
    assert paths == set(files)
    assert {p.name for p in workspace.folder.iterdir()} == {"files", MARKER}
    assert workspaces.ids() == ["t1"]


def test_names_are_unique_without_case(workspaces: Workspaces):
    workspaces.create("t1", fixtures={"a": "first"})
    for name in ("t1", "T1"):
        with pytest.raises(UsageError, match="exists already"):
            workspaces.create(name, fixtures={"a": "second"})
    assert (workspaces.find("t1").path / "a").read_text() == "first"


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/abs", "a/b", "a\0b", "x" * 300, "a..b"])
def test_an_invalid_name_is_rejected_before_anything_is_written(workspaces: Workspaces, name: str):
    with pytest.raises(UsageError, match="invalid workspace name"):
        workspaces.create(name)
    assert not workspaces.root.exists()


@pytest.mark.parametrize(
    "path", ["../../evil", "/etc/x", "a/../../x", "", "a\0", "..\\x", "C:\\x", "a/.."]
)
def test_a_fixture_path_outside_creates_nothing(workspaces: Workspaces, path: str):
    with pytest.raises(UsageError, match=r"leads out|has a drive"):
        workspaces.create("t1", fixtures={"fine": "x", path: "evil"})
    assert workspaces.ids() == []
    assert not workspaces.root.exists() or not list(workspaces.root.iterdir())


def test_links_to_the_outside_are_rejected(workspaces: Workspaces, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    workspace, _ = workspaces.create("t1")
    (workspace.path / "link").symlink_to(outside)
    os.link(outside / "secret", workspace.path / "hard")
    for path in ("link/secret", "link", "hard"):
        with pytest.raises(UsageError, match=r"leads out|hard link"):
            workspace.resolve(path)


def test_remove_does_not_follow_links(workspaces: Workspaces, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("s")
    workspace, _ = workspaces.create("t1", fixtures={"locked/file": "x"})
    (workspace.path / "link").symlink_to(outside)
    (workspace.path / "locked").chmod(0)
    workspaces.remove("t1")
    assert not workspace.path.exists()
    assert (outside / "kept").read_text() == "s"


def test_remove_can_preserve_the_session_only(workspaces: Workspaces):
    workspace, _ = workspaces.create("t1", fixtures={"a/b": "x"})
    workspace.session.write_text("{}\n")
    assert workspaces.remove("t1", preserve_session=True) == ["session.jsonl"]
    assert [p.name for p in workspace.folder.iterdir()] == ["session.jsonl"]
    assert workspaces.ids() == []


def test_a_name_with_a_preserved_session_can_be_used_again(workspaces: Workspaces):
    for number in (1, 2):
        workspace, _ = workspaces.create("t1", fixtures={"a": str(number)})
        workspace.session.write_text(f"{number}\n")
        assert workspaces.remove("t1", preserve_session=True)
        assert {p.name for p in workspace.folder.iterdir()} == {"session.jsonl"}
    workspace, _ = workspaces.create("t1")
    assert (workspace.folder / "session-1.jsonl").read_text() == "2\n"
    assert not workspace.session.exists()


def test_a_foreign_folder_is_not_replaced(workspaces: Workspaces):
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
def test_invalid_fixtures_are_rejected(workspaces: Workspaces, fixtures: Any):
    with pytest.raises(UsageError, match=r"fixtures"):
        workspaces.create("t1", fixtures=fixtures)
    assert workspaces.ids() == []
    assert not workspaces.root.exists()


def test_an_unknown_name_is_reported_with_the_existing_ones(workspaces: Workspaces):
    with pytest.raises(UsageError, match="no workspaces exist"):
        workspaces.find("t1")
    workspaces.create("t1")
    with pytest.raises(UsageError, match="available: t1"):
        workspaces.remove("t2")
    workspaces.remove("t1")
    with pytest.raises(UsageError, match="unknown workspace 't1'"):
        workspaces.remove("t1")


NO_PROCESS = 4_000_001


def age(workspaces: Workspaces, name: str, pid: int = NO_PROCESS, days: float = 2) -> None:
    """Let a workspace be created and used by a process, some days ago."""
    then = time.time() - days * module.STALE_SECONDS
    marker = workspaces.root / name / MARKER
    marker.write_bytes(msgspec.json.encode(WorkspaceInfo(name, pid, then)))
    os.utime(marker, (then, then))


def test_only_unused_workspaces_of_ended_processes_are_stale(workspaces: Workspaces):
    for name in ("old-dead", "old-alive", "new-dead", "old-used"):
        workspaces.create(name)
    (workspaces.root / "foreign").mkdir()
    age(workspaces, "old-dead")
    age(workspaces, "old-alive", os.getpid())
    age(workspaces, "new-dead", days=0.1)
    age(workspaces, "old-used")
    workspaces.find("old-used")
    assert workspaces.remove_stale() == ["old-dead"]
    assert workspaces.ids() == ["new-dead", "old-alive", "old-used"]
    assert (workspaces.root / "foreign").is_dir()


def test_stale_cassettes_are_kept_on_request(workspaces: Workspaces):
    workspaces.create("taped", fixtures={"cassettes/happy.yaml": "interactions: []"})
    age(workspaces, "taped")
    assert workspaces.remove_stale(keep_cassettes=True) == []
    assert workspaces.remove_stale() == ["taped"]


@pytest.mark.parametrize("marker", ['{"workspace_id": "st", "pi', '{"pid": 1}', "[]", ""])
def test_a_damaged_marker_affects_its_own_workspace_only(workspaces: Workspaces, marker: str):
    workspaces.create("st")
    path = workspaces.root / "st" / MARKER
    path.write_text(marker)
    assert workspaces.remove_stale() == []
    workspaces.create("other")
    with pytest.raises(FormatError) as caught:
        workspaces.find("st")
    assert caught.value.path == str(path)
    assert caught.value.hint == "fix: offbook workspace cleanup st"
    workspaces.remove("st")
    assert workspaces.ids() == ["other"]


def test_one_of_many_concurrent_creations_wins(workspaces: Workspaces):
    def make(number: int) -> str:
        try:
            workspaces.create("same", fixtures={f"{n}.txt": str(number) for n in range(20)})
        except UsageError as error:
            assert "exists already" in str(error)  # noqa: PT017 - raised by all but one
            return ""
        return str(number)

    with ThreadPoolExecutor(8) as executor:
        [winner] = filter(None, executor.map(make, range(40)))
    folder = workspaces.find("same").path
    assert {path.read_text() for path in folder.glob("*.txt")} == {winner}
    assert [path.name for path in workspaces.root.iterdir()] == ["same"]


def test_a_creation_that_fails_leaves_nothing(
    workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    workspaces.create("other")
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="no space left"):
        workspaces.create("full")
    assert [path.name for path in workspaces.root.iterdir()] == ["other"]


def test_a_creation_that_another_process_wins_is_refused(
    workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
):
    rename = Path.rename

    def rename_late(source: Path, target: Path) -> Path:
        (target / "theirs").mkdir(parents=True)
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", rename_late)
    with pytest.raises(UsageError, match="the workspace 'same' exists already"):
        workspaces.create("same")
    assert [path.name for path in workspaces.root.iterdir()] == ["same"]
    assert (workspaces.root / "same" / "theirs").is_dir()


def test_a_workspace_that_was_removed_cannot_be_locked(workspaces: Workspaces):
    workspace, _ = workspaces.create("gone")
    workspaces.remove("gone")
    with pytest.raises(UsageError, match="the workspace 'gone' was removed"), workspace.lock():
        pass


def test_a_process_of_another_user_is_alive(
    workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "operation not permitted")

    workspaces.create("theirs")
    age(workspaces, "theirs")
    monkeypatch.setattr(os, "kill", refuse)
    assert workspaces.remove_stale() == []


@pytest.fixture
def no_superuser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse what the permissions of a folder forbid; they do not bind the superuser."""

    def check(function: Any) -> Any:
        def checked(path: Any, *args: Any, dir_fd: int | None = None) -> Any:
            parent = Path(path).parent.stat() if dir_fd is None else os.fstat(dir_fd)
            if not parent.st_mode & stat.S_IWUSR:
                raise PermissionError(errno.EACCES, "permission denied", str(path))
            return function(path, *args, dir_fd=dir_fd)

        return checked

    for name in ("unlink", "rmdir"):
        monkeypatch.setattr(os, name, check(getattr(os, name)))


def test_read_only_folders_are_removed_and_links_are_not_followed(
    workspaces: Workspaces, tmp_path: Path, no_superuser: None
):
    outside = tmp_path / "outside"
    outside.mkdir(0o500)
    workspace, _ = workspaces.create("locked", fixtures={"a/b/c.txt": "text", "a/d.txt": "text"})
    (workspace.path / "a" / "link").symlink_to(outside)
    (workspace.path / "a" / "lost").symlink_to(tmp_path / "nothing")
    for folder in ("a/b", "a"):
        (workspace.path / folder).chmod(0o500)
    workspaces.remove("locked")
    assert workspaces.ids() == []
    assert not workspace.folder.exists()
    assert stat.S_IMODE(outside.stat().st_mode) == 0o500
