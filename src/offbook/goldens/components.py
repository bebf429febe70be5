"""Components: the objects that scenarios run on. Each has a hub, and its steps are methods.

A step of a fixture, `{"type": "put", "coins": 1}`, calls the method of that name. After the last
step, `observe` and the events of the hub are compared with the fixture.

    class Till(Component):
        coins = 0

        @step
        def put(self, coins: int):
            self.coins += coins

        def observe(self):
            return {**super().observe(), "coins": self.coins}
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

import msgspec

from offbook.errors import FormatError, UsageError, did_you_mean, require_known
from offbook.files import convert, make_temp_folder, remove_temp_folder
from offbook.goldens.fixture_store import StepDict
from offbook.goldens.session_hub import SessionHub, SessionStatus
from offbook.sources.playbook.actions import call, say, when
from offbook.sources.playbook.playbook import Playbook
from offbook.subjects.session.session import AgentSession
from offbook.subjects.subject import RunContext
from offbook.trace.components import STEP_ATTRIBUTE, BaseComponent, step
from offbook.trace.instrument import TracedSource

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from offbook.goldens.session_hub import Inbox


class AbortOptions(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The options of the step `abort`."""

    resumable: bool = False
    reason: str | None = None
    node_id: str = ""


class Component(BaseComponent):
    """A hub whose commands are steps. Subclasses add their own steps.

    One instance is created for each scenario.
    """

    hub: SessionHub

    def __init__(self, hub: SessionHub, scenario: str) -> None:
        super().__init__(hub, scenario)
        self._scopes: list[AbstractContextManager[object]] = []

    def observe(self) -> dict[str, Any]:
        """Return the state that a fixture may expect in addition to the events, by name."""
        return {"status": self.hub.status, "sessionActive": self.hub.session_active}

    @step
    def emit(self, event: dict[str, Any], context_override: dict[str, Any] | None = None) -> None:
        """Emit an event."""
        data = dict(event)  # the step still belongs to the fixture
        if not isinstance(data.get("type"), str):
            raise UsageError("the event has no type", hint=did_you_mean("type", data))
        self.hub.emit(data.pop("type"), data, context=context_override)

    @step
    def enter_scope(self, context: dict[str, Any]) -> None:
        """Add values to the context of later events."""
        # not a `with` block: the scope spans several steps
        scope = self.hub.scoped(**context)
        scope.__enter__()
        self._scopes.append(scope)

    @step
    def leave_scope(self) -> None:
        """Restore the context before the last `enter_scope`."""
        if not self._scopes:
            raise UsageError("no open scope to leave", hint="add the step enterScope before it")
        self._scopes.pop().__exit__(None, None, None)

    @step
    def start_session(self) -> None:
        """Accept commands from now on."""
        self.hub.start_session()

    @step
    def send(self, message: str) -> None:
        """Send a message to the session."""
        self.hub.send(message)

    @step
    def send_to(self, agent: str, message: str) -> None:
        """Send a message to one agent."""
        self.hub.send_to(agent, message)

    @step
    def send_to_run(self, run_id: str, message: str) -> None:
        """Send a message to one run of an agent."""
        self.hub.send_to_run(run_id, message)

    @step
    def reply(self, prompt_id: str, response: dict[str, Any]) -> None:
        """Answer a prompt."""
        self.hub.reply(prompt_id, response)

    @step
    def abort(self, reason: str | None = None, options: AbortOptions | None = None) -> None:
        """Abort the session, or pause it if it is resumable."""
        options = options or AbortOptions()
        self.hub.abort(
            reason if options.reason is None else options.reason,
            resumable=options.resumable,
            node=options.node_id,
        )

    @step
    def resume(self, session_id: str, message: str) -> None:
        """Resume a paused session with a message."""
        self.hub.resume(session_id, message)

    @step
    def set_status(self, status: SessionStatus) -> None:
        """Set the status of the session."""
        self.hub.set_status(status)


