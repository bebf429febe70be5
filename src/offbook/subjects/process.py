"""The process supervisor: every process that Offbook starts is started here.

Each process leads its own process group and has a deadline. When it exits, for whatever reason,
its whole tree is killed: the group first, then the descendants that left the group. Those are
found by a mark in their environment and reported as leaked.

- `run_process` runs a subject: isolated environment, output collected and emitted to the trace.
- `run_shell` runs a shell command for the built-in tool `bash`.
- `run_foreground` runs a command of the user in the terminal, with its input and output.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import DeadlineExceeded, UsageError, did_you_mean
from offbook.secrets import safe_split_index
from offbook.trace.events import PROCESS_EXIT, PROCESS_OUTPUT, PROCESS_START

if TYPE_CHECKING:
    from collections.abc import Generator

    from offbook.trace.hub import Hub

PROCESS_MARK = "OFFBOOK_PROCESS"
# Bounded, because an agent in an endless loop would fill our memory.
MAX_OUTPUT = 8 * 1024 * 1024
GRACE = 2.0  # seconds between a polite signal and SIGKILL
DRAIN = 0.5  # seconds to read what is left in the pipes of a tree that was killed
KILL_ATTEMPTS = 500  # 10 ms apart: a process in uninterruptible sleep may take seconds
INTERRUPTED = 130
# Everything else of our environment is left out: keys, tokens, and settings of the user's own
# clients, which would make a test depend on the machine.
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TERM", "TZ", "SYSTEMROOT", "SSL_CERT_FILE")
STREAMS = {1: "stdout", 2: "stderr"}


class ProcessResult(msgspec.Struct, frozen=True):
    """The end of a process and its output.

    `code` is negative if a signal ended the process. `leaked` are the ids of descendants that had
    left its process group and were killed.
    """

    code: int
    stdout: str
    stderr: str
    timed_out: bool = False
    truncated: bool = False
    leaked: tuple[int, ...] = ()

    def event_data(self) -> dict[str, Any]:
        """Return the data of the event `process.exit`."""
        data = {"code": self.code, "timed_out": self.timed_out, "truncated": self.truncated}
        return {**data, "leaked": list(self.leaked)} if self.leaked else data


def isolated_env(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment with its own home and temporary directory, without our secrets."""
    for folder in (home, home / "tmp"):
        folder.mkdir(parents=True, exist_ok=True)
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    own = {"HOME": str(home), "TMPDIR": str(home / "tmp"), "XDG_CONFIG_HOME": str(home / ".config")}
    return {**kept, **own, "NO_COLOR": "1", **(extra or {})}


