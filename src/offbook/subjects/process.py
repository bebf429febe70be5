"""The process supervisor: every process that Offbook starts is started here.

Each process leads its own session and has a deadline. It runs below a small separate process,
`process_tree.py`, which kills the whole tree when the command exits, or when we do, for whatever
reason. Descendants that had left the process group are reported as leaked.

- `run_process` runs a subject: isolated environment, output collected and emitted to the trace.
- `converse` runs a subject that reads commands from its standard input until it is closed.
- `run_shell` runs a shell command for the built-in tool `bash`.
- `run_foreground` runs a command of the user in the terminal, with its input and output.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import DeadlineExceeded, UsageError, did_you_mean, signal_name
from offbook.secrets import excerpt, outgoing
from offbook.trace.events import (
    UNSET,
    ProcessExitData,
    ProcessOutputData,
    ProcessStartData,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from offbook.trace.hub import Hub

TREE = str(Path(__file__).with_name("process_tree.py"))
# Bounded, because an agent in an endless loop would fill our memory.
MAX_OUTPUT = 8 * 1024 * 1024
MAX_BEYOND = 4096  # bytes behind the limit, in which a secret may end
CONVERSATION_OUTPUT = 256 * 1024  # for error messages: the caller reads all of it as it arrives
SHOWN_BYTES, SHOWN_LINES = 16_384, 12  # of the end of an output, in error messages
GRACE = 2.0  # seconds between a polite signal and SIGKILL
DRAIN = 0.5  # seconds to read what is left in the pipes of a tree that was killed
INTERRUPT_GRACE = 1.0  # the same after a signal to us: its sender waits
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Everything else of our environment is left out: keys, tokens, and settings of the user's own
# clients, which would make a test depend on the machine.
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TERM", "TZ", "SYSTEMROOT", "SSL_CERT_FILE")
STREAMS = {1: "stdout", 2: "stderr"}


class Seal(msgspec.Struct, frozen=True):
    """A network namespace for a process (Linux): it has loopback, and these ports of this process.

    `adopt` gets the open ports: a UDP socket for names, then a listener for each of `ports`.
    """

    ports: tuple[int, ...]
    adopt: Callable[[list[socket.socket]], None]


class ProcessResult(msgspec.Struct, frozen=True):
    """The end of a process and its output.

    `code` is negative if a signal ended the process. `leaked` are the ids of descendants that had
    left its process group and were killed. `interrupted_by` is the number of the signal that
    ended the run because we received it, or 0.
    """

    code: int
    stdout: str
    stderr: str
    timed_out: bool = False
    truncated: bool = False
    leaked: tuple[int, ...] = ()
    interrupted_by: int = 0

    def event_data(self) -> ProcessExitData:
        """Return the data of the event `process.exit`."""
        leaked = [*self.leaked] or UNSET
        return ProcessExitData(self.code, self.timed_out, self.truncated, leaked)


def isolated_env(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment with its own home and temporary directory, without our secrets."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    own = {"HOME": str(home), "TMPDIR": str(home / "tmp"), "XDG_CONFIG_HOME": str(home / ".config")}
    env = {**kept, **own, "NO_COLOR": "1", **(extra or {})}
    for folder in (env["HOME"], env["TMPDIR"]):  # `extra` may have its own
        Path(folder).mkdir(parents=True, exist_ok=True)
    return env


class OutputCollector(asyncio.SubprocessProtocol):
    """Collects the output of a process, and records its exit.

    Only the first `limit` bytes are kept, fewer if a secret is cut there; `dropped` counts the
    others. With a hub, output is also
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
        self._beyond = {1: b"", 2: b""}
        self._open = set(streams)
        self._room = MAX_OUTPUT if limit is None else limit
        self.dropped = 0
        self.send_signal: Callable[[int], None] | None = None  # while the command runs
        self.exited = asyncio.Event()
        self.closed = asyncio.Event()
        if not streams:
            self.closed.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: ARG002 - asyncio's signature
        """Emit the start event here: asyncio delivers output only after this call."""
        if self._hub is not None:
            self._hub.emit_data(ProcessStartData(list(self._command)))

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
        self._beyond[fd] = (self._beyond[fd] + data[len(kept) :])[:MAX_BEYOND]
        if not kept:
            return
        self._chunks[fd].append(kept)
        # A secret can only be masked when it is complete, so output is emitted up to the last
        # position at which no secret is cut in two.
        pending = self._pending[fd] + kept
        end = 0
        if b"\n" in kept:
            from offbook.secrets.masks import safe_split_index  # late: many runs have no process

            end = safe_split_index(pending)
        self._pending[fd] = pending[end:]
        self._emit(fd, pending[:end].decode("utf-8", "replace"))

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
            self._emit(fd, self._cut(fd, raw))
        self._pending = {1: b"", 2: b""}

    def text(self, fd: int) -> str:
        """Return the kept output of a stream."""
        return self._cut(fd, b"".join(self._chunks[fd]))

    def _cut(self, fd: int, raw: bytes) -> str:
        """Return the end of the kept output as a text that ends before a secret, not in it."""
        text = raw.decode("utf-8", "replace")
        if not self._beyond[fd]:
            return text
        from offbook.secrets.masks import cut_text

        return cut_text((raw + self._beyond[fd]).decode("utf-8", "replace"), len(text))

    def _emit(self, fd: int, text: str) -> None:
        if text and self._hub is not None:
            self._hub.emit_data(ProcessOutputData(STREAMS[fd], text))