class Harness(Component):
    """A component that is created from an input, attached to, and run.

    The steps of a fixture contain no code. A subclass defines the initial state (`create_state`)
    and the code of a run (`execute`), which may use `phase`, `task` and `agent`.
    """

    def __init__(self, hub: SessionHub, scenario: str) -> None:
        super().__init__(hub, scenario)
        self._name: str | None = None
        self._agent_runs = 0
        self._detach: list[Callable[[], None]] = []
        self.state: Any = None
        self.result: Any = None

    def create_state(self, input: dict[str, Any]) -> Any:  # noqa: A002 - the field's name in fixtures
        """Return the initial state."""
        return input

    async def execute(self) -> Any:
        """Do the work of a run and return its result."""
        return None

    def observe(self) -> dict[str, Any]:
        """Return also the state and the result of the run."""
        return {**super().observe(), "state": self.state, "result": self.result}

    @step
    def create(self, name: str, input: dict[str, Any]) -> None:  # noqa: A002 - the field's name in fixtures
        """Create a harness from an input."""
        self._name = name
        self.state = self.create_state(input)

    @step
    def attach(self) -> None:
        """Subscribe a listener until the end of the run."""
        self._detach.append(self.hub.subscribe(lambda _: None))

    @step
    async def run(self) -> Any:
        """Run the harness. The start and the end are events, also when the run raises."""
        if self._name is None:
            raise UsageError("no harness to run", hint="add the step create before it")
        self.hub.set_status("running")
        started = self.hub.emit("harness:start", {"name": self._name}).ts
        success = False
        try:
            self.result = await self.execute()
            success = True
        finally:
            self.hub.set_status("complete" if success else "idle")
            duration = self.hub.now() - started
            self.hub.emit("harness:complete", {"success": success, "durationMs": duration})
            for detach in self._detach:
                detach()
        return self.result

    async def phase(self, name: str, work: Callable[[], object]) -> Any:
        """Run work as a phase. Events inside have its name in their context."""
        return await self._run_part("phase", {"name": name}, {"phase": {"name": name}}, work)

    async def task(self, task_id: str, work: Callable[[], object]) -> Any:
        """Run work as a task. Events inside have its id in their context."""
        return await self._run_part("task", {"taskId": task_id}, {"task": {"id": task_id}}, work)

    async def agent(self, name: str, work: Callable[[str, Inbox], object]) -> Any:
        """Run an agent with a new run id and an inbox for messages to that run."""
        # a number, not a random id: a replay must have the same
        run_id = f"run-{self._agent_runs}"
        self._agent_runs += 1
        data = {"agentName": name, "runId": run_id}
        inbox = self.hub.open_inbox(run_id)
        self.hub.emit("agent:start", data)
        try:
            result = await _await_if_needed(work(run_id, inbox))
        except Exception as error:
            # both events: a listener of agent:complete sees the end of every run
            self.hub.emit("agent:complete", {**data, "success": False})
            self.hub.emit("agent:failed", {**data, "error": str(error)})
            raise
        self.hub.emit("agent:complete", {**data, "success": True})
        return result

    async def _run_part(
        self, kind: str, data: dict[str, Any], scope: dict[str, Any], work: Callable[[], object]
    ) -> Any:
        # the start and end events are outside of the scope: they belong to the surrounding part
        self.hub.emit(f"{kind}:start", data)
        try:
            with self.hub.scoped(**scope):
                result = await _await_if_needed(work())
        except Exception as error:
            self.hub.emit(f"{kind}:failed", {**data, "error": str(error)})
            raise
        if kind == "task" and result is not None:
            data = {**data, "result": result}
        self.hub.emit(f"{kind}:complete", data)
        return result


async def _await_if_needed(result: object) -> Any:
    return await result if isawaitable(result) else result


class StepHandler(NamedTuple):
    """A step of a component: the name of its method, and the struct of its arguments."""

    method: str
    arguments: type[msgspec.Struct]


@cache  # the inspection takes 7 ms for a class, a replay less than 1 ms
def steps_of(component_class: type[BaseComponent]) -> dict[str, StepHandler]:
    """Return the steps of a component class by their type in fixtures."""
    handlers: dict[str, StepHandler] = {}
    for name, method in inspect.getmembers(component_class, callable):
        if not getattr(method, STEP_ATTRIBUTE, False):
            continue
        try:
            types = get_type_hints(method)
        except NameError:  # an annotation that is imported for type checkers only
            types = {}
        fields: list[Any] = []
        _, *parameters = inspect.signature(method).parameters.values()  # without self
        for parameter in parameters:
            field = (parameter.name, types.get(parameter.name, Any))
            required = parameter.default is parameter.empty
            fields.append(field if required else (*field, parameter.default))
        # a struct checks names and types of the arguments, with the messages of every other file
        arguments = msgspec.defstruct(
            f"{component_class.__name__}_{name}",
            fields,
            rename="camel",
            forbid_unknown_fields=True,
            kw_only=True,
        )
        handlers[to_camel_case(name)] = StepHandler(name, arguments)
    return handlers


