"""The process `pi --mode rpc`: commands on its standard input, events on its standard output.

Every command gets a response with its id. Dialogs of extensions arrive as requests and are
answered by the test. A prompt has ended when pi is idle: its agent loop has ended, nothing is
queued, and no extension is about to prompt pi itself.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import msgspec

from offbook.errors import (
    DeadlineExceeded,
    ExtensionError,
    OffbookWarning,
    RunError,
    UsageError,
)
from offbook.subjects.process import (
    OutputEnd,
    ProcessResult,
    StandardInput,
    converse,
    describe_exit,
    run_process,
)
from offbook.subjects.rpc_process import LoopThread

if TYPE_CHECKING:
    from offbook.subjects.clis.pi.pi_run import PiRun


OLDEST_NODE = 20  # nothing older is asked for its version, which takes a while
DEADLINE = 30.0
_node_versions: dict[str, str] = {}
# The oldest and the newest minor version that `./dev bench pi_versions` has run.
TESTED = ((0, 64), (0, 87))
NO_CONTEXT_FILES = (0, 67, 68)  # the first version with this option
# The first version whose process serves one test after another: 0.64 keeps its list of models, and
# 0.65 to 0.67 need the working directory of the last session.
WARM = (0, 68)
PACKAGES = ("@mariozechner/pi-coding-agent", "@earendil-works/pi-coding-agent")


async def check_version(program: str, env: Mapping[str, str]) -> str:
    """Return the version of this pi; warn if it is outside of the tested versions."""
    version, engine = _read_package(program) or (await _ask(program, env), "")
    numbers = parse_version(version)[:2]
    if len(numbers) < 2:  # noqa: PLR2004 - major and minor
        raise UsageError("cannot read the version of pi", where=program, hint=f"got {version!r}")
    oldest, newest = TESTED
    if not oldest <= numbers <= newest:
        first, last = (".".join(map(str, minor)) for minor in TESTED)
        side = "older" if numbers < oldest else "newer"
        warnings.warn(
            f"pi {version} is {side} than the tested versions, {first} to {last}: {program}",
            OffbookWarning,
            stacklevel=2,
        )
    await _check_node(version, engine, env)
    return version


def quiet_options(version: str) -> list[str]:
    """Return the options that keep the user's own files out of a session."""
    options = ["--no-extensions", "--no-skills", "--no-prompt-templates", "--no-themes"]
    # Older ones do not know it, and read the AGENTS.md of the working directory.
    if not version or parse_version(version) >= NO_CONTEXT_FILES:
        options.append("--no-context-files")
    return [*options, "--offline"]