class OutputCollector(asyncio.SubprocessProtocol):
    """Collects the output of a process, and records its exit.

    Only the first `limit` bytes are kept; `dropped` counts the others. With a hub, output is also
    emitted as events; with `echo`, it is also written to our standard output. `watch` receives all
    of it with the name of its stream, also what is not kept.
    """

    def __init__(
        self,
        hub: Hub | None = None,
        command: Sequence[str] = (),
        *,
        limit: int | None = None,
        streams: Sequence[int] = (1, 2),
        echo: bool = False,
        watch: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self._hub = hub
        self._watch = watch
        self._command = command
        self._echo = echo
        self._chunks: dict[int, list[bytes]] = {1: [], 2: []}
        self._pending = {1: b"", 2: b""}
        self._open = set(streams)
        self._room = MAX_OUTPUT if limit is None else limit
        self.dropped = 0
        self.pid = 0
        self.exited = asyncio.Event()
        self.closed = asyncio.Event()
        if not streams:
            self.closed.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Emit the start event here: asyncio delivers output only after this call."""
        if isinstance(transport, asyncio.SubprocessTransport):
            self.pid = transport.get_pid()
            if self._hub is not None:
                data = {"command": list(self._command), "pid": self.pid}
                self._hub.emit(PROCESS_START, data)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep and emit a chunk of output."""
        if self._echo:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        if self._watch is not None:
            self._watch(STREAMS[fd], data)
        kept = data[: self._room]
        self._room -= len(kept)
        self.dropped += len(data) - len(kept)
        if not kept:
            return
        self._chunks[fd].append(kept)
        # A secret can only be masked when it is complete, so output is emitted up to the last
        # position at which no secret is cut in two.
        pending = self._pending[fd] + kept
        end = safe_split_index(pending) if b"\n" in kept else 0
        self._pending[fd] = pending[end:]
        self._emit(fd, pending[:end])

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Record that a pipe is closed."""
        self._open.discard(fd)
        if not self._open:
            self.closed.set()

    def process_exited(self) -> None:
        """Record the exit."""
        self.exited.set()

    def flush(self) -> None:
        """Emit the output that did not end with a newline. Idempotent."""
        for fd, raw in self._pending.items():
            self._emit(fd, raw)
        self._pending = {1: b"", 2: b""}

    def text(self, fd: int) -> str:
        """Return the kept output of a stream."""
        return b"".join(self._chunks[fd]).decode("utf-8", "replace")

    def _emit(self, fd: int, raw: bytes) -> None:
        if raw and self._hub is not None:
            text = raw.decode("utf-8", "replace")
            self._hub.emit(PROCESS_OUTPUT, {"stream": STREAMS[fd], "text": text})


async def run_process(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    deadline: float,
    stdin: bytes = b"",
    hub: Hub | None = None,
    watch: Callable[[str, bytes], None] | None = None,
) -> ProcessResult:
    """Run a command until it exits or its deadline has passed, and kill its whole tree."""
    output = OutputCollector(hub, command, watch=watch)
    result = await _supervise(
        command, output, cwd=cwd, env=env, deadline=deadline, stdin=stdin, grace=GRACE
    )
    output.flush()
    if hub is not None:
        hub.emit(PROCESS_EXIT, result.event_data())
    return result


async def run_shell(command: str, *, cwd: Path, deadline: float) -> tuple[ProcessResult, int]:
    """Run a shell command, its two streams merged; also return the number of dropped bytes.

    The environment is ours, without a mark: a test that runs `env` must see the same variables
    each time. So only the process group is killed. Background processes are killed at once.
    """
    output = OutputCollector(streams=(1,))
    shell = ["/bin/sh", "-c", command]
    result = await _supervise(shell, output, cwd=cwd, env=None, deadline=deadline, stderr=STDOUT)
    return result, output.dropped


def run_foreground(
    command: Sequence[str],
    env: Mapping[str, str],
    deadline: float,
    *,
    keep: int = 0,
    echo: bool = True,
    cwd: Path | None = None,
) -> tuple[int, str]:
    """Run a command in the terminal; return its exit code and the first `keep` bytes of output.

    Ctrl-C and SIGTERM are forwarded to the command as SIGINT, because it is not in our process
    group; the exit code is then 130.
    """
    output = OutputCollector(limit=keep, streams=(1,) if keep else (), echo=echo)
    stdout = PIPE if keep else None
    interrupted = False

    async def run() -> ProcessResult:
        supervision = asyncio.ensure_future(
            _supervise(
                command,
                output,
                cwd=cwd,
                env=env,
                deadline=deadline,
                stdin=None,
                stdout=stdout,
                stderr=None,
            )
        )

        def interrupt() -> None:
            nonlocal interrupted
            interrupted = True
            loop = asyncio.get_running_loop()
            if not output.pid:  # it is still being started
                loop.call_later(0.01, interrupt)
                return
            _signal_group(output.pid, signal.SIGINT)
            loop.call_later(GRACE, supervision.cancel)

        with _handle_signals(interrupt):
            return await supervision

    try:
        result = asyncio.run(run())
    except asyncio.CancelledError:  # it did not exit after SIGINT
        result = ProcessResult(INTERRUPTED, output.text(1), "")
    if result.timed_out:
        raise DeadlineExceeded(
            f"the command was still running after {deadline:g} s", where=command[0]
        )
    text = result.stdout
    if output.dropped and keep:
        text += f"\n… {output.dropped:,} more bytes\n"
    return INTERRUPTED if interrupted else result.code, text


@contextlib.contextmanager
def _handle_signals(handler: Callable[[], None]) -> Generator[None]:
    """Call `handler` in the running loop on SIGINT and SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    # Not `loop.add_signal_handler`: that one does not restore the handlers of our caller.
    def forward(_number: int, _frame: object) -> None:
        loop.call_soon_threadsafe(handler)

    before = [signal.signal(number, forward) for number in numbers]
    try:
        yield
    finally:
        for number, previous in zip(numbers, before, strict=True):
            signal.signal(number, previous)


async def _supervise(  # noqa: PLR0913 - the three callers differ in all of them
    command: Sequence[str],
    output: OutputCollector,
    *,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    deadline: float,
    stdin: bytes | None = b"",
    stdout: int | None = PIPE,
    stderr: int | None = PIPE,
    grace: float = 0.0,
) -> ProcessResult:
    """Start a process, wait for its exit or its deadline, and kill its tree.

    For `grace` seconds after the exit, children that still hold the pipes may finish their
    output. Without `env` the process inherits ours and gets no mark; a stream that is None is
    inherited, too.
    """
    mark = "" if env is None else uuid.uuid4().hex
    starting = asyncio.ensure_future(
        asyncio.get_running_loop().subprocess_exec(
            lambda: output,
            *command,
            cwd=cwd,
            env=None if env is None else {**env, PROCESS_MARK: mark},
            start_new_session=True,
            stdin=None if stdin is None else PIPE,
            stdout=stdout,
            stderr=stderr,
        )
    )
    try:
        transport, _ = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # A process that is being started cannot be killed yet: wait for it, it takes milliseconds.
        with contextlib.suppress(OSError):
            transport, _ = await starting
            await _kill_tree(transport.get_pid(), mark)
            await output.exited.wait()
            transport.close()
        raise
    except FileNotFoundError as error:
        raise _not_found(command[0], env or os.environ) from error
    except OSError as error:
        raise UsageError(
            f"cannot run {command[0]!r}: {error.strerror}",
            hint=f"chmod +x {command[0]}" if isinstance(error, PermissionError) else "",
        ) from error
    leader = transport.get_pid()
    # Standard input is closed after the prompt, because many clients read it to the end.
    writer = transport.get_pipe_transport(0)
    if isinstance(writer, asyncio.WriteTransport):
        if stdin:
            writer.write(stdin)
        writer.write_eof() if writer.can_write_eof() else writer.close()
    leaked: tuple[int, ...] = ()
    timed_out = False
    try:
        await asyncio.wait_for(output.exited.wait(), deadline)
        if grace:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(output.closed.wait(), grace)
    except TimeoutError:
        # SIGTERM first: a client may have to write its session file, or stop its own children.
        timed_out = True
        _signal_group(leader, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(output.exited.wait(), GRACE)
    finally:
        leaked = await _kill_tree(leader, mark)
        await output.exited.wait()
        # All writers are dead, so the pipes end when they are read to the end; only a process
        # that escaped without a mark keeps them open.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(output.closed.wait(), DRAIN)
        transport.close()
    code = transport.get_returncode() or 0
    truncated = bool(output.dropped)
    return ProcessResult(code, output.text(1), output.text(2), timed_out, truncated, leaked)


def _not_found(program: str, env: Mapping[str, str]) -> UsageError:
    """Return the error for a missing program, with the most similar name on the PATH."""
    names: set[str] = set()
    for folder in env.get("PATH", "").split(os.pathsep):
        with contextlib.suppress(OSError):
            names.update(path.name for path in Path(folder).glob(f"{program[:1]}*"))
    hint = did_you_mean(program, names)
    if not hint.startswith("did you mean"):
        hint = "install it, or give its full path"
    return UsageError(f"command not found: {program!r}", hint=hint)


async def _kill_tree(leader: int, mark: str) -> tuple[int, ...]:
    """Kill a process group and all processes with the mark; return those outside of the group."""
    marked = _find_marked(mark)
    for _ in range(KILL_ATTEMPTS):
        # Repeat until none is left: a process may fork while we kill the others.
        _signal_group(leader, signal.SIGKILL)
        remaining = _find_marked(mark)
        for pid, _group in remaining:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        # A dying process loses its environment, and with it the mark, before it is gone.
        if not remaining and not any(_is_running(pid) for pid, _group in marked):
            break
        await asyncio.sleep(0.01)
    return tuple(pid for pid, group in marked if group != leader)


def _signal_group(leader: int, number: int) -> None:
    if leader > 0:  # 0 would be our own group
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, number)


def _find_marked(mark: str) -> list[tuple[int, int]]:
    """Return the running processes with this mark in their environment, each with its group."""
    if not mark or not Path("/proc").is_dir():  # only Linux shows the environment of a process
        return []
    wanted = f"{PROCESS_MARK}={mark}".encode()
    marked: list[tuple[int, int]] = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if wanted in Path(entry.path, "environ").read_bytes() and _is_running(int(entry.name)):
                marked.append((int(entry.name), os.getpgid(int(entry.name))))
    return marked


def _is_running(pid: int) -> bool:
    """Return False for a process that does not exist or is a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return False
    return state not in {"Z", "X"}