def bind_step(component_class: type[BaseComponent], data: StepDict) -> tuple[str, dict[str, Any]]:
    """Return the method and the arguments of a step of a fixture, or raise UsageError."""
    steps = steps_of(component_class)
    kind = data["type"]
    require_known("unknown step", kind, steps)
    handler = steps[kind]
    fields = {key: value for key, value in data.items() if key != "type"}
    try:
        arguments = convert(fields, handler.arguments)
    except FormatError as error:
        what = error.what.replace("Object", f"step {kind!r}", 1)
        raise UsageError(what, hint=error.hint) from error
    return handler.method, msgspec.structs.asdict(arguments)


def write_step(
    component_class: type[BaseComponent],
    method: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> StepDict:
    """Return a method call as a step of a fixture."""
    bound = inspect.signature(getattr(component_class, method)).bind(None, *args, **kwargs)
    _, *arguments = bound.arguments.items()  # without self
    return {"type": to_camel_case(method)} | {
        to_camel_case(name): msgspec.to_builtins(value) for name, value in arguments
    }


def to_camel_case(name: str) -> str:
    """Return a Python name as fixtures spell it: `set_status` is `setStatus`."""
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


# --- The session as a component


class ScriptedAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One action of the scripted model: a text, or a tool call with its input."""

    say: str | None = None
    call: str | None = None
    input: dict[str, Any] = {}


class SessionComponent(Component):
    """A real agent session whose model is scripted by the steps."""

    def __init__(self, hub: SessionHub, scenario: str) -> None:
        super().__init__(hub, scenario)
        self._session: AgentSession | None = None
        self._playbook = Playbook()
        self._folder: Path | None = None

    async def close(self) -> None:
        """Close the session and remove its folder."""
        if self._session is not None:
            await self._session.close()
        if self._folder is not None:
            remove_temp_folder(self._folder)

    def observe(self) -> dict[str, Any]:
        """Return also the number of messages and of unused actions."""
        messages = len(self._session.messages) if self._session else 0
        return {**super().observe(), "messages": messages, "left": self._playbook.remaining}

    @step
    async def create(
        self,
        mock_tools: dict[str, Any] | None = None,
        mock_ui: dict[str, Any] | None = None,
        system_prompt: str = "You are an agent.",
        settings: dict[str, Any] | None = None,
    ) -> None:
        """Open a session."""
        self._folder = make_temp_folder()
        self._session = AgentSession(
            mock_tools=mock_tools, mock_ui=mock_ui, system_prompt=system_prompt, settings=settings
        )
        # the session emits its own tool events, so the source must not emit them again
        source = TracedSource(self._playbook, self.hub, tools=False)
        await self._session.open(RunContext(source, self.hub, self._folder))

    @step
    async def prompt(self, text: str, script: list[ScriptedAction]) -> None:
        """Prompt the session. The model does the actions of the script."""
        if self._session is None:
            raise UsageError("no session to prompt", hint="add the step create before it")
        actions: list[Any] = []
        for action in script:
            if (action.say is None) == (action.call is None):
                raise UsageError(
                    "an action needs either 'say' or 'call'",
                    hint='write {"say": "Done."} or {"call": "bash", "input": {"command": "ls"}}',
                )
            actions.append(
                msgspec.structs.replace(call(action.call, action.input), invalid=None)
                if action.call is not None
                else say(action.say or "")
            )
        turn = when(text, actions)
        self._playbook.load(turn)
        self._playbook.open(turn)
        await self._session.prompt(text)
        # a script that the agent did not use up is an error, as in every rehearsal
        error = self._playbook.failure or self._playbook.unfinished()
        if error is not None:
            raise error
