"""A test that only replays: no network, no other process, no file outside its own folder.

    with guarded(allow=[folder]) as guard:
        ...                     # whatever reaches out in here raises, with the line that did it
    guard.broken                # the same errors, also when somebody swallowed them

It watches the whole process while it holds. What native code does on its own is not seen.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbook.determinism import audit
from offbook.determinism.caller import call_site
from offbook.determinism.isolation import is_numeric
from offbook.errors import IsolationError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

NETWORK = {
    "socket.connect": "reached for the network",
    "socket.bind": "opened a port",
    "socket.sendto": "reached for the network",
    "socket.sendmsg": "reached for the network",
    "socket.getaddrinfo": "looked up a host",
    "socket.gethostbyname": "looked up a host",
    "socket.gethostbyaddr": "looked up a host",
}
PROCESSES = dict.fromkeys(
    ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork"),
    "started a process, whose doings nobody can see",
)
# where the path stands among the arguments, and where the folder that it is relative to
CHANGES = {
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "sqlite3.connect": ((0, None),),
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
SINKS = {os.devnull, "/dev/tty", ":memory:", ""}
CACHE = "__pycache__"  # Python keeps there what it compiled


class Guard:
    """What may be written, and what was tried in spite of it."""

    def __init__(self, allow: Iterable[Path | str]) -> None:
        folders = {str(path) for given in allow for path in (Path(given), Path(given).resolve())}
        self._allowed = tuple(sorted(folders))
        self.broken: list[IsolationError] = []

    def refuse(self, event: str, args: tuple[Any, ...]) -> None:
        """Refuse the network, or another process."""
        if event == "socket.connect" and isinstance(args[1], (str, bytes)):
            return  # a socket that is a file on this machine
        if event == "socket.getaddrinfo" and is_numeric(os.fsdecode(args[0] or "")):
            return  # an address needs no look-up
        detail = _address(args) if event in NETWORK else _command(args)
        self._break(f"{(NETWORK | PROCESSES)[event]}: {detail}")

    def check_open(self, _event: str, args: tuple[Any, ...]) -> None:
        """Refuse to open a file for writing elsewhere."""
        path, mode, flags = args
        writes = any(sign in mode for sign in "wax+") if mode else bool(flags & WRITING)
        if writes and not isinstance(path, int):
            self._check(path, None, "wrote")

    def check_change(self, event: str, args: tuple[Any, ...]) -> None:
        """Refuse to make, move or remove something elsewhere."""
        for at, within in CHANGES[event]:
            folder = None if within is None else args[within]
            self._check(args[at], folder, "changed")

    def _check(self, path: Any, folder: int | None, doing: str) -> None:
        whole = _absolute(os.fsdecode(path), folder)
        if whole is None or whole in SINKS or CACHE in whole:
            return
        if not any(whole == own or whole.startswith(own + os.sep) for own in self._allowed):
            self._break(f"{doing} the file {whole}")

    def _break(self, what: str) -> None:
        error = IsolationError(
            f"a test that only replays {what}",
            where=call_site(),
            hint="write below tmp_path, replay what was recorded, or mark the test otherwise",
        )
        self.broken.append(error)
        raise error


def _absolute(path: str, folder: int | None) -> str | None:
    """The whole path; nothing where the folder that it is relative to cannot be told."""
    if path in SINKS:
        return path
    if folder is None or folder < 0 or Path(path).is_absolute():
        return str(Path(path).absolute().resolve(strict=False))
    try:
        return str(Path(f"/proc/self/fd/{folder}").readlink() / path)
    except OSError:
        return None


def _address(args: tuple[Any, ...]) -> str:
    told = args[0] if isinstance(args[0], (str, bytes)) or len(args) == 1 else args[1]
    return f"{told[0]}:{told[1]}" if isinstance(told, tuple) and len(told) > 1 else str(told)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - an address of any family


def _command(args: tuple[Any, ...]) -> str:
    return str(next((one for one in args if one), ""))


@contextmanager
def guarded(
    *, allow: Iterable[Path | str] = (), network: bool = False, processes: bool = False
) -> Generator[Guard]:
    """Refuse everything in here that a test may not do which only replays.

    Below the folders of `allow` it may write; `network` and `processes` lift those bans.
    """
    guard = Guard(allow)
    with ExitStack() as stack:
        stack.callback(audit.watch({"open"}, guard.check_open))
        stack.callback(audit.watch(CHANGES, guard.check_change))
        if not network:
            stack.callback(audit.watch(NETWORK, guard.refuse))
        if not processes:
            stack.callback(audit.watch(PROCESSES, guard.refuse))
        yield guard
