"""Runs a command as a process of its own, and leaves none of its descendants behind.

Every process is the leader of its own group, has a home and a temporary folder of its own, and a
deadline by the wall clock. When it ends, for whatever reason, its group ends with it; descendants
that left the group are found by a mark in their environment, ended, and told of as leaked.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from offbook.errors import UsageError, did_you_mean
from offbook.secrets import safe_split_index
from offbook.trace.events import PROCESS_EXIT, PROCESS_OUTPUT, PROCESS_START

if TYPE_CHECKING:
    from offbook.trace.hub import Hub

PROCESS_MARK = "OFFBOOK_PROCESS"
MAX_OUTPUT = 8 * 1024 * 1024
GRACE = 2.0
KILL_ATTEMPTS = 500
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TERM", "TZ", "SYSTEMROOT", "SSL_CERT_FILE")
STREAMS = {1: "stdout", 2: "stderr"}


class ProcessResult(msgspec.Struct, frozen=True):
    """How a process ended, and what it said. A signal that ended it is its code, negative."""

    code: int
    stdout: str
    stderr: str
    timed_out: bool = False
    truncated: bool = False
    leaked: tuple[int, ...] = ()


def isolated_env(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment with a home and a temporary folder of its own, and no secrets of ours."""
    for folder in (home, home / "tmp"):
        folder.mkdir(parents=True, exist_ok=True)
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    own = {"HOME": str(home), "TMPDIR": str(home / "tmp"), "XDG_CONFIG_HOME": str(home / ".config")}
    return {**kept, **own, "NO_COLOR": "1", **(extra or {})}


async def run_process(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    deadline: float,
    stdin: bytes = b"",
    hub: Hub | None = None,
) -> ProcessResult:
    """Run a command to its end, or to its deadline."""
    mark = uuid.uuid4().hex
    said = OutputCollector(hub, command)
    transport = await _start(command, cwd, {**env, PROCESS_MARK: mark}, said)
    leader = transport.get_pid()
    _feed(transport, stdin)
    leaked: tuple[int, ...] = ()
    timed_out = False
    try:
        await asyncio.wait_for(said.exited.wait(), deadline)
        # A child may hold the pipes open: what it says later is not the command's word.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(said.closed.wait(), GRACE)
    except TimeoutError:
        timed_out = True
        _signal_group(leader, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(said.exited.wait(), GRACE)
    finally:
        leaked = await end_tree(leader, mark)
        await said.exited.wait()
        transport.close()
    code = transport.get_returncode() or 0
    ended = ProcessResult(code, said.text(1), said.text(2), timed_out, said.full, leaked)
    said.tell_rest()
    if hub is not None:
        about = {"code": code, "timed_out": timed_out, "truncated": said.full}
        hub.emit(PROCESS_EXIT, {**about, "leaked": list(leaked)} if leaked else about)
    return ended


async def _start(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], said: OutputCollector
) -> asyncio.SubprocessTransport:
    starting = asyncio.ensure_future(
        asyncio.get_running_loop().subprocess_exec(
            lambda: said, *command, cwd=cwd, env=dict(env), start_new_session=True
        )
    )
    try:
        transport, _ = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Half started, it could not be ended with all that it began: that takes but a moment.
        with contextlib.suppress(OSError):
            transport, _ = await starting
            await end_tree(transport.get_pid(), env[PROCESS_MARK])
            await said.exited.wait()
            transport.close()
        raise
    except FileNotFoundError as error:
        raise UsageError(
            f"there is no command {command[0]!r}", hint=_suggest(command[0], env)
        ) from error
    except PermissionError as error:
        raise UsageError(f"{command[0]!r} may not be run", hint="chmod +x it") from error
    return transport


def _suggest(name: str, env: Mapping[str, str]) -> str:
    found: set[str] = set()
    for folder in env.get("PATH", "").split(os.pathsep):
        with contextlib.suppress(OSError):
            found.update(entry.name for entry in os.scandir(folder) if entry.name[:1] == name[:1])
    hint = did_you_mean(name, found)
    return hint if hint.startswith("did you mean") else "install it, or give its whole path"


class OutputCollector(asyncio.SubprocessProtocol):
    """What a process wrote, as far as there is room for it, and whether it is over."""

    def __init__(self, hub: Hub | None, command: Sequence[str] = ()) -> None:
        self._hub = hub
        self._command = command
        self._parts: dict[int, list[bytes]] = {1: [], 2: []}
        self._untold = {1: b"", 2: b""}
        self._open = {1, 2}
        self._room = MAX_OUTPUT
        self.full = False
        self.exited = asyncio.Event()
        self.closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell that it runs: here, before anything that it says can be heard."""
        if self._hub is not None and isinstance(transport, asyncio.SubprocessTransport):
            about = {"command": list(self._command), "pid": transport.get_pid()}
            self._hub.emit(PROCESS_START, about)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        kept = data[: self._room]
        self._room -= len(kept)
        self.full = self.full or len(kept) < len(data)
        if kept:
            self._parts[fd].append(kept)
            raw = self._untold[fd] + kept
            # A secret that comes in pieces is known for one only when it is whole.
            end = safe_split_index(raw) if b"\n" in kept else 0
            self._untold[fd] = raw[end:]
            self._tell(fd, raw[:end])

    def _tell(self, fd: int, raw: bytes) -> None:
        if raw and self._hub is not None:
            text = raw.decode("utf-8", "replace")
            self._hub.emit(PROCESS_OUTPUT, {"stream": STREAMS[fd], "text": text})

    def tell_rest(self) -> None:
        """Tell what never came to a line's end; a second time is nothing."""
        for fd, raw in self._untold.items():
            self._tell(fd, raw)
        self._untold = {1: b"", 2: b""}

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._open.discard(fd)
        if not self._open:
            self.closed.set()

    def process_exited(self) -> None:
        self.exited.set()

    def text(self, fd: int) -> str:
        """All that came out of this pipe."""
        return b"".join(self._parts[fd]).decode("utf-8", "replace")


def _feed(transport: asyncio.SubprocessTransport, stdin: bytes) -> None:
    pipe = transport.get_pipe_transport(0)
    if isinstance(pipe, asyncio.WriteTransport):
        if stdin:
            pipe.write(stdin)
        pipe.write_eof() if pipe.can_write_eof() else pipe.close()


async def end_tree(leader: int, mark: str) -> tuple[int, ...]:
    """End a process's group, and whoever carries its mark; the leaked ones had left the group."""
    marked = find_marked(mark)
    for _ in range(KILL_ATTEMPTS):
        # one that is dying has lost its environment, and with it the mark, before it is gone
        if not kill_marked(leader, mark) and not any(_lives(pid) for pid, _ in marked):
            break
        await asyncio.sleep(0.01)
    return tuple(pid for pid, group in marked if group != leader)


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return False
    return state not in {"Z", "X"}


def kill_marked(leader: int, mark: str) -> bool:
    """Kill all of them, and tell whether there were any: they may start others meanwhile."""
    _signal_group(leader, signal.SIGKILL)
    left = find_marked(mark)
    for pid, _group in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return bool(left)


def _signal_group(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def find_marked(mark: str) -> list[tuple[int, int]]:
    """The living processes with this mark in their environment, each with its group."""
    wanted = f"{PROCESS_MARK}={mark}".encode()
    found: list[tuple[int, int]] = []
    for entry in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes():
                state, _, group = (entry / "stat").read_text().rpartition(") ")[2].split()[:3]
                if state not in {"Z", "X"}:
                    found.append((int(entry.name), int(group)))
    return found
