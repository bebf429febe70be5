"""What goldens are recorded from: a protocol, and those of our own that have one."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_type_hints

import msgspec

from offbook.errors import FormatError, UsageError, did_you_mean
from offbook.files import convert
from offbook.goldens.fixture_store import StepDict
from offbook.goldens.session_hub import SessionHub

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from offbook.goldens.session_hub import Inbox, SessionStatus


# --- What goldens are recorded from: a protocol, and those of our own that have one.


# --- What a scenario is played on: anything with a hub, whose methods are the steps.

F = TypeVar("F", bound=Callable[..., object])
MARK = "offbook_step"


def step(method: F) -> F:
    """Make a method a step: `set_status(self, status)` is `{"type": "setStatus", "status": …}`."""
    setattr(method, MARK, True)
    return method


class AbortOptions(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How a session is aborted."""

    resumable: bool = False
    reason: str | None = None
    node_id: str = ""


class Component:
    """A hub and its commands as steps. Other components add steps of their own.

    One is made for each scenario. `observe` tells what can be expected of it beside its events.
    """

    def __init__(self, hub: SessionHub, scenario: str) -> None:
        self.hub = hub
        self.scenario = scenario
        self._scopes: list[AbstractContextManager[object]] = []

    async def open(self) -> None:
        """Get ready for the first step."""

    async def close(self) -> None:
        """Leave nothing behind, also after a step that failed."""

    def observe(self) -> dict[str, Any]:
        """What else can be expected, by name."""
        return {"status": self.hub.status, "sessionActive": self.hub.session_active}

    @step
    def emit(self, event: dict[str, Any], context_override: dict[str, Any] | None = None) -> None:
        """Tell an event."""
        data = dict(event)
        if not isinstance(data.get("type"), str):
            raise UsageError("an event needs a type", hint=did_you_mean("type", data))
        self.hub.emit(data.pop("type"), data, context=context_override)

    @step
    def enter_scope(self, context: dict[str, Any]) -> None:
        """Add to the context of what comes."""
        scope = self.hub.scoped(**context)
        scope.__enter__()
        self._scopes.append(scope)

    @step
    def leave_scope(self) -> None:
        """Go back to the context before the last scope."""
        if not self._scopes:
            raise UsageError("no scope is open", hint="enterScope comes first")
        self._scopes.pop().__exit__(None, None, None)

    @step
    def start_session(self) -> None:
        """Take commands from now on."""
        self.hub.start_session()

    @step
    def send(self, message: str) -> None:
        """Say something to whoever runs."""
        self.hub.send(message)

    @step
    def send_to(self, agent: str, message: str) -> None:
        """Say something to one agent."""
        self.hub.send_to(agent, message)

    @step
    def send_to_run(self, run_id: str, message: str) -> None:
        """Say something to one run."""
        self.hub.send_to_run(run_id, message)

    @step
    def reply(self, prompt_id: str, response: dict[str, Any]) -> None:
        """Answer a prompt."""
        self.hub.reply(prompt_id, response)

    @step
    def abort(self, reason: str | None = None, options: AbortOptions | None = None) -> None:
        """End the session, or pause it."""
        wanted = options or AbortOptions()
        self.hub.abort(
            reason if wanted.reason is None else wanted.reason,
            resumable=wanted.resumable,
            node=wanted.node_id,
        )

    @step
    def resume(self, session_id: str, message: str) -> None:
        """Go on with a paused session."""
        self.hub.resume(session_id, message)

    @step
    def set_status(self, status: SessionStatus) -> None:
        """Say how the session stands."""
        self.hub.set_status(status)


class StepHandler(NamedTuple):
    """A step of a component: the method that does it, and the arguments that it takes."""

    method: str
    arguments: type[msgspec.Struct]


def steps_of(kind: type[Component]) -> dict[str, StepHandler]:
    """The steps that a component knows, by their type."""
    known = kind.__dict__.get("_offbook_steps")
    if known is None:
        known = {
            camel(name): StepHandler(name, _arguments(method, kind))
            for name, method in inspect.getmembers(kind, callable)
            if getattr(method, MARK, False)
        }
        kind._offbook_steps = known  # pyright: ignore[reportAttributeAccessIssue]  # noqa: SLF001 - computed once a class
    return known


def bind_step(kind: type[Component], one: StepDict) -> tuple[str, dict[str, Any]]:
    """The method and its arguments for a step; or what is wrong with the step."""
    steps = steps_of(kind)
    handler = steps.get(one["type"])
    if handler is None:
        raise UsageError(f"there is no step {one['type']!r}", hint=did_you_mean(one["type"], steps))
    given = {key: value for key, value in one.items() if key != "type"}
    try:
        arguments = convert(given, handler.arguments)
    except FormatError as error:
        what = error.what.replace("Object", f"the step {one['type']!r}", 1)
        raise UsageError(what, hint=error.hint) from error
    return handler.method, msgspec.structs.asdict(arguments)


