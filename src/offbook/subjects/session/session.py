"""The agent session: a real loop of model and tools, small enough to read in one sitting."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from offbook.errors import ModelError, RunError, ToolFailed, UsageError, nearest
from offbook.exchange.history import History
from offbook.exchange.messages import JSON, Message, Text, ToolCall, ToolResult, user
from offbook.exchange.names import Name, Names
from offbook.exchange.request import Request
from offbook.subjects.session import builtin
from offbook.subjects.session.context import Context
from offbook.subjects.session.extensions import Command, Factory, install, release
from offbook.subjects.session.hooks import Hooks, Moment
from offbook.subjects.session.options import (
    MINIMAL,
    Skill,
    compose_system,
    read_list,
    read_mapping,
    read_settings,
)
from offbook.subjects.session.outcome import Outcome, outcome
from offbook.subjects.session.tools import Registered, Tools, describe_raise
from offbook.subjects.session.ui import UI, check_answers
from offbook.trace.events import (
    AGENT_END,
    AGENT_ERROR,
    AGENT_START,
    TOOL_BLOCKED,
    TOOL_CALL,
    TOOL_RESULT,
)
from offbook.trace.observe import describe_error, describe_result
from offbook.trace.verdicts import Verdict

if TYPE_CHECKING:
    from offbook.exchange.reply import Reply
    from offbook.subjects.subject import Reach, Stage

RETRYABLE = {408, 429, 500, 502, 503, 504, 529}


class AgentSession:
    """A real agent: it asks the model, runs the tools that it calls, and lets hooks look in.

    It is a `Subject`; the model is whatever source its stage has.
    """

    name = "session"
    reach: Reach = "call"
    tells = True
    names: ClassVar[Names] = {"shell": Name("bash")}

    def __init__(
        self,
        *,
        extensions: Iterable[object] = (),
        mock_tools: Mapping[str, Any] | None = None,
        mock_ui: Mapping[str, Any] | None = None,
        system_prompt: str = MINIMAL,
        skills: Iterable[Skill | Mapping[str, Any]] = (),
        settings: Mapping[str, Any] | None = None,
        mock_extension_tools: bool = False,
        propagate_errors: bool = True,
    ) -> None:
        self._extensions = read_list(extensions, "extensions")
        self._mock_ui = check_answers(read_mapping(mock_ui, "mock_ui"))
        mocks = read_mapping(mock_tools, "mock_tools")
        self._tools = Tools(mocks, mock_extensions=mock_extension_tools)
        self._hooks = Hooks()
        self._commands: dict[str, Command] = {}
        self._system = compose_system(system_prompt, skills)
        self._raw = read_mapping(settings, "settings")
        self._settings = read_settings(self._raw)
        self._propagate = propagate_errors
        self._history = History()
        self._factories: list[Factory] = []
        self._started = False
        self.extensions: list[str] = []

    @property
    def messages(self) -> History:
        """The conversation so far."""
        return self._history

    def tools(self) -> set[str]:
        """The names of all its tools."""
        return self._tools.names()

    def commands(self) -> set[str]:
        """The names of all its commands, without their slash."""
        return set(self._commands)

    def verdicts(self) -> list[Verdict]:
        """What it has to say at its end: which mocks nobody used."""
        unused = self._tools.unused()
        if not unused:
            return []
        names = ", ".join(
            f"{name} (the tool of {owner} runs; mock_extension_tools=True mocks it)"
            if owner
            else name
            for name, owner in unused.items()
        )
        message = f"never used: mock_tools {names}"
        return [Verdict("mocks used", "warn", message, actual=list(unused))]

    async def open(self, stage: Stage, /) -> None:
        """Load the extensions and start the session."""
        self._source = stage.source
        self._told = stage.told
        self._hub = stage.hub
        ui = UI(self._mock_ui, stage.hub)
        self._context = Context(stage.cwd, ui, self._raw, stage.source)
        builtin.install(self._tools)
        for spec in self._extensions:
            name, factory = await install(spec, self._tools, self._hooks, self._commands)
            self._factories.append(factory)
            self.extensions.append(name)
            self._hub.emit("session.extension", {"extension": name})
        self._started = True
        await self._tell(Moment("session_start"))

    async def close(self) -> None:
        """Let the extensions know that it is over."""
        try:
            if self._started:
                await self._tell(Moment("session_shutdown"))
        finally:
            for factory in self._factories:
                release(factory)
            self._factories.clear()

    async def prompt(self, text: str, /) -> None:
        """Give the agent a prompt or a command, and wait until it has nothing more to do."""
        command, _, args = text.removeprefix("/").partition(" ")
        if text.startswith("/") and command in self._commands:
            await self._run_command(command, args)
            return
        self._history = self._history.plus(user(text))
        self._hub.emit(AGENT_START, {"prompt": text})
        await self._tell(Moment("agent_start", prompt=text))
        stop = "stop"
        while True:
            await self._tell(Moment("turn_start"))
            reply = await self._ask_model()
            if reply is None:
                stop = "error"
                break
            self._history = self._history.plus(reply.message)
            calls = reply.calls
            if calls:
                results = await self._run_calls(calls, reply)
                self._history = self._history.plus(*(Message("tool", (r,)) for r in results))
            await self._tell(Moment("turn_end"))
            if not calls:
                stop = reply.stop
                break
        await self._tell(Moment("agent_end"))
        self._hub.emit(AGENT_END, {"stop": stop})

    async def _run_command(self, name: str, args: str) -> None:
        self._hub.emit("session.command", {"command": name, "args": args})
        try:
            answer = self._commands[name](args, self._context)
            if isawaitable(answer):
                await answer
        except Exception as error:  # noqa: BLE001 - whatever an extension raises
            self._complain(f"the command /{name} raised {describe_raise(error)}", error)

    async def _ask_model(self) -> Reply | None:
        """The model's reply; None when the provider failed and went on failing."""
        settings = self._settings
        request = Request(
            self._history, self._system, self._tools.offered(), settings.model, settings.parameters
        )
        for left in range(settings.retries, -1, -1):
            try:
                return await self._source.reply(request)
            except ModelError as error:
                if not left or error.status not in RETRYABLE:
                    self._hub.emit(AGENT_ERROR, describe_error(error))
                    return None
        return None

    async def _run_calls(self, calls: tuple[ToolCall, ...], reply: Reply) -> list[ToolResult]:
        """Run the calls at the same time; their results keep the order of the calls."""
        if len(calls) == 1:
            outcome_, mocked = await self._run_call(calls[0], reply.step)
            return [self._finish(calls[0], outcome_, reply.step, mocked=mocked)]
        tasks = [asyncio.ensure_future(self._run_call(call, reply.step)) for call in calls]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:  # one that failed, or a run that was cancelled, ends them all
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        results: list[ToolResult] = []
        failures: list[BaseException] = []
        for call, task in zip(calls, tasks, strict=True):
            if task.cancelled():
                continue
            failure = task.exception()
            if failure is not None:
                failures.append(failure)
                continue
            outcome_, mocked = task.result()
            results.append(self._finish(call, outcome_, reply.step, mocked=mocked))
        if failures:
            for other in failures[1:]:
                failures[0].add_note(f"at the same time: {describe_raise(other)}")
            raise failures[0]
        return results

    async def _run_call(self, call: ToolCall, step: int) -> tuple[Outcome, bool]:
        """Check, ask the hooks, run, ask the hooks again; and whether a mock answered."""
        told = self._told(call)
        about: JSON = {"call_id": call.id, "tool": told.name, "input": told.arguments, "step": step}
        self._hub.emit(TOOL_CALL, about)
        found = self._tools.find(call.name)
        if found is None:
            known = nearest(call.name, self._tools.names())
            return _wrong(f"Tool {call.name} not found: {known}"), False
        wrong = found.validator(call.arguments)
        if wrong:
            return _wrong(f"Validation failed for tool {call.name!r}: {wrong}"), found.mocked
        params = copy_json(call.arguments)  # whoever changes them changes nobody else's
        if "tool_call" in self._hooks:
            moment = Moment("tool_call", tool=call.name, call_id=call.id, input=params)
            reason = await self._ask_hooks(moment, step)
            if isinstance(reason, Outcome):
                return reason, False
            if reason is not None:
                about = {"call_id": call.id, "tool": told.name, "reason": reason, "step": step}
                self._hub.emit(TOOL_BLOCKED, about)
                return _wrong(reason), False
            params = moment.input
            if params != call.arguments:
                about = {"call_id": call.id, "tool": told.name, "input": params, "step": step}
                self._hub.emit("hook.tool_call", about)
                wrong = found.validator(params)
                if wrong:
                    why = f"Validation failed for tool {call.name!r}: {wrong}"
                    return _wrong(why), found.mocked
        result = await self._execute(found, params, step)
        if "tool_result" in self._hooks:
            result = await self._edit_result(call, params, result, step)
        return result, found.mocked

    async def _ask_hooks(self, moment: Moment, step: int) -> str | Outcome | None:
        try:
            return await self._hooks.ask_call(moment, self._context)
        except Exception as error:  # noqa: BLE001 - whatever an extension raises
            why = f"a tool_call hook raised {describe_raise(error)}"
            self._complain(f"{why} at playbook step {step} (call {moment.tool!r})", error, step)
            return _wrong(why)

    async def _edit_result(
        self, call: ToolCall, params: JSON, result: Outcome, step: int
    ) -> Outcome:
        moment = Moment("tool_result", tool=call.name, call_id=call.id, input=params, result=result)
        try:
            return await self._hooks.ask_result(moment, self._context)
        except Exception as error:  # noqa: BLE001 - whatever an extension raises
            why = f"a tool_result hook raised {describe_raise(error)}"
            self._complain(f"{why} at playbook step {step} (call {call.name!r})", error, step)
            return _wrong(why)

    async def _execute(self, found: Registered, params: JSON, step: int) -> Outcome:
        try:
            answer = found.execute(params, self._context)
            if isawaitable(answer):
                answer = await answer
            return outcome(answer, f"tool {found.tool.name!r}")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an extension raises
            why = describe_raise(error)
            self._complain(
                f"Error during tool execution at playbook step {step} "
                f"(call {found.tool.name!r}): {why}",
                error,
                step,
            )
            return _wrong(why)

    def _finish(self, call: ToolCall, outcome_: Outcome, step: int, *, mocked: bool) -> ToolResult:
        result = ToolResult(
            call.id, outcome_.content, outcome_.is_error, call.name, outcome_.details
        )
        tool = self._told(call).name
        told = describe_result(result, tool=tool, step=step, mocked=mocked)
        self._hub.emit(TOOL_RESULT, told)
        return result

    async def _tell(self, moment: Moment) -> None:
        if moment.name not in self._hooks:
            return
        self._hub.emit(f"hook.{moment.name}")
        try:
            await self._hooks.tell(moment, self._context)
        except Exception as error:  # noqa: BLE001 - whatever an extension raises
            self._complain(f"a {moment.name} hook raised {describe_raise(error)}", error)

    def _complain(self, what: str, error: BaseException, step: int = 0) -> None:
        """Fail the run with what an extension raised, or go on with it in the trace."""
        self._hub.emit("session.error", {"error": what, "step": step} if step else {"error": what})
        if not self._propagate:
            return
        if isinstance(error, (RunError, UsageError)):  # those speak for themselves
            error.add_note(what)
            raise error
        raise ToolFailed(
            what, hint="fix the extension, or pass propagate_errors=False to see its error result"
        ) from error


def copy_json(value: Any) -> Any:
    """A copy that shares no list or dict with its original."""
    if isinstance(value, dict):
        return {key: copy_json(item) for key, item in cast("JSON", value).items()}
    if isinstance(value, list):
        return [copy_json(item) for item in cast("list[Any]", value)]
    return value


def _wrong(text: str) -> Outcome:
    return Outcome((Text(text),), None, is_error=True)
