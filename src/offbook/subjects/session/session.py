"""What a session is given: checked, so that a wrong one is told before anything runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec

from offbook.errors import ModelError, RunError, ToolFailed, UsageError, did_you_mean
from offbook.exchange.messages import JSON, History, Message, Text, ToolCall, ToolResult, user
from offbook.exchange.model import Request
from offbook.exchange.tool_aliases import ToolAlias, ToolAliases
from offbook.subjects.session import builtin_tools
from offbook.subjects.session.extensions import (
    CommandHandler,
    ExtensionFactory,
    install_extension,
    unload_extension,
)
from offbook.subjects.session.hooks import Context, HookEvent, Hooks
from offbook.subjects.session.tools import (
    RegisteredTool,
    ToolOutcome,
    ToolRegistry,
    describe_exception,
    to_tool_outcome,
)
from offbook.subjects.session.ui import UI, validate_mock_ui
from offbook.trace.events import (
    AGENT_END,
    AGENT_ERROR,
    AGENT_START,
    TOOL_BLOCKED,
    TOOL_CALL,
    TOOL_RESULT,
    Verdict,
)
from offbook.trace.instrument import error_data, tool_result_data

if TYPE_CHECKING:
    from offbook.exchange.model import Reply
    from offbook.subjects.subject import ModelAccess, RunContext


# --- What a session is given: checked, so that a wrong one is told before anything runs.

DEFAULT_SYSTEM_PROMPT = "You are an agent. Use the tools that you are given."
MISSPELT = 0.65  # extensions have settings of their own: only what is nearly ours is refused


class Skill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that the agent can read up on; it stands in the system prompt."""

    name: str
    description: str = ""
    content: str = ""


class SessionSettings(msgspec.Struct, frozen=True):
    """What the session itself reads of the settings; extensions find all of them in `ctx`."""

    model: str = "offbook/playbook"
    parameters: JSON = {}
    retries: int = 0


def require_list(value: object, name: str) -> list[object]:
    """A list that somebody gave, or what is wrong with it."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        kind = type(cast("object", value)).__name__
        raise UsageError(f"{name} is a list, not {kind}", hint=f"write {name}=[…]")
    return list(cast("Iterable[object]", value))


def require_mapping(value: object, name: str) -> Mapping[str, Any]:
    """A dict that somebody gave, or what is wrong with it."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(
            f"{name} is a dict, not {type(value).__name__}", hint=f'write {name}={{"name": …}}'
        )
    return cast("Mapping[str, Any]", value)


def read_settings(raw: Mapping[str, Any]) -> SessionSettings:
    """Our part of the settings; one that is nearly called like ours is refused."""
    known = SessionSettings.__struct_fields__
    for key in raw:
        if not isinstance(key, str):
            raise UsageError(f"settings has the key {key!r}", hint="settings are named by strings")
        if key not in known and get_close_matches(key, known, n=1, cutoff=MISSPELT):
            raise UsageError(f"settings has no {key!r}", hint=did_you_mean(key, known))
    try:
        return msgspec.convert({k: v for k, v in raw.items() if k in known}, SessionSettings)
    except msgspec.ValidationError as error:
        raise UsageError(f"settings: {error}") from error


def compose_system(system: str, skills: Iterable[Skill | Mapping[str, Any]]) -> str:
    """The system prompt, with the skills in it."""
    if not isinstance(system, str):
        raise UsageError(f"system_prompt is a string, not {type(system).__name__}")
    parts = [system]
    for skill in require_list(skills, "skills"):
        try:
            read = skill if isinstance(skill, Skill) else msgspec.convert(skill, Skill)
        except msgspec.ValidationError as error:
            hint = "give Skill(name, description, content)"
            raise UsageError(f"skills: {error}", hint=hint) from error
        about = f"# Skill {read.name}\n{read.description}\n{read.content}"
        parts.append(about.rstrip())
    return "\n\n".join(parts)


# --- The agent session: a real loop of model and tools, small enough to read in one sitting.

RETRYABLE = {408, 429, 500, 502, 503, 504, 529}


