"""Workspaces: folders of their own under the system's temporary one; nothing leads out of them."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any, cast

import msgspec

from offbook.errors import UsageError, did_you_mean
from offbook.files import check_relative_path, resolve_within

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
MARKER = ".offbook-workspace.json"
SESSION = "session.jsonl"
CASSETTES = "cassettes"
_SESSION_FILE = re.compile(r"session(-\d+)?\.jsonl\Z")
STALE_SECONDS = 24 * 3600


class WorkspaceInfo(msgspec.Struct, frozen=True):
    """What a workspace says of itself: it is ours, whose it is, and how it was set up."""

    workspace_id: str
    pid: int
    created: float
    config: dict[str, Any] = {}


class Workspace:
    """One workspace. Every path that is asked for stays inside of it."""

    def __init__(self, path: Path, card: WorkspaceInfo) -> None:
        self.path = path
        self.card = card

    @property
    def id(self) -> str:
        """Its name."""
        return self.card.workspace_id

    @property
    def session(self) -> Path:
        """The trace of its last run."""
        return self.path / SESSION

    @property
    def recorded(self) -> Path:
        """The same, when there was a run; an error otherwise."""
        if not self.session.is_file():
            raise UsageError(
                f"the workspace {self.id!r} has no session yet",
                hint=f"run something in it first: offbook workspace run {self.id} …",
            )
        return self.session

    def place(self, relative: str) -> Path:
        """A path inside, or an error: no way leads out, not even a link's."""
        return resolve_within(self.path, relative, self.id)


@lru_cache(maxsize=8)
def _own_root(temporary: str) -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(temporary).resolve() / f"offbook-workspaces-{user}"


class Workspaces:
    """All workspaces of this user, wherever their processes are."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or _own_root(tempfile.gettempdir())

    def ids(self) -> list[str]:
        """The names of those there are."""
        if not self.root.is_dir():
            return []
        found = (path for path in self.root.iterdir() if NAME_PATTERN.match(path.name))
        return sorted(path.name for path in found if (path / MARKER).is_file())

    def create(
        self,
        workspace_id: str,
        *,
        fixtures: Mapping[str, str] | None = None,
        config: Mapping[str, Any] | None = None,
        scratchpad: str | None = None,
    ) -> tuple[Workspace, list[str]]:
        """Make a workspace; its files are checked before the first is written."""
        _check_id(workspace_id)
        files = _read_fixtures(fixtures)
        if scratchpad is not None:
            files |= _read_fixtures({".agent/scratchpad.md": scratchpad})
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.root / workspace_id
        taken = {name.lower() for name in self.ids()}
        if workspace_id.lower() in taken or (path.exists() and not _is_left(path)):
            raise _taken(workspace_id)
        card = WorkspaceInfo(workspace_id, os.getpid(), time.time(), dict(config or {}))
        making = Path(tempfile.mkdtemp(prefix=".making-", dir=self.root))
        try:
            (making / ".agent").mkdir()
            workspace = Workspace(making, card)
            for name, text in files.items():
                place = workspace.place(name)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, encoding="utf-8", newline="")
            (making / MARKER).write_bytes(msgspec.json.encode(card))
            _take_over(path, making)
            making.rename(path)  # whole, or not at all
        except BaseException as error:
            shutil.rmtree(making, ignore_errors=True)
            if isinstance(error, OSError) and path.exists():  # somebody was quicker
                raise _taken(workspace_id) from error
            raise
        return Workspace(path, card), list(files)

    def find(self, workspace_id: str) -> Workspace:
        """The workspace of this name; an unknown one is answered with those there are."""
        _check_id(workspace_id)
        path = self.root / workspace_id
        marker = path / MARKER
        if path.is_symlink() or not marker.is_file():
            raise UsageError(
                f"there is no workspace {workspace_id!r}",
                hint=f"available: {', '.join(self.ids()) or 'none'}; "
                f"{did_you_mean(workspace_id, self.ids())}",
            )
        card = msgspec.json.decode(marker.read_bytes(), type=WorkspaceInfo)
        return Workspace(path, card)

    def remove(self, workspace_id: str, *, preserve_session: bool = False) -> list[str]:
        """Remove a workspace, or all of it but its session; what was kept comes back."""
        workspace = self.find(workspace_id)
        kept = [SESSION] if preserve_session and workspace.session.is_file() else []
        if not kept:
            remove_tree(workspace.path)
            return []
        for entry in workspace.path.iterdir():
            if entry.name == SESSION:
                continue
            if entry.is_dir() and not entry.is_symlink():
                remove_tree(entry)
            else:
                entry.unlink()
        return kept

    def remove_stale(self) -> list[str]:
        """Remove what dead processes left behind a day ago; nothing that is not ours."""
        removed: list[str] = []
        for name in self.ids():
            workspace = self.find(name)
            old = time.time() - workspace.card.created > STALE_SECONDS
            if old and not _is_alive(workspace.card.pid):
                remove_tree(workspace.path)
                removed.append(name)
        return removed


def _is_left(path: Path) -> bool:
    """Whether a folder has nothing but the sessions that a cleanup left there."""
    return path.is_dir() and all(_SESSION_FILE.match(entry.name) for entry in path.iterdir())


def _take_over(left: Path, workspace: Path) -> None:
    """Keep sessions that were left under other names, so that a new one does not mix with them."""
    if not left.is_dir() or not _is_left(left):
        return
    for number, entry in enumerate(sorted(left.iterdir()), 1):
        entry.rename(workspace / f"session-{number}.jsonl")
    left.rmdir()


def _taken(workspace_id: str) -> UsageError:
    return UsageError(
        f"the workspace {workspace_id!r} exists already",
        hint=f"clean it up first: offbook workspace cleanup {workspace_id}",
    )


def remove_tree(path: Path) -> None:
    """Remove a folder whatever its rights; links in it are removed, never followed."""

    def make_way(_: object, name: str, __: object) -> None:
        parent = Path(name).parent
        for locked in (parent, Path(name)):
            if not locked.is_symlink() and locked.exists():
                locked.chmod(locked.stat().st_mode | stat.S_IRWXU)
        if Path(name).is_dir() and not Path(name).is_symlink():
            shutil.rmtree(name)
        else:
            Path(name).unlink(missing_ok=True)

    shutil.rmtree(path, onerror=make_way)


def _check_id(workspace_id: object) -> None:
    if (
        not isinstance(workspace_id, str)
        or not NAME_PATTERN.match(workspace_id)
        or ".." in workspace_id
    ):
        raise UsageError(
            f"{workspace_id!r} is no name for a workspace",
            hint="use letters, digits, '-', '_' and '.', beginning with a letter or a digit",
        )


def _items(fixtures: Any) -> list[tuple[Any, Any]]:
    if not isinstance(fixtures or {}, Mapping):
        return [(None, fixtures)]
    return list(cast("Mapping[Any, Any]", fixtures or {}).items())


def _read_fixtures(fixtures: Mapping[str, str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, text in _items(fixtures):
        if not isinstance(name, str) or not isinstance(text, str):
            raise UsageError("fixtures are texts by their paths", hint='{"src/main.py": "…"}')
        check_relative_path(name, "fixtures")
        if name == MARKER or name.endswith(("/", "\\")) or PurePath(name) == PurePath():
            raise UsageError(f"the path {name!r} is no file", where="fixtures")
        found[name] = text
    folders = {str(folder) for name in found for folder in PurePath(name).parents}
    for name in found:
        if str(PurePath(name)) in folders:
            raise UsageError(f"the path {name!r} is a folder of another", where="fixtures")
    return found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
