"""Workspaces: isolated folders in which an agent works, below the system's temporary folder.

    workspace, files = Workspaces().create("flow", fixtures={"src/main.py": "print()"})
    workspace.resolve("src/main.py")        # a path inside; "../x" and links that lead out raise
    Workspaces().remove("flow")

A workspace belongs to the user, not to a process: any process finds it by its name. The agent
works in a subfolder; the evidence of its runs is outside of it:

    flow/files/           the folder of the agent
    flow/session.jsonl    the trace of the last run; of earlier runs: session-1.jsonl, …
    flow/snapshots/       the snapshots of its files
    flow/own_files/       the digests of the cassettes and reports that Offbook wrote there
    flow/workspace.json   the configuration
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any

import msgspec

from offbook.checks.expected_files import Snapshot, write_own_files
from offbook.errors import FormatError, UsageError, did_you_mean
from offbook.files import (
    check_relative_path,
    close_locked,
    convert,
    read_document,
    resolve_within,
    try_lock,
    write_atomic,
)

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
MARKER = "workspace.json"
FILES = "files"
LOCK = "lock"
SESSION = "session.jsonl"
SNAPSHOTS = "snapshots"
INITIAL, CURRENT = "initial", "current"  # snapshots: after the setup; now
SNAPSHOT_FIXTURES = ".offbook/snapshots/"  # fixtures below it are approved snapshots
CASSETTES = "cassettes"
_SESSION_FILE = re.compile(r"session(-\d+)?\.jsonl\Z")
MAKING, REMOVING = ".making-", ".removing-"  # prefixes of folders that are not complete
STALE_SECONDS = 24 * 3600


class WorkspaceInfo(msgspec.Struct, frozen=True):
    """The content of the marker file: it identifies a folder as a workspace."""

    workspace_id: str
    pid: int
    created: float
    config: dict[str, Any] = {}


class Workspace:
    """One workspace: `path` is the folder of the agent, `folder` contains it and the evidence."""

    def __init__(self, folder: Path, info: WorkspaceInfo) -> None:
        self.folder = folder
        self.path = folder / FILES
        self.snapshots = folder / SNAPSHOTS
        self.info = info

    @property
    def id(self) -> str:
        """The name of the workspace."""
        return self.info.workspace_id

    @property
    def session(self) -> Path:
        """The path of the last run's trace, existing or not."""
        return self.folder / SESSION

    @property
    def recorded_session(self) -> Path:
        """The path of the last run's trace, or a UsageError before the first run."""
        # Verdicts are appended to it: through a link they would be written elsewhere.
        if self.session.is_symlink() or not self.session.is_file():
            raise UsageError(
                f"the workspace {self.id!r} has no session yet",
                hint=f"fix: offbook workspace run {self.id} …",
            )
        return self.session

    def resolve(self, relative: str) -> Path:
        """Return a path inside the agent's folder; one that leads out, also by a link, raises."""
        return resolve_within(self.path, relative, self.id)

    def writes_own(self, *paths: Path) -> AbstractContextManager[None]:
        """Note that Offbook writes these files in the agent's folder, not the agent."""
        return write_own_files(self.path, *paths)

    def store_snapshot(self, name: str, snapshot: Snapshot) -> None:
        """Write a snapshot of the agent's folder."""
        # Indented, since approved snapshots are committed and reviewed.
        data = msgspec.json.format(msgspec.json.encode(snapshot))
        # Not synced to disk, which takes longer than a small run; a workspace is temporary.
        write_atomic(self.snapshots / f"{name}.json", data, durable=False)

    def load_snapshot(self, name: str) -> Snapshot:
        """Return a snapshot by its name, or raise a UsageError that suggests one."""
        if not NAME_PATTERN.match(name):
            raise UsageError(f"invalid snapshot name {name!r}")
        path = self.snapshots / f"{name}.json"
        if path.is_file():
            return read_document(path, Snapshot)
        if name == INITIAL:
            return Snapshot()  # a workspace without fixtures began empty
        names = [file.stem for file in path.parent.glob("*.json")]
        raise UsageError(
            f"unknown snapshot {name!r}",
            where=self.id,
            hint=did_you_mean(name, [*names, INITIAL, CURRENT]),
        )

    @contextmanager
    def lock(self, *, shared: bool = False) -> Generator[None]:
        """Hold the workspace: alone for a run, shared with other readers for a check.

        The lock ends with this process, also if it is killed.
        """
        try:
            file = os.open(self.folder / LOCK, os.O_WRONLY | os.O_CREAT)
        except FileNotFoundError as error:
            raise UsageError(f"the workspace {self.id!r} was removed") from error
        try:
            if not try_lock(file, shared=shared):
                raise UsageError(
                    f"the workspace {self.id!r} is in use by another run",
                    hint="fix: wait until it has ended, or set up another workspace for each run",
                )
            yield
        finally:
            close_locked(file)


