"""The process `pi --mode rpc`: commands on its standard input, events on its standard output.

Every command gets a response with its id. Dialogs of extensions arrive as requests and are
answered by the test. A prompt has ended when pi is idle: its agent loop has ended, nothing is
queued, and no extension is about to prompt pi itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import DeadlineExceeded, ExtensionError, RunError
from offbook.secrets import excerpt, outgoing
from offbook.subjects.process import ProcessResult, StandardInput, converse, describe_exit

if TYPE_CHECKING:
    from offbook.subjects.clis.pi.pi_run import PiRun

DIALOGS = {"confirm", "select", "input", "editor"}
LOOP_ENDS = {"agent_end", "agent_settled"}
CLOSE_GRACE = 2.0  # seconds for the extensions' own shutdown hooks
# Seconds between two questions whether pi is idle, and how often it has to be.
FIRST_PAUSE, LAST_PAUSE, IDLE_TIMES = 0.02, 0.5, 2
PREPARING = 0.3  # seconds that an extension may take between its prompt and the start of the agent
ABORT_TIME = 2.0
LOAD_FAILURE = "Failed to load extension"
SHOWN_LINES = 12


class PiProcess:
    """One process of pi, for one session after another."""

    def __init__(self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> None:
        self._command = command
        self._cwd = cwd
        self._env = env
        self._stdin = StandardInput()
        self._rest = b""
        self._stderr = b""
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

    async def close(self) -> ProcessResult | None:
        """Let pi shut down, and kill what is left of it."""
        task, self._task = self._task, None
        if task is None:
            return None
        self._stdin.close()
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(task), CLOSE_GRACE)
        return await self._kill(task)

    async def kill(self) -> None:
        """Kill pi and its children at once."""
        task, self._task = self._task, None
        if task is not None:
            await self._kill(task)

    async def _kill(self, task: asyncio.Task[ProcessResult]) -> None:
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
                hint=self._last_lines() or "an extension may wait; allow more time with deadline=…",
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
        lines = self._last_lines()
        if LOAD_FAILURE in lines:
            return ExtensionError("pi cannot load an extension", hint=lines)
        return RunError(
            f"pi {describe_exit(result.code) if result.code else 'exited'}",
            hint=lines or "no output",
        )

    def _last_lines(self) -> str:
        lines = outgoing(self._stderr.decode("utf-8", "replace").strip()).split("\n")
        return "\n".join(f"  {excerpt(line, 300)}" for line in lines[-SHOWN_LINES:] if line)

    # --- Output

    def _write(self, message: dict[str, Any]) -> None:
        self._stdin.write(msgspec.json.encode(message) + b"\n")

    def _receive(self, stream: str, data: bytes) -> None:
        if stream == "stderr":
            self._stderr = (self._stderr + data)[-16_384:]
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