async def run_process(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    deadline: float,
    stdin: bytes = b"",
    hub: Hub | None = None,
    watch: Callable[[str, bytes], None] | None = None,
    seal: Seal | None = None,
) -> ProcessResult:
    """Run a command until it exits or its deadline has passed, and kill its whole tree."""
    output = OutputCollector(hub, command, watch=watch)
    env = {**env, "PWD": str(cwd)}  # as a shell does: opencode reads it as its folder
    result = await _supervise(
        command, output, cwd=cwd, env=env, deadline=deadline, stdin=stdin, grace=GRACE, seal=seal
    )
    output.flush()
    if hub is not None:
        hub.emit_data(result.event_data())
    return result


class StandardInput:
    """The standard input of a process that reads commands. What is written early is kept."""

    def __init__(self) -> None:
        self._pipe: asyncio.WriteTransport | None = None
        self._early: list[bytes] = []

    def connect(self, pipe: asyncio.WriteTransport) -> None:
        """Write to this pipe from now on."""
        self._pipe = pipe
        for data in self._early:
            pipe.write(data)
        self._early.clear()

    def write(self, data: bytes) -> None:
        """Write to the process; without effect after its end."""
        if self._pipe is None:
            self._early.append(data)
        elif not self._pipe.is_closing():
            self._pipe.write(data)

    def close(self) -> None:
        """Let the process read the end of its input."""
        if self._pipe is not None and not self._pipe.is_closing():
            self._pipe.close()


async def converse(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: StandardInput,
    watch: Callable[[str, bytes], None],
    seal: Seal | None = None,
) -> ProcessResult:
    """Run a command until it exits; cancelling this kills its whole tree.

    `watch` receives its output as it arrives. The caller has to set a deadline.
    """
    output = OutputCollector(limit=CONVERSATION_OUTPUT, watch=watch)
    return await _supervise(
        command, output, cwd=cwd, env=env, deadline=None, stdin=stdin, seal=seal
    )


async def run_shell(command: str, *, cwd: Path, deadline: float) -> tuple[ProcessResult, int]:
    """Run a command of bash, its two streams merged; also return the number of dropped bytes.

    The environment is ours. Background processes are killed at once.
    """
    output = OutputCollector(streams=(1,))
    shell = ["bash", "-c", command]
    result = await _supervise(shell, output, cwd=cwd, env=None, deadline=deadline, stderr=STDOUT)
    return result, output.dropped


async def run_foreground(
    command: Sequence[str],
    env: Mapping[str, str],
    deadline: float,
    *,
    keep: int = 0,
    echo: bool = True,
    cwd: Path | None = None,
    stdin: bytes | None = None,
    seal: Seal | None = None,
) -> ProcessResult:
    """Run a command in the terminal; its result has the first `keep` bytes of its output.

    Ctrl-C, SIGTERM and SIGHUP are forwarded to the command, because it is not in our process
    group. The result then has `interrupted_by`. A command with its own `stdin` does not use
    the terminal: its error output is kept, too.
    """
    streams = ((1,) if stdin is None else (1, 2)) if keep else ()
    output = OutputCollector(limit=keep, streams=streams, echo=echo)
    interrupted_by = 0
    if cwd is not None:
        env = {**env, "PWD": str(cwd)}
    supervision = asyncio.ensure_future(
        _supervise(
            command,
            output,
            cwd=cwd,
            env=env,
            deadline=deadline,
            stdin=stdin,
            stdout=PIPE if 1 in streams else None,
            stderr=PIPE if 2 in streams else None,  # noqa: PLR2004 - standard error
            seal=seal,
        )
    )

    def interrupt(number: int) -> None:
        nonlocal interrupted_by
        interrupted_by = interrupted_by or number
        loop = asyncio.get_running_loop()
        if output.send_signal is None:  # it is being started, or has ended
            loop.call_later(0.01, interrupt, number)
            return
        output.send_signal(number)
        loop.call_later(INTERRUPT_GRACE, supervision.cancel)

    try:
        with _handle_signals(interrupt):
            result = await supervision
    except asyncio.CancelledError:
        if not interrupted_by:
            supervision.cancel()
            raise
        # It did not exit after the signal.
        result = ProcessResult(-signal.SIGKILL, output.text(1), output.text(2))
    if result.timed_out:
        raise DeadlineExceeded(
            f"the command was still running after {deadline:g} s", where=command[0]
        )
    text = result.stdout
    if output.dropped and keep:
        text += f"\n… {output.dropped:,} more bytes\n"
    return msgspec.structs.replace(result, stdout=text, interrupted_by=interrupted_by)


