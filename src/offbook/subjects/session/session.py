"""The agent session: a real agent loop with a scripted model.

    prompt ─▶ request to the model ─▶ reply ─▶ tool calls ─▶ request … until a reply has no calls

`AgentSession.prompt` is the loop, `AgentSession._run_call` the life of one tool call:

    tool.call ─▶ validate ─▶ tool_call hooks ─▶ tool.start ─▶ tool or mock ─▶ tool.end
              ─▶ tool_result hooks ─▶ tool.result

Extensions, tools and hooks run for real; only the model, the user interface and the tools in
`mock_tools` are replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec

from offbook.determinism.run_context import current_clock, current_host, use_variable
from offbook.errors import (
    InjectedFault,
    ModelError,
    RunError,
    ToolFailed,
    UsageError,
    did_you_mean,
)
from offbook.exchange.messages import JSON, History, Message, Text, ToolCall, ToolResult, user
from offbook.exchange.model import Request, ToolAlias, ToolAliases
from offbook.exchange.tool_track import ToolRun, running_tool
from offbook.options import decode, require_list, require_mapping
from offbook.subjects.faulty_results import finish_call
from offbook.subjects.mock_tools import (
    DEFAULTS,
    UI,
    ToolOutcome,
    check_mocks_used,
    describe_exception,
    error_outcome,
    to_tool_outcome,
    validate_mock_ui,
)
from offbook.subjects.session import DEFAULT_SYSTEM_PROMPT
from offbook.subjects.session.tools import (
    Context,
    HookEvent,
    Hooks,
    Host,
    ToolRegistry,
    call_function,
)
from offbook.subjects.subject import SKILL_HINT, Skill
from offbook.trace.events import (
    AGENT_ERROR,
    AGENT_PARTS,
    UNSET,
    AgentEndData,
    AgentStartData,
    ToolBlockedData,
    ToolCallData,
    ToolEndData,
    ToolInputData,
    ToolResultData,
    ToolStartData,
    Verdict,
)
from offbook.trace.hub import current_faults
from offbook.trace.instrument import error_data

if TYPE_CHECKING:
    from msgspec import UnsetType

    from offbook.determinism.faults import Fault
    from offbook.exchange.model import Reply
    from offbook.exchange.tool_track import ToolEnd
    from offbook.host.host_scope import HostScope
    from offbook.subjects.session.extensions import CommandHandler, ExtensionFactory
    from offbook.subjects.session.tools import RegisteredTool
    from offbook.subjects.subject import ModelAccess, RunContext

# The statuses that the providers' own SDKs retry.
RETRYABLE = {408, 429, 500, 502, 503, 504, 529}
# Extensions have their own settings, so an unknown key is refused only if it resembles a known one.
SIMILARITY = 0.65


class SessionSettings(msgspec.Struct, frozen=True):
    """The settings that the session reads itself. Extensions find all settings in `ctx.settings`.

    `model` and `parameters` go into every request; `retries` is the number of further requests
    after a provider error that can be retried.
    """

    model: str = "offbook/playbook"
    parameters: JSON = {}
    retries: int = 0


class AgentSession:
    """A real agent with extensions and tools. It implements `Subject`.

    Most tests create it with `offbook.session(…)`, which adds a playbook and a trace. `messages`
    is the conversation, `extensions` the names of the loaded extensions.
    """

    name = "session"
    model_access: ModelAccess = "call"
    emits_tool_calls = True
    releases_held = True  # before code of an extension runs
    tool_aliases: ClassVar[ToolAliases] = {"shell": ToolAlias("bash")}

    def __init__(  # noqa: PLR0913 - the options of session()
        self,
        *,
        extensions: Iterable[object] = (),
        mock_tools: Mapping[str, Any] | None = None,
        mock_ui: Mapping[str, Any] | None = None,
        mock_host: Iterable[Mapping[str, Any]] | None = None,
        system_prompt: str = DEFAULT_SYSTEM_PROMPT,
        skills: Iterable[Skill | Mapping[str, Any]] = (),
        settings: Mapping[str, Any] | None = None,
        mock_extension_tools: bool = False,
        propagate_errors: bool = True,
        has_ui: bool = True,
    ) -> None:
        # Options are validated here, so that a mistake is reported before anything runs.
        self._extension_specs = require_list(extensions, "extensions")
        self._mock_ui = validate_mock_ui(require_mapping(mock_ui, "mock_ui"))
        self._has_ui = has_ui
        if answered := [] if has_ui else [m for m in self._mock_ui if m in DEFAULTS]:
            raise UsageError(
                f"mock_ui[{answered[0]!r}] has no effect: has_ui=False declines every question",
                hint="remove one of the two",
            )
        self._host: HostScope | None = None
        if mock_host is not None:
            from offbook.host.host_scope import HostScope

            self._host = HostScope(where="mock_host")
            for number, entry in enumerate(require_list(mock_host, "mock_host"), 1):
                self._host.add(cast("JSON", entry), f"mock_host, mock {number}")
        mocks = require_mapping(mock_tools, "mock_tools")
        self._tools = ToolRegistry(mocks, mock_extensions=mock_extension_tools)
        self._hooks = Hooks()
        self._commands: dict[str, CommandHandler] = {}
        self._system = compose_system_prompt(system_prompt, skills)
        self._all_settings = require_mapping(settings, "settings")
        self._settings = parse_settings(self._all_settings)
        self._propagate_errors = propagate_errors
        self._history = History()
        self._factories: list[ExtensionFactory] = []
        self._started = False
        self._task: asyncio.Task[Any] | None = None
        self._aborted = False
        self._alone = True  # the running tool call is the only one
        self.extensions: list[str] = []

    @property
    def messages(self) -> History:
        """The conversation so far."""
        return self._history

    def tools(self) -> set[str]:
        """Return the names of all tools."""
        return self._tools.names()

    def commands(self) -> set[str]:
        """Return the names of all commands, without the slash."""
        return set(self._commands)

    def verdicts(self) -> list[Verdict]:
        """Return a failed verdict if the tools of some mocks were never called."""
        host = [] if self._host is None else self._host.unused()
        unused = self._tools.unused_mocks()
        return check_mocks_used(unused, self._context.ui.unused_answers(), host)

    async def open(self, context: RunContext, /) -> None:
        """Load the extensions and start the session."""
        self._source = context.source
        self._to_script_call = context.to_script_call
        self._hub = context.hub
        ui = UI(self._mock_ui, context, has_ui=self._has_ui)
        self._context = Context(
            context.cwd,
            ui,
            self._all_settings,
            context.source,
            has_ui=self._has_ui,
            host=Host(self._host),
        )
        self._tools.add_builtin()
        for spec in self._extension_specs:
            from offbook.subjects.session.extensions import install_extension

            name, factory = await install_extension(spec, self._tools, self._hooks, self._commands)
            self._factories.append(factory)
            self.extensions.append(name)
            self._hub.emit("session.extension", {"extension": name})
        if self._hooks.names or self._commands:
            data = {"hooks": self._hooks.names, "commands": [*self._commands]}
            self._hub.emit(AGENT_PARTS, data)
        # From here on, `close` calls the shutdown hooks, even if a start hook fails.
        self._started = True
        await self._notify("session_start")
        ui.raise_errors()

    async def close(self) -> None:
        """Call the shutdown hooks and unload the extensions."""
        try:
            if self._started:
                await self._notify("session_shutdown")
                self._context.ui.raise_errors()
        finally:
            for factory in self._factories:
                from offbook.subjects.session.extensions import unload_extension

                unload_extension(factory)
            self._factories.clear()

    async def prompt(self, text: str, /) -> str | None:
        """Send a prompt to the agent and return its final text; None for a command."""
        if self._host is None:
            return await self._prompt(text)
        # A tool may also call its host by `host_call`: it gets the same mocks as `ctx.host`.
        with use_variable(current_host, self._host):
            return await self._prompt(text)

    async def _prompt(self, text: str) -> str | None:
        self._task, self._aborted = asyncio.current_task(), False
        outer = self._hub.holds  # a rehearsal, which also releases
        if not outer:
            self._hub.hold()
        try:
            # A prompt such as "/plans all" runs a command of an extension, without the model.
            if text.startswith("/"):
                command, _, args = text[1:].partition(" ")
                if command in self._commands:
                    self._hub.release()
                    self._hub.emit("session.command", {"command": command, "args": args})
                    await self._run_command(command, args)
                    return None
            self._history = self._history.plus(user(text))
            self._hub.emit_data(AgentStartData(text))
            stop, answer = await self._run_turns(text)
            if self._hooks.by_event["agent_end"]:
                await self._notify("agent_end")
            self._hub.emit_data(AgentEndData(stop))
            return answer
        finally:
            if not outer:
                self._hub.release()
            self._task = None
            # An extension may have caught the error of an answer, or forgotten an `await`.
            self._context.ui.raise_errors()
            if self._host is not None:
                self._host.raise_refusals()

    def abort(self) -> None:
        """Stop the running prompt, as a user does with Escape.

        Running tools are cancelled, and the model gets no further request for this prompt.
        """
        if self._task is None:
            raise UsageError("abort(): no prompt is running", hint="call it during a run")
        self._aborted = True
        # Called by a tool or a hook of this task, it takes effect when that returns.
        if asyncio.current_task() is not self._task:
            self._task.cancel()

    async def _run_command(self, command: str, args: str) -> None:
        try:
            await call_function(self._commands[command], args, self._context)
        except Exception as error:  # noqa: BLE001 - any exception of an extension
            self._report_error(f"command /{command} failed", error)

    async def _run_turns(self, prompt: str) -> tuple[str, str | None]:
        """Ask the model and run its calls until it makes none.

        Return why the agent stopped, and its final text if it has one.
        """
        hooks = self._hooks.by_event
        unanswered: tuple[ToolCall, ...] = ()
        try:
            if hooks["agent_start"]:
                await self._notify("agent_start", prompt=prompt)
            while not self._aborted:
                if hooks["turn_start"]:
                    await self._notify("turn_start")
                reply = await self._request_reply()
                if reply is None:
                    # The provider refused, and went on refusing: the agent gives up, as a real
                    # one would. The run goes on, because a test may script exactly that.
                    return "error", None
                self._history = self._history.plus(reply.message)
                calls = unanswered = reply.calls
                if calls:
                    # The next request carries the results, one message each, in the order of the
                    # calls.
                    results = await self._run_calls(calls, reply.step)
                    self._history = self._history.plus(*results)
                    unanswered = ()
                if hooks["turn_end"]:
                    await self._notify("turn_end")
                if not calls:
                    return reply.stop, reply.text
        except asyncio.CancelledError:
            if not self._aborted or self._task is None:
                raise
            self._task.uncancel()
            # A provider rejects a conversation in which a call has no result.
            aborted = error_outcome("Operation aborted").content
            results = [ToolResult(c.id, aborted, failed=True, name=c.name) for c in unanswered]
            self._history = self._history.plus(*(Message("tool", (r,)) for r in results))
        return "aborted", None

    async def _request_reply(self) -> Reply | None:
        """Return the model's reply, or None if the provider failed after all retries."""
        settings = self._settings
        request = Request(
            self._history, self._system, self._tools.offered(), settings.model, settings.parameters
        )
        for remaining in range(settings.retries, -1, -1):
            try:
                return await self._source.reply(request)
            except ModelError as error:
                if not remaining or error.status not in RETRYABLE:
                    self._hub.emit(AGENT_ERROR, error_data(error).as_dict())
                    return None
        return None

    async def _run_calls(self, calls: tuple[ToolCall, ...], step: int) -> list[Message]:
        """Run the calls of one reply concurrently; return the results in the order of the calls."""
        self._alone = len(calls) == 1
        if self._alone:  # the usual case needs no task
            outcome, mocked = await self._run_call(calls[0], step)
            return [self._emit_result(calls[0], outcome, step, mocked=mocked)]
        self._hub.release()
        tasks = [asyncio.ensure_future(self._run_call(call, step)) for call in calls]
        running = {*tasks}
        try:
            _, running = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            if running:  # after a failure or a cancellation the other calls are cancelled, too
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        self._hub.hold()
        results: list[Message] = []
        failures: list[BaseException] = []
        for call, task in zip(calls, tasks, strict=True):
            if task.cancelled():
                continue
            failure = task.exception()
            if failure is not None:
                failures.append(failure)
                continue
            # Results are emitted in the order of the calls, so that traces are reproducible.
            outcome, mocked = task.result()
            results.append(self._emit_result(call, outcome, step, mocked=mocked))
        if failures:
            for other in failures[1:]:
                failures[0].add_note(f"at the same time: {describe_exception(other)}")
            raise failures[0]
        return results

    async def _run_call(self, call: ToolCall, step: int) -> tuple[ToolOutcome, bool | None]:
        """Run one tool call; return its outcome, and whether a mock ran: None if nothing ran."""
        script_call = self._to_script_call(call)  # the trace uses the names of the script
        name = script_call.name
        self._hub.emit_data(ToolCallData(call.id, name, script_call.arguments, step, observed=True))

        # An unknown tool or wrong parameters are the model's mistake: the model gets an error
        # result, the run goes on.
        tool = self._tools.find(call.name)
        if tool is None:
            hint = did_you_mean(call.name, self._tools.names())
            return error_outcome(f"Tool {call.name} not found: {hint}"), None
        problem = tool.validator(call.arguments)
        if problem:
            return _validation_error(call, problem), None
        params = _copy_json(call.arguments)  # hooks and tools may change their parameters

        if self._hooks.by_event["tool_call"]:
            self._hub.release()
            event = HookEvent("tool_call", tool=call.name, call_id=call.id, input=params)
            try:
                reason = await self._hooks.before_call(event, self._context)
            except Exception as error:  # noqa: BLE001 - any exception of an extension
                # A guard that fails must not let the call through.
                self._report_error("tool_call hook failed", error, step, call)
                message = f"tool_call hook failed: {describe_exception(error)}"
                return error_outcome(message), None
            if reason is not None:
                self._hub.emit_data(ToolBlockedData(call.id, name, reason, step))
                return error_outcome(reason), None
            params = event.input
            if params != call.arguments:
                # A hook changed the parameters: they are validated again.
                self._hub.emit_data(ToolInputData(call.id, name, params, step))
                problem = tool.validator(params)
                if problem:
                    return _validation_error(call, problem), None

        outcome = await self._execute(tool, params, call, script_call, step)

        if self._hooks.by_event["tool_result"]:
            self._hub.release()
            event = HookEvent(
                "tool_result", tool=call.name, call_id=call.id, input=params, result=outcome
            )
            try:
                outcome = await self._hooks.after_call(event, self._context)
            except Exception as error:  # noqa: BLE001 - any exception of an extension
                self._report_error("tool_result hook failed", error, step, call)
                outcome = error_outcome(f"tool_result hook failed: {describe_exception(error)}")
        return outcome, tool.mocked

    async def _execute(
        self,
        tool: RegisteredTool,
        params: dict[str, Any],
        call: ToolCall,
        script_call: ToolCall,
        step: int,
    ) -> ToolOutcome:
        """Run a tool; emit its start and its end."""
        hub, name = self._hub, script_call.name
        given = script_call.arguments if params == call.arguments else params
        hub.emit_data(ToolStartData(call.id, name, given))
        hub.release()
        began = hub.timer()
        failed = True
        content: Any = UNSET
        problem: str | UnsetType = UNSET
        track, faults = hub.tool_track, current_faults()
        run, end = ToolRun(name, given, call.id), None
        fault: Fault | None = None
        try:
            if faults is not None:
                fault = await faults.call("tool", name, call.id)
            if track is not None and track.replays:
                end = track.find(run)
            if track is not None or current_clock.get() is not None:
                answer = await self._execute_on_tape(tool, params, name, end)
            else:
                answer = tool.execute(params, self._context)
                # A text is by far the most frequent, and `isawaitable` takes 2 µs.
                if not isinstance(answer, str) and isawaitable(answer):
                    answer = await answer
            outcome = to_tool_outcome(answer, f"tool {call.name!r}")
            if fault is not None and faults is not None:
                outcome = finish_call(fault, outcome, faults)
            failed = outcome.is_error
            if track is not None and end is None:
                track.add(run, _record(outcome))
            if self._hooks.by_event["tool_result"]:  # else the result has it
                content = outcome.content
        except InjectedFault as error:
            problem = str(error)
            outcome = error_outcome(problem)
        except BaseException as error:
            problem = describe_exception(error)
            if track is not None and end is None and isinstance(error, Exception):
                track.add(run, _record(error))
            # The test itself is broken: not a result for the model.
            if tool.mocked or not isinstance(error, (Exception, SystemExit)):
                raise
            self._report_error("Error during tool execution", error, step, call)
            outcome = error_outcome(problem)
        finally:
            if self._alone:
                hub.hold()
            hub.emit_data(
                ToolEndData(
                    call.id,
                    name,
                    round(hub.timer() - began, 3),
                    failed,
                    content=content,
                    error=problem,
                    mocked=tool.mocked or end is not None or UNSET,
                )
            )
        return outcome

    async def _execute_on_tape(
        self, tool: RegisteredTool, params: dict[str, Any], name: str, end: ToolEnd | None
    ) -> object:
        """Run a tool, or return what the tape has in its place.

        A request to the model in here is part of the tool, and so are random values.
        """
        with use_variable(running_tool, name):
            answer = _replay(end) if end is not None else tool.execute(params, self._context)
            return await answer if isawaitable(answer) else answer

    def _emit_result(
        self, call: ToolCall, outcome: ToolOutcome, step: int, *, mocked: bool | None
    ) -> Message:
        """Emit the result of a call; return it as the message for the model."""
        result = ToolResult(call.id, outcome.content, outcome.is_error, call.name, outcome.details)
        name = self._to_script_call(call).name
        # not executed if it was blocked or invalid: the result says why
        executed = UNSET if mocked is not None else False
        self._hub.emit_data(
            ToolResultData(
                call.id,
                name,
                outcome.content,
                result.failed,
                outcome.details,
                bool(mocked),
                step,
                executed,
            )
        )
        return Message("tool", (result,))

    async def _notify(self, name: str, *, prompt: str = "") -> None:
        """Call the hooks of an event that cannot change anything."""
        if not self._hooks.by_event[name]:
            return
        self._hub.emit(f"hook.{name}")
        self._hub.release()
        try:
            await self._hooks.notify(HookEvent(name, prompt=prompt), self._context)
        except Exception as error:  # noqa: BLE001 - any exception of an extension
            self._report_error(f"{name} hook failed", error)

    def _report_error(
        self, label: str, error: BaseException, step: int = 0, call: ToolCall | None = None
    ) -> None:
        """Emit an extension's exception, and raise it unless `propagate_errors` is off."""
        position = "" if call is None else f" at playbook step {step} (call {call.name!r})"
        what = f"{label}{position}: {describe_exception(error)}"
        self._hub.emit("session.error", {"error": what, "step": step} if step else {"error": what})
        if error is self._context.ui.error:  # an answer of the test, not the extension
            error.add_note(what)
            raise error
        if not self._propagate_errors:
            return
        if isinstance(error, (RunError, UsageError)):  # our own errors explain themselves
            error.add_note(what)
            raise error
        raise ToolFailed(
            what, hint="fix the extension, or pass propagate_errors=False to see its error result"
        ) from error