@lru_cache(maxsize=8)
def _default_root(temporary: str) -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(temporary).resolve() / f"offbook-workspaces-{user}"


class Workspaces:
    """All workspaces of this user."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or _default_root(tempfile.gettempdir())

    def ids(self) -> list[str]:
        """Return the names of all workspaces."""
        if not self.root.is_dir():
            return []
        names = (path.name for path in self.root.iterdir() if (path / MARKER).is_file())
        return sorted(name for name in names if NAME_PATTERN.match(name))

    def create(
        self,
        workspace_id: str,
        *,
        fixtures: Mapping[str, str] | None = None,
        config: Mapping[str, Any] | None = None,
        scratchpad: str | None = None,
    ) -> tuple[Workspace, list[str]]:
        """Create a workspace and return it with the names of its files.

        It is built in a hidden folder and renamed: another process sees all of it or nothing.
        """
        check_name("workspace", workspace_id)
        files = _validate_fixtures(fixtures)
        if scratchpad is not None:
            files |= _validate_fixtures({".agent/scratchpad.md": scratchpad})
        # Private: fixtures and sessions of other users are not readable here.
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.root / workspace_id
        exists = UsageError(
            f"the workspace {workspace_id!r} exists already",
            hint=f"fix: offbook workspace cleanup {workspace_id}",
        )
        # Compared without case: on some file systems "Flow" and "flow" are one folder.
        used = {name.lower() for name in self.ids()}
        if workspace_id.lower() in used or (path.exists() and not _has_only_sessions(path)):
            raise exists
        info = WorkspaceInfo(workspace_id, os.getpid(), time.time(), dict(config or {}))
        hidden = Path(tempfile.mkdtemp(prefix=MAKING, dir=self.root))
        try:
            workspace = Workspace(hidden, info)
            (workspace.path / ".agent").mkdir(parents=True)
            for name, text in files.items():
                snapshot = name.removeprefix(SNAPSHOT_FIXTURES)
                folder = workspace.path if snapshot == name else workspace.snapshots
                file = folder / snapshot
                file.parent.mkdir(parents=True, exist_ok=True)
                # The cassettes of a setup are those that Offbook replays.
                own = [file] if name.startswith(f"{CASSETTES}/") else []
                with workspace.writes_own(*own):
                    # newline="" keeps the line endings of the fixture.
                    file.write_text(text, encoding="utf-8", newline="")
            (hidden / MARKER).write_bytes(msgspec.json.encode(info))
            if _has_only_sessions(path):
                # Left by `cleanup --preserve-session`: numbered, so that no new session mixes in.
                for number, session in enumerate(sorted(path.iterdir()), 1):
                    session.rename(hidden / f"session-{number}.jsonl")
                path.rmdir()
            hidden.rename(path)
        except BaseException as error:
            shutil.rmtree(hidden, ignore_errors=True)
            if isinstance(error, OSError) and path.exists():  # another process was faster
                raise exists from error
            raise
        return Workspace(path, info), list(files)

    def find(self, workspace_id: str) -> Workspace:
        """Return a workspace by its name, or raise a UsageError that lists the existing ones."""
        check_name("workspace", workspace_id)
        path = self.root / workspace_id
        marker = path / MARKER
        # A link with the name of a workspace could lead anywhere.
        if path.is_symlink() or not marker.is_file():
            names = self.ids()
            raise UsageError(
                f"unknown workspace {workspace_id!r}",
                hint=f"available: {', '.join(names)}; {did_you_mean(workspace_id, names)}"
                if names
                else "no workspaces exist",
            )
        info = _read_info(path)
        with suppress(OSError):
            os.utime(marker)  # the time of the last use
        return Workspace(path, info)

    def remove(self, workspace_id: str, *, preserve_session: bool = False) -> list[str]:
        """Remove a workspace and return the names of the files that were kept."""
        check_name("workspace", workspace_id)
        path = self.root / workspace_id
        try:
            workspace = self.find(workspace_id)
        except UsageError:
            if path.is_symlink() or not path.is_dir():
                raise
            # The marker is missing or damaged: `create` refuses the name of such a folder, so
            # there is a way to remove it.
            workspace = Workspace(path, WorkspaceInfo(workspace_id, 0, 0.0))
        keep = preserve_session and workspace.session.is_file()
        with workspace.lock():
            if not keep:
                self._discard(path)
                return []
            # The marker last: until then an interrupted removal can be repeated.
            for entry in sorted(path.iterdir(), key=lambda entry: entry.name == MARKER):
                if entry.name != SESSION:
                    self._discard(entry)
        return [SESSION]

    def _discard(self, path: Path) -> None:
        """Remove a file or folder; a process that is killed meanwhile leaves no part of it."""
        hidden = Path(tempfile.mkdtemp(prefix=REMOVING, dir=self.root))
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)  # an agent may have locked it
        path.rename(hidden / path.name)
        remove_tree(hidden)

    def remove_stale(self, *, keep_cassettes: bool = False) -> list[str]:
        """Remove workspaces that were not used for a day and whose process has ended."""
        for rest in [*self.root.glob(f"{REMOVING}*"), *self.root.glob(f"{MAKING}*")]:
            # Its process may still be at work on it.
            with suppress(OSError):
                if _is_old(rest.stat().st_mtime):
                    remove_tree(rest)
        removed: list[str] = []
        for name in self.ids():
            folder = self.root / name
            # It is in use, its marker is damaged, or another process removes it.
            with suppress(UsageError, FileNotFoundError):
                if not _is_old((folder / MARKER).stat().st_mtime):
                    continue
                if keep_cassettes and any((folder / FILES / CASSETTES).glob("*.yaml")):
                    continue
                if not _is_alive(_read_info(folder).pid):
                    self.remove(name)
                    removed.append(name)
        return removed


def _read_info(folder: Path) -> WorkspaceInfo:
    """Return the content of the marker file, or raise a FormatError with the way out."""
    marker = folder / MARKER
    try:
        return read_document(marker, WorkspaceInfo)
    except FormatError as error:
        hint = f"fix: offbook workspace cleanup {folder.name}"
        raise FormatError(error.what, path=marker, line=error.line, hint=hint) from error


def _is_old(seconds: float) -> bool:
    return time.time() - seconds > STALE_SECONDS


def _has_only_sessions(path: Path) -> bool:
    return path.is_dir() and all(_SESSION_FILE.match(entry.name) for entry in path.iterdir())


def remove_tree(path: Path) -> None:
    """Remove a folder whatever its permissions; links in it are removed and never followed."""

    def unlock_and_retry(_: object, name: str, __: object) -> None:
        # An agent may have made folders without write permission.
        parent = Path(name).parent
        for locked in (parent, Path(name)):
            if not locked.is_symlink() and locked.exists():
                locked.chmod(locked.stat().st_mode | stat.S_IRWXU)
        if Path(name).is_dir() and not Path(name).is_symlink():
            shutil.rmtree(name)
        else:
            Path(name).unlink(missing_ok=True)

    # `onexc` would be the new name, but Python 3.11 does not have it.
    shutil.rmtree(path, onerror=unlock_and_retry)


def check_name(kind: str, name: object) -> None:
    """Raise a UsageError for a name that is no safe name of a file."""
    if not isinstance(name, str) or not NAME_PATTERN.match(name) or ".." in name:
        raise UsageError(
            f"invalid {kind} name {name!r}",
            hint="expected: letters, digits, '-', '_' and '.', beginning with a letter or digit",
        )


def _validate_fixtures(fixtures: Mapping[str, str] | None) -> dict[str, str]:
    """Return the fixtures; all paths are checked before the first file is written."""
    files = convert(fixtures or {}, dict[str, str], path="fixtures")
    for name in files:
        check_relative_path(name, "fixtures")
        if name.endswith(("/", "\\")) or PurePath(name) == PurePath():
            raise UsageError(f"the path {name!r} is not a file", where="fixtures")
    # "a" and "a/b": one path would have to be a file and a folder.
    folders = {str(folder) for name in files for folder in PurePath(name).parents}
    for name in files:
        if str(PurePath(name)) in folders:
            raise UsageError(f"the path {name!r} is also a folder", where="fixtures")
    return files


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it exists and belongs to another user
    return True