def write_step(kind: type[Component], method: str, args: tuple[Any, ...], named: Any) -> StepDict:
    """The step that a call of a method is."""
    bound = inspect.signature(getattr(kind, method)).bind(None, *args, **named)
    _, *arguments = bound.arguments.items()
    return {"type": camel(method)} | {
        camel(name): msgspec.to_builtins(value) for name, value in arguments
    }


def camel(name: str) -> str:
    """A Python name as the files write it."""
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)


def _arguments(method: Callable[..., object], kind: type[Component]) -> type[msgspec.Struct]:
    from offbook.trace import hub  # for the annotations of the base class

    _, *parameters = inspect.signature(method).parameters.values()
    try:
        types = get_type_hints(method, localns=vars(hub))
    except NameError:  # an annotation that only type checkers can read
        types = {}
    fields: list[Any] = []
    for parameter in parameters:
        wanted = types.get(parameter.name, Any)
        required = parameter.default is parameter.empty
        fields.append(
            (parameter.name, wanted) if required else (parameter.name, wanted, parameter.default)
        )
    return msgspec.defstruct(
        f"{kind.__name__}_{method.__name__}",
        fields,
        rename="camel",
        forbid_unknown_fields=True,
        kw_only=True,
    )


# --- A harness: runs work on a hub, and tells its phases, tasks and agents.


class Harness(Component):
    """A component that is created from an input, attached to, and run.

    The steps name no code: a subclass says what is made of the input (`begin`) and what a run
    does (`work`).
    """

    def __init__(self, hub: SessionHub, scenario: str) -> None:
        super().__init__(hub, scenario)
        self._name: str | None = None
        self._runs = 0
        self._attached: list[Callable[[], None]] = []
        self.state: Any = None
        self.result: Any = None

    def begin(self, given: dict[str, Any]) -> Any:
        """The state that a harness begins with."""
        return given

    async def work(self) -> Any:
        """What a run does; what comes back is its result."""
        return None

    def observe(self) -> dict[str, Any]:
        """Also the state, and what the run came to."""
        return {**super().observe(), "state": self.state, "result": self.result}

    @step
    def create(self, name: str, input: dict[str, Any]) -> None:  # noqa: A002 - as the files write it
        """Make a harness."""
        self._name = name
        self.state = self.begin(input)

    @step
    def attach(self) -> None:
        """Give the hub to somebody who listens until the run is over."""
        self._attached.append(self.hub.subscribe(_ignore))

    @step
    async def run(self) -> Any:
        """Run it, and tell its beginning and its end, whatever happens."""
        if self._name is None:
            raise UsageError("there is no harness yet", hint="the step create comes first")
        self.hub.set_status("running")
        began = self.hub.emit("harness:start", {"name": self._name}).ts
        success = False
        try:
            self.result = await self.work()
            success = True
        finally:
            self.hub.set_status("complete" if success else "idle")
            took = self.hub.now() - began
            self.hub.emit("harness:complete", {"success": success, "durationMs": took})
            for stop in self._attached:
                stop()
        return self.result

    async def phase(self, name: str, work: Callable[[], object]) -> Any:
        """Do work that belongs together; what is told inside carries its name."""
        return await self._tell("phase", {"name": name}, {"phase": {"name": name}}, work)

    async def task(self, task_id: str, work: Callable[[], object]) -> Any:
        """Do one piece of work; what is told inside carries its id."""
        return await self._tell("task", {"taskId": task_id}, {"task": {"id": task_id}}, work)

    async def agent(self, name: str, work: Callable[[str, Inbox], object]) -> Any:
        """Let an agent work under an id of its own, with an inbox for messages to it."""
        run_id = f"run-{self._runs}"
        self._runs += 1
        about = {"agentName": name, "runId": run_id}
        inbox = self.hub.open_inbox(run_id)
        self.hub.emit("agent:start", about)
        try:
            result = await _settle(work(run_id, inbox))
        except Exception as error:
            self.hub.emit("agent:complete", {**about, "success": False})
            self.hub.emit("agent:failed", {**about, "error": str(error)})
            raise
        self.hub.emit("agent:complete", {**about, "success": True})
        return result

    async def _tell(
        self, kind: str, about: dict[str, Any], scope: dict[str, Any], work: Callable[[], object]
    ) -> Any:
        """Do something, and tell its beginning and its end, both outside its own context."""
        self.hub.emit(f"{kind}:start", about)
        try:
            with self.hub.scoped(**scope):
                result = await _settle(work())
        except Exception as error:
            self.hub.emit(f"{kind}:failed", {**about, "error": str(error)})
            raise
        came = {} if kind == "phase" or result is None else {"result": result}
        self.hub.emit(f"{kind}:complete", {**about, **came})
        return result


async def _settle(answer: object) -> Any:
    return await answer if isawaitable(answer) else answer


def _ignore(_: object) -> None:
    """A listener that was attached and has nothing to say."""