@contextlib.contextmanager
def _handle_signals(handler: Callable[[int], None]) -> Generator[None]:
    """Call `handler` in the running loop on SIGINT, SIGTERM and SIGHUP."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    loop = asyncio.get_running_loop()

    # Not `loop.add_signal_handler`: that one does not restore the handlers of our caller.
    def forward(number: int, _frame: object) -> None:
        loop.call_soon_threadsafe(handler, number)

    # Below nohup, SIGHUP is ignored and stays so.
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    numbers = [number for number in INTERRUPTS if number != signal.SIGHUP or not ignored]
    before = [signal.signal(number, forward) for number in numbers]
    try:
        yield
    finally:
        for number, previous in zip(numbers, before, strict=True):
            signal.signal(number, previous)


@contextlib.contextmanager
def _wake_on_signals() -> Generator[None]:
    """Let a signal wake the running loop, so that its handler is called at once.

    Python calls handlers between two bytecodes of the main thread. A signal that arrives just
    before the loop waits for its next event does not end that wait, and the next event may be a
    deadline of minutes. asyncio prevents this for the handlers of `add_signal_handler` only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread waits for signals
        return
    loop = asyncio.get_running_loop()
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    loop.add_reader(reader, os.read, reader, 4096)
    other = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    if other != -1:  # of the program, or of another process that this loop supervises
        signal.set_wakeup_fd(other)
    try:
        yield
    finally:
        current = signal.set_wakeup_fd(-1)
        if current != writer:
            signal.set_wakeup_fd(current)
        loop.remove_reader(reader)
        os.close(reader)
        os.close(writer)


def starts_watcher(event: str, args: tuple[Any, ...]) -> bool:
    """Return whether an audit event starts the process that ends what agents leave running."""
    return event == "subprocess.Popen" and (TREE, "watch") in pairwise(args[1])


def describe_exit(code: int) -> str:
    """Return `failed with exit code 3` or `was killed by SIGKILL`."""
    return f"was killed by {signal_name(-code)}" if code < 0 else f"failed with exit code {code}"


class OutputEnd:
    """The end of what a process prints, for error messages."""

    def __init__(self) -> None:
        self._kept = b""

    def add(self, data: bytes) -> None:
        """Take what the process has printed."""
        self._kept = (self._kept + data)[-SHOWN_BYTES:]

    def last_lines(self) -> str:
        """Return its last lines, indented; empty if it has printed nothing."""
        return last_lines(self._kept.decode("utf-8", "replace"))


def last_lines(printed: str) -> str:
    """Return the last lines of an output, indented and without secrets."""
    lines = outgoing(printed.strip()).splitlines()
    return "\n".join(f"  {excerpt(line, 300)}" for line in lines[-SHOWN_LINES:])


def describe_missing_file(command: Sequence[str], cwd: Path) -> str:
    """Return a line on a file that a command does not find in its folder, but here; or nothing."""
    for word in command[1:]:
        # A word may be a whole program: `pathlib` raises an error for a name of that length.
        if os.path.isfile(word) and not os.path.exists(cwd / word):  # noqa: PTH110, PTH113
            return f"  {word} is in the current folder: start the command there with cwd='.'"
    return ""