class AgentSession:
    """A real agent: it asks the model, runs the tools that it calls, and lets hooks look in.

    It is a `Subject`; the model is whatever source its stage has.
    """

    name = "session"
    model_access: ModelAccess = "call"
    emits_tool_calls = True
    tool_aliases: ClassVar[ToolAliases] = {"shell": ToolAlias("bash")}

    def __init__(
        self,
        *,
        extensions: Iterable[object] = (),
        mock_tools: Mapping[str, Any] | None = None,
        mock_ui: Mapping[str, Any] | None = None,
        system_prompt: str = DEFAULT_SYSTEM_PROMPT,
        skills: Iterable[Skill | Mapping[str, Any]] = (),
        settings: Mapping[str, Any] | None = None,
        mock_extension_tools: bool = False,
        propagate_errors: bool = True,
    ) -> None:
        self._extensions = require_list(extensions, "extensions")
        self._mock_ui = validate_mock_ui(require_mapping(mock_ui, "mock_ui"))
        mocks = require_mapping(mock_tools, "mock_tools")
        self._tools = ToolRegistry(mocks, mock_extensions=mock_extension_tools)
        self._hooks = Hooks()
        self._commands: dict[str, CommandHandler] = {}
        self._system = compose_system(system_prompt, skills)
        self._raw = require_mapping(settings, "settings")
        self._settings = read_settings(self._raw)
        self._propagate = propagate_errors
        self._history = History()
        self._factories: list[ExtensionFactory] = []
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

    async def open(self, stage: RunContext, /) -> None:
        """Load the extensions and start the session."""
        self._source = stage.source
        self._told = stage.to_script_call
        self._hub = stage.hub
        ui = UI(self._mock_ui, stage.hub)
        self._context = Context(stage.cwd, ui, self._raw, stage.source)
        builtin_tools.install_builtin_tools(self._tools)
        for spec in self._extensions:
            name, factory = await install_extension(spec, self._tools, self._hooks, self._commands)
            self._factories.append(factory)
            self.extensions.append(name)
            self._hub.emit("session.extension", {"extension": name})
        self._started = True
        await self._tell(HookEvent("session_start"))

    async def close(self) -> None:
        """Let the extensions know that it is over."""
        try:
            if self._started:
                await self._tell(HookEvent("session_shutdown"))
        finally:
            for factory in self._factories:
                unload_extension(factory)
            self._factories.clear()

    async def prompt(self, text: str, /) -> None:
        """Give the agent a prompt or a command, and wait until it has nothing more to do."""
        command, _, args = text.removeprefix("/").partition(" ")
        if text.startswith("/") and command in self._commands:
            await self._run_command(command, args)
            return
        self._history = self._history.plus(user(text))
        self._hub.emit(AGENT_START, {"prompt": text})
        await self._tell(HookEvent("agent_start", prompt=text))
        stop = "stop"
        while True:
            await self._tell(HookEvent("turn_start"))
            reply = await self._ask_model()
            if reply is None:
                stop = "error"
                break
            self._history = self._history.plus(reply.message)
            calls = reply.calls
            if calls:
                results = await self._run_calls(calls, reply)
                self._history = self._history.plus(*(Message("tool", (r,)) for r in results))
            await self._tell(HookEvent("turn_end"))
            if not calls:
                stop = reply.stop
                break
        await self._tell(HookEvent("agent_end"))
        self._hub.emit(AGENT_END, {"stop": stop})

    async def _run_command(self, name: str, args: str) -> None:
        self._hub.emit("session.command", {"command": name, "args": args})
        try:
            answer = self._commands[name](args, self._context)
            if isawaitable(answer):
                await answer
        except Exception as error:  # noqa: BLE001 - whatever an extension raises
            self._complain(f"the command /{name} raised {describe_exception(error)}", error)

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
                    self._hub.emit(AGENT_ERROR, error_data(error))
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
                failures[0].add_note(f"at the same time: {describe_exception(other)}")
            raise failures[0]
        return results

    async def _run_call(self, call: ToolCall, step: int) -> tuple[ToolOutcome, bool]:
        """Check, ask the hooks, run, ask the hooks again; and whether a mock answered."""
        told = self._told(call)
        about: JSON = {"call_id": call.id, "tool": told.name, "input": told.arguments, "step": step}
        self._hub.emit(TOOL_CALL, about)
        found = self._tools.find(call.name)
        if found is None:
            known = did_you_mean(call.name, self._tools.names())
            return _wrong(f"Tool {call.name} not found: {known}"), False
        wrong = found.validator(call.arguments)
        if wrong:
            return _wrong(f"Validation failed for tool {call.name!r}: {wrong}"), found.mocked
        params = copy_json(call.arguments)  # whoever changes them changes nobody else's
        if "tool_call" in self._hooks:
            moment = HookEvent("tool_call", tool=call.name, call_id=call.id, input=params)
            reason = await self._ask_hooks(moment, step)
            if isinstance(reason, ToolOutcome):
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

    async def _ask_hooks(self, moment: HookEvent, step: int) -> str | ToolOutcome | None:
        try:
            return await self._hooks.ask_call(moment, self._context)
        except Exception as error:  # noqa: BLE001 - whatever an extension raises
            why = f"a tool_call hook raised {describe_exception(error)}"
            self._complain(f"{why} at playbook step {step} (call {moment.tool!r})", error, step)
            return _wrong(why)

    async def _edit_result(
        self, call: ToolCall, params: JSON, result: ToolOutcome, step: int
    ) -> ToolOutcome:
        moment = HookEvent(
            "tool_result", tool=call.name, call_id=call.id, input=params, result=result
        )
        try:
            return await self._hooks.ask_result(moment, self._context)
        except Exception as error:  # noqa: BLE001 - whatever an extension raises
            why = f"a tool_result hook raised {describe_exception(error)}"
            self._complain(f"{why} at playbook step {step} (call {call.name!r})", error, step)
            return _wrong(why)

    async def _execute(self, found: RegisteredTool, params: JSON, step: int) -> ToolOutcome:
        try:
            answer = found.execute(params, self._context)
            if isawaitable(answer):
                answer = await answer
            return to_tool_outcome(answer, f"tool {found.tool.name!r}")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an extension raises
            why = describe_exception(error)
            self._complain(
                f"Error during tool execution at playbook step {step} "
                f"(call {found.tool.name!r}): {why}",
                error,
                step,
            )
            return _wrong(why)

    def _finish(
        self, call: ToolCall, outcome_: ToolOutcome, step: int, *, mocked: bool
    ) -> ToolResult:
        result = ToolResult(
            call.id, outcome_.content, outcome_.is_error, call.name, outcome_.details
        )
        tool = self._told(call).name
        told = tool_result_data(result, tool=tool, step=step, mocked=mocked)
        self._hub.emit(TOOL_RESULT, told)
        return result

    async def _tell(self, moment: HookEvent) -> None:
        if moment.name not in self._hooks:
            return
        self._hub.emit(f"hook.{moment.name}")
        try:
            await self._hooks.tell(moment, self._context)
        except Exception as error:  # noqa: BLE001 - whatever an extension raises
            self._complain(f"a {moment.name} hook raised {describe_exception(error)}", error)

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


def _wrong(text: str) -> ToolOutcome:
    return ToolOutcome((Text(text),), None, is_error=True)