def _record(end: ToolOutcome | Exception) -> ToolEnd:
    """Return the end of an execution for a tape; an outcome of one text is that text."""
    from offbook.subjects.tool_values import record_exception, record_value  # with a tape only

    if isinstance(end, Exception):
        return record_exception(end)
    plain = end == ToolOutcome((Text(end.text),), {})
    return record_value(end.text if plain else end)


def _replay(end: ToolEnd) -> Any:
    """Return the result of an execution on a tape, or raise its exception."""
    from offbook.subjects.tool_values import restore_exception, restore_value

    if end.error is not None:
        raise restore_exception(end.error)
    return restore_value(end)


def _validation_error(call: ToolCall, problem: str) -> ToolOutcome:
    return error_outcome(f"Validation failed for tool {call.name!r}: {problem}")


def _copy_json(value: Any) -> Any:
    """Return a deep copy of a JSON value; several times faster than `copy.deepcopy`."""
    if isinstance(value, dict):
        fields = cast("JSON", value).items()
        # Most values are texts: a call for each takes longer than the copy.
        return {key: item if type(item) is str else _copy_json(item) for key, item in fields}
    if isinstance(value, list):
        return [_copy_json(item) for item in cast("list[Any]", value)]
    return value


def parse_settings(settings: Mapping[str, Any]) -> SessionSettings:
    """Return the session's own settings; refuse a key that looks like a misspelling of one."""
    known = SessionSettings.__struct_fields__
    for key in settings:
        if not isinstance(key, str):
            raise UsageError(f"settings keys must be strings, got {key!r}")
        if key not in known and get_close_matches(key, known, n=1, cutoff=SIMILARITY):
            raise UsageError(f"unknown setting {key!r}", hint=did_you_mean(key, known))
    own = {key: settings[key] for key in known if key in settings}
    return decode(own, SessionSettings, "settings")


def compose_system_prompt(prompt: str, skills: Iterable[Skill | Mapping[str, Any]]) -> str:
    """Return the system prompt followed by the skills."""
    system = decode(prompt, str, "system_prompt")
    given = require_list(skills, "skills")
    if not given:
        return system
    # A dict is a skill, too: skills often come from a YAML or JSON file.
    described = [
        f"# Skill {skill.name}\n{skill.description}\n{skill.content}".rstrip()
        for skill in decode(given, tuple[Skill, ...], "skills", hint=SKILL_HINT)
    ]
    return "\n\n".join([system, *described])