async def _supervise(  # noqa: PLR0913, PLR0915 - the callers differ in all of them; it is the heart
    command: Sequence[str],
    output: OutputCollector,
    *,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    deadline: float | None,
    stdin: bytes | StandardInput | None = b"",
    stdout: int | None = PIPE,
    stderr: int | None = PIPE,
    grace: float = 0.0,
    seal: Seal | None = None,
) -> ProcessResult:
    """Start a process, wait for its exit or its deadline, and kill its tree.

    For `grace` seconds after the exit, children that still hold the pipes may finish their
    output. Without `env` the process inherits ours; a stream that is None is inherited, too.
    """
    lc_ctype = (os.environ if env is None else env).get("LC_CTYPE", "")
    ours, theirs = socket.socketpair()
    pair = socket.socketpair() if seal is not None else ()  # for the ports of a namespace
    sealing = ",".join(map(str, (pair[1].fileno(), *seal.ports))) if seal and pair else ""
    tree = [sys.executable, "-I", "-S", TREE, str(os.getpid()), str(theirs.fileno())]
    tree += [lc_ctype, sealing]

    async def start() -> tuple[
        asyncio.SubprocessTransport, asyncio.StreamReader, asyncio.StreamWriter
    ]:
        with theirs, contextlib.ExitStack() as stack:
            for end in pair[1:]:
                stack.enter_context(end)
            transport, _ = await asyncio.get_running_loop().subprocess_exec(
                lambda: output,
                *tree,
                *command,
                cwd=cwd,
                env=env,
                start_new_session=True,
                pass_fds=[theirs.fileno(), *(end.fileno() for end in pair[1:])],
                stdin=None if stdin is None else PIPE,
                stdout=stdout,
                stderr=stderr,
            )
        return transport, *await asyncio.open_connection(sock=ours)

    starting = asyncio.ensure_future(start())
    try:
        transport, reports, control = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # A process that is being started cannot be killed yet: wait for it, it takes milliseconds.
        with contextlib.suppress(OSError):
            transport, _, control = await starting
            control.close()  # this kills the tree
            await output.exited.wait()
            transport.close()
        raise
    except OSError as error:
        ours.close()
        raise UsageError(f"cannot run {command[0]!r} in {cwd}: {error.strerror}") from error
    lines: list[bytes] = []
    timed_out = False

    def send_signal(number: int) -> None:
        # Not `control.write`: if the tree has just ended, that would close the socket, and its
        # reports could not be read.
        with contextlib.suppress(OSError):
            ours.send(bytes([number]))

    try:
        lines.append(await reports.readline())
        if not lines[0].startswith(b"error"):
            if seal is not None and pair:
                _, numbers, _, _ = socket.recv_fds(pair[0], 1, 1 + len(seal.ports))
                seal.adopt([socket.socket(fileno=number) for number in numbers])
            output.send_signal = send_signal
            _write_input(transport.get_pipe_transport(0), stdin)
            with _wake_on_signals():
                lines.append(await asyncio.wait_for(reports.readline(), deadline))
        if grace:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(output.closed.wait(), grace)
    except TimeoutError:
        # SIGTERM first: a client may have to write its session file, or stop its own children.
        timed_out = True
        send_signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            lines.append(await asyncio.wait_for(reports.readline(), GRACE))
    finally:
        for end in pair[:1]:
            end.close()
        output.send_signal = None
        control.write_eof()  # this kills the tree
        with contextlib.suppress(ConnectionError):
            lines += (await reports.read()).splitlines()
        control.close()
        await output.exited.wait()
        # All writers are dead, so the pipes end when they are read to the end; only a process
        # that escaped keeps them open.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(output.closed.wait(), DRAIN)
        transport.close()
    report = {name: values for name, *values in (line.decode().split() for line in lines if line)}
    if "error" in report:
        raise _cannot_start(command[0], report["error"], env or os.environ)
    if "exit" not in report:
        # The process above the tree was killed, and with it the command.
        with contextlib.suppress(ProcessLookupError, PermissionError, KeyError):
            os.killpg(int(report["start"][0]), signal.SIGKILL)
    code = int(report["exit"][0]) if "exit" in report else -signal.SIGKILL
    leaked = tuple(map(int, report.get("leaked", ())))
    return ProcessResult(
        code, output.text(1), output.text(2), timed_out, bool(output.dropped), leaked
    )


def _write_input(pipe: asyncio.BaseTransport | None, stdin: bytes | StandardInput | None) -> None:
    if not isinstance(pipe, asyncio.WriteTransport):
        return
    if isinstance(stdin, StandardInput):
        stdin.connect(pipe)
        return
    # It is closed after the prompt, because many clients read it to the end.
    if stdin:
        pipe.write(stdin)
    pipe.write_eof() if pipe.can_write_eof() else pipe.close()


def _cannot_start(program: str, reason: list[str], env: Mapping[str, str]) -> UsageError:
    """Return the error for a program that did not start; for a missing one, with a similar name."""
    number = int(reason[-1])
    if reason[0] == "seal":
        return UsageError(
            f"cannot seal {program!r}: {os.strerror(number)}",
            hint="a network namespace needs the right to make one: user namespaces, or"
            " CAP_SYS_ADMIN; without --sealed, a proxy refuses other hosts",
        )
    if number != errno.ENOENT:
        hint = f"chmod +x {program}" if number == errno.EACCES else ""
        return UsageError(f"cannot run {program!r}: {os.strerror(number)}", hint=hint)
    names: set[str] = set()
    # A path is not searched for on the PATH.
    for folder in () if os.sep in program else env.get("PATH", "").split(os.pathsep):
        with contextlib.suppress(OSError):
            names.update(path.name for path in Path(folder).glob(f"{program[:1]}*"))
    hint = did_you_mean(program, names)
    if not hint.startswith("did you mean"):
        hint = "install it, or give its full path"
    return UsageError(f"command not found: {program!r}", hint=hint)