def parse_version(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, for comparisons."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _read_package(program: str) -> tuple[str, str] | None:
    """Return the version and the required Node of the package that a program is part of."""
    for folder in Path(program).resolve().parents:
        manifest = folder / "package.json"
        if manifest.is_file():
            package = msgspec.json.decode(manifest.read_bytes(), type=dict[str, Any])
            if package.get("name") not in PACKAGES:
                return None
            return str(package.get("version")), str(package.get("engines", {}).get("node", ""))
    return None


async def _ask(program: str, env: Mapping[str, str]) -> str:
    """Return the first line that a program prints for `--version`."""
    result = await run_process(
        [program, "--version"], cwd=Path(env["HOME"]), env=env, deadline=DEADLINE
    )
    return (result.stdout or result.stderr).strip().partition("\n")[0]


async def _check_node(version: str, engine: str, env: Mapping[str, str]) -> None:
    """Raise a UsageError if the Node on the PATH is older than pi requires."""
    required = [int(number) for number in re.findall(r"\d+", engine)[:2]]
    node = shutil.which("node", path=env.get("PATH"))
    if node is None:
        raise UsageError(f"pi {version} needs Node, and there is no 'node' on the PATH")
    if not required or required[0] <= OLDEST_NODE:
        return
    # Once for all tests of a process: starting Node takes a tenth of the time of pi.
    found = _node_versions[node] = _node_versions.get(node) or await _ask(node, env)
    if [int(number) for number in re.findall(r"\d+", found)[:2]] < required:
        raise UsageError(
            f"pi {version} needs Node {engine}, found {found}",
            where=node,
            hint="install a newer Node, or put its folder first on the PATH",
        )


# ------------------------------------------------------------------------------ channel
# The channel between a test and the witness that runs inside pi.
#
# The witness (`witness.js`) connects to a Unix socket in pi's home directory and asks questions,
# one JSON object a line. Each is answered in the order in which it arrives; mocks run concurrently.

CHANNEL_VARIABLE = "OFFBOOK_PI_CHANNEL"
MAX_PATH_LENGTH = 100  # of a Unix socket: 104 bytes on macOS, 108 on Linux, with the zero
LINE_LIMIT = 64 * 1024 * 1024  # one line has all new tool results of a turn

Handler = Callable[[str, dict[str, Any]], Awaitable[Any]]


class PiChannel:
    """A Unix socket on which the witness asks; `handler` returns the answer to a question."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._folder: Path | None = None

    async def open(self, folder: Path) -> Path:
        """Listen in this folder, or in one of /tmp if its path is too long; return the path."""
        path = folder / "channel"
        if len(os.fsencode(path)) > MAX_PATH_LENGTH:
            self._folder = Path(tempfile.mkdtemp(prefix="offbook-pi-", dir="/tmp"))
            path = self._folder / "channel"
        self._server = await asyncio.start_unix_server(self._serve, path, limit=LINE_LIMIT)
        return path

    async def close(self) -> None:
        """Stop listening; questions that are not answered yet are dropped."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        if connection is not None:
            self._tasks.add(connection)
            connection.add_done_callback(self._tasks.discard)
        try:
            while line := await reader.readline():
                question = msgspec.json.decode(line, type=dict[str, Any])
                number, kind = question.pop("id"), question.pop("type")
                if kind != "mock":
                    await self._answer(writer, number, kind, question)
                    continue
                # Calls of one message run concurrently, and so do their mocks.
                task = asyncio.create_task(self._answer(writer, number, kind, question))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except (ConnectionError, asyncio.CancelledError):
            pass  # pi has ended, or the test has
        finally:
            writer.close()

    async def _answer(
        self, writer: asyncio.StreamWriter, number: int, kind: str, question: dict[str, Any]
    ) -> None:
        try:
            answer: dict[str, Any] = {"id": number, "value": await self._handler(kind, question)}
        except Exception as error:  # noqa: BLE001 - the handler keeps it for the test, too
            answer = {"id": number, "error": str(error)}
        with contextlib.suppress(ConnectionError):
            writer.write(msgspec.json.encode(answer) + b"\n")
            await writer.drain()


# ------------------------------------------------------------------------------ process

DIALOGS = {"confirm", "select", "input", "editor"}
LOOP_ENDS = {"agent_end", "agent_settled"}
CLOSE_GRACE = 2.0  # seconds for the extensions' own shutdown hooks
# Seconds between two questions whether pi is idle, and how often it has to be.
FIRST_PAUSE, LAST_PAUSE, IDLE_TIMES = 0.02, 0.5, 2
PREPARING = 0.3  # seconds that an extension may take between its prompt and the start of the agent
ABORT_TIME = 2.0
LOAD_FAILURE = "Failed to load extension"


class PiProcess:
    """One process of pi, for one session after another."""

    def __init__(self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> None:
        self._command = command
        self._cwd = cwd
        self._env = env
        self._stdin = StandardInput()
        self._rest = b""
        self._stderr = OutputEnd()
        self._count = 0
        self._responses: dict[str, asyncio.Future[Any]] = {}
        self._loop_ended = asyncio.Event()
        self._task: asyncio.Task[ProcessResult] | None = None
        self._dialogs: set[asyncio.Task[None]] = set()
        self.run: PiRun | None = None
        self.messages: list[dict[str, Any]] = []  # of the assistant, since the last prompt
        self.extension_errors: list[dict[str, Any]] = []
        self._failure: asyncio.Future[Any] | None = None

    # --- Start and end

    async def start(self, deadline: float) -> None:
        """Start pi and wait until it has loaded its extensions."""
        self._task = asyncio.create_task(
            converse(
                self._command, cwd=self._cwd, env=self._env, stdin=self._stdin, watch=self._receive
            )
        )
        await self.within(deadline, self.request("get_state"))

    @property
    def running(self) -> bool:
        """True until the process has ended."""
        return self._task is not None and not self._task.done()

    async def close(self) -> None:
        """Let pi shut down, and kill what is left of it."""
        if self._task is not None:
            self._stdin.close()
            await asyncio.wait([self._task], timeout=CLOSE_GRACE)
        await self.kill()

    async def kill(self) -> None:
        """Kill pi and its children at once."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        for dialog in self._dialogs:
            dialog.cancel()
        await asyncio.gather(task, *self._dialogs, return_exceptions=True)

    def take_errors(self) -> list[dict[str, Any]]:
        """Return the exceptions of extensions since the last call."""
        errors, self.extension_errors = self.extension_errors, []
        return errors

    def fail(self, error: BaseException) -> None:
        """End what is running by an error of the test, such as an exception of a mock."""
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()  # it is raised by what is running, if anything is

    async def within(self, deadline: float, work: Any) -> Any:
        """Wait for a coroutine; at the deadline, kill pi and its children."""
        self._failure = asyncio.get_running_loop().create_future()
        try:
            return await asyncio.wait_for(work, deadline)
        except TimeoutError:
            await self.kill()
            raise DeadlineExceeded(
                f"pi was still running after {deadline:g} s and was killed",
                hint=self._stderr.last_lines()
                or "an extension may wait; allow more time with deadline=…",
            ) from None
        except asyncio.CancelledError:
            await self.kill()
            raise
        except BaseException:
            self._failure = None
            await self._abort()
            raise

    async def _abort(self) -> None:
        """Stop the agent, so that the next prompt finds it idle; kill pi if it does not stop."""
        try:
            async with asyncio.timeout(ABORT_TIME):
                await self.request("abort")
                await self._wait_until_idle()
        except (TimeoutError, RunError):
            await self.kill()

    # --- Commands

    async def request(self, kind: str, **fields: Any) -> Any:
        """Send a command; return the data of its response."""
        self._count += 1
        number = f"offbook-{self._count}"
        response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._responses[number] = response
        self._write({"id": number, "type": kind, **fields})
        await self._first_of(response)
        return response.result()

    async def extension_commands(self) -> set[str]:
        """Return the names of the commands that extensions registered."""
        answer = await self.request("get_commands")
        commands = answer["commands"]
        return {command["name"] for command in commands if command.get("source") == "extension"}

    async def prompt(self, text: str) -> None:
        """Send a prompt and wait until pi is idle again."""
        self.messages.clear()
        self._loop_ended.clear()
        await self.request("prompt", message=text)
        await self._wait_until_idle()

    async def _wait_until_idle(self) -> None:
        idle, pause = 0, FIRST_PAUSE
        # Twice, because an extension may prompt pi itself when the agent loop ends.
        while idle < IDLE_TIMES:
            state = await self.request("get_state")
            preparing = self.run is not None and self.run.preparing
            # pi calls itself idle before its extensions have seen the end of the agent.
            working = self.run is not None and self.run.working
            streaming = state["isStreaming"] or state["isCompacting"]
            busy = working or streaming or state["pendingMessageCount"]
            if not busy and not preparing:
                idle += 1
                continue
            idle = 0
            if preparing and not busy and pause > PREPARING and self.run is not None:
                self.run.preparing = False  # an extension has handled the prompt: no agent starts
            pause = FIRST_PAUSE if await self._loop_ends(pause) else min(pause * 2, LAST_PAUSE)

    async def _loop_ends(self, seconds: float) -> bool:
        """Wait for the end of the agent loop; return False if it did not end in time."""
        waiting = asyncio.ensure_future(self._loop_ended.wait())
        timer = asyncio.get_running_loop().call_later(seconds, waiting.cancel)
        try:
            await self._first_of(waiting)
        finally:
            timer.cancel()
        ended = not waiting.cancelled()
        self._loop_ended.clear()
        return ended

    async def _first_of(self, work: asyncio.Future[Any]) -> None:
        """Wait for this, for an error of the test, or for the end of pi."""
        task, failure = self._task, self._failure
        if task is None:
            raise RunError("pi has ended")
        others = [task, *([] if failure is None else [failure])]
        await asyncio.wait([work, *others], return_when=asyncio.FIRST_COMPLETED)
        if failure is not None and failure.done():
            work.cancel()
            failure.result()
        if not work.done():
            work.cancel()
            raise self._exit_error(task.result())

    def _exit_error(self, result: ProcessResult) -> RunError | ExtensionError:
        """Return the error for an early end of pi."""
        lines = self._stderr.last_lines()
        if LOAD_FAILURE in lines:
            return ExtensionError("pi cannot load an extension", hint=lines)
        return RunError(
            f"pi {describe_exit(result.code) if result.code else 'exited'}",
            hint=lines or "no output",
        )

    # --- Output

    def _write(self, message: dict[str, Any]) -> None:
        self._stdin.write(msgspec.json.encode(message) + b"\n")

    def _receive(self, stream: str, data: bytes) -> None:
        if stream == "stderr":
            self._stderr.add(data)
            return
        # Only LF ends a line: U+2028 may be part of a text.
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"{"):
                self._handle(msgspec.json.decode(line))

    def _handle(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        if kind == "response":
            future = self._responses.pop(message.get("id", ""), None)
            if future is None or future.done():
                return
            if message["success"]:
                future.set_result(message.get("data"))
            else:
                command, error = message.get("command"), message.get("error")
                future.set_exception(RunError(f"pi refused the command {command!r}: {error}"))
        elif kind == "extension_ui_request" and message["method"] in DIALOGS:
            task = asyncio.get_running_loop().create_task(self._answer_dialog(message))
            self._dialogs.add(task)
            task.add_done_callback(self._dialogs.discard)
        elif kind == "message_end" and message["message"].get("role") == "assistant":
            self.messages.append(message["message"])
        elif kind == "extension_error":
            self.extension_errors.append(message)
        elif kind in LOOP_ENDS:
            self._loop_ended.set()

    async def _answer_dialog(self, request: dict[str, Any]) -> None:
        """Answer a dialog. An answer that no user could give fails the run."""
        if self.run is None:
            answer: dict[str, Any] = {"cancelled": True}
        else:
            try:
                answer = await self.run.answer_dialog(request)
            except Exception:  # noqa: BLE001 - the run has it
                answer = {"cancelled": True}
        self._write({"type": "extension_ui_response", "id": request["id"], **answer})


# --------------------------------------------------------------------------------- warm
# Warm processes of pi: started once, and used by one test after another.
#
# A test has its own event loop, which ends with it. A warm process lives in a thread with an event
# loop of its own, until this Python process exits. Each test gets a new session in its own working
# directory. The factories of the extensions run again; whether the state of their modules is kept
# depends on the version of pi.

T = TypeVar("T")
SESSION_VERSION = 3  # of pi's session files
CLOSE_TIME = 5.0
_hosts: dict[Hashable, list[WarmHost]] = {}
_closes_at_exit = False


class WarmHost:
    """One warm process, with its home and its channel. `handler` answers the current test."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.process: PiProcess | None = None
        self.handler: Handler | None = None
        self._channel: PiChannel | None = None
        self._thread = LoopThread()

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop of this process, from the loop of a test."""
        return await asyncio.wrap_future(self._thread.run(work))

    async def start(
        self, command: Sequence[str], env: Mapping[str, str], witness: Path, deadline: float
    ) -> None:
        """Start pi."""
        self._channel = PiChannel(self._answer)
        channel = await self._channel.open(witness)
        self.process = PiProcess(
            command, cwd=self.home, env={**env, CHANNEL_VARIABLE: str(channel)}
        )
        await self.process.start(deadline)

    async def new_session(self, cwd: Path) -> None:
        """Replace the session by a new one in this working directory."""
        header = {
            "type": "session",
            "version": SESSION_VERSION,
            "id": str(uuid4()),
            "timestamp": "2000-01-01T00:00:00.000Z",
            "cwd": str(cwd),
        }
        path = self.home / f"session-{header['id']}.jsonl"
        path.write_bytes(msgspec.json.encode(header) + b"\n")
        if self.process is not None:
            await self.process.request("switch_session", sessionPath=str(path))

    async def _answer(self, kind: str, question: dict[str, Any]) -> Any:
        return None if self.handler is None else await self.handler(kind, question)

    def close(self) -> None:
        """End pi and the thread, and delete the home."""

        async def end() -> None:
            if self.process is not None:
                await self.process.close()
            if self._channel is not None:
                await self._channel.close()

        try:
            self._thread.run(end()).result(CLOSE_TIME)
        finally:
            self._thread.close(CLOSE_TIME)
            shutil.rmtree(self.home, ignore_errors=True)


def find_host(key: Hashable) -> WarmHost | None:
    """Return a warm process with these options that runs and that no other rehearsal uses."""
    for host in [*_hosts.get(key, ())]:
        if host.process is None or not host.process.running or not host.home.is_dir():
            _hosts[key].remove(host)
            host.close()
        elif host.handler is None:
            return host
    return None


def keep_host(key: Hashable, host: WarmHost) -> None:
    """Keep a process for later tests."""
    global _closes_at_exit  # noqa: PLW0603 - once in a process
    if not _closes_at_exit:
        atexit.register(close_hosts)
        _closes_at_exit = True
    _hosts.setdefault(key, []).append(host)


def close_hosts() -> None:
    """End all warm processes of pi."""
    while _hosts:
        for host in _hosts.popitem()[1]:
            host.close()
