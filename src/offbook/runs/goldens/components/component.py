"""What a scenario is played on: anything with a hub, whose methods are the steps."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_type_hints

import msgspec

from offbook.errors import FormatError, UsageError, nearest
from offbook.files import convert
from offbook.runs.goldens.fixture import Step

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from offbook.trace.hub import Hub, Status

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

    def __init__(self, hub: Hub, scenario: str) -> None:
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
            raise UsageError("an event needs a type", hint=nearest("type", data))
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
    def set_status(self, status: Status) -> None:
        """Say how the session stands."""
        self.hub.set_status(status)


class Handler(NamedTuple):
    """A step of a component: the method that does it, and the arguments that it takes."""

    method: str
    arguments: type[msgspec.Struct]


def steps_of(kind: type[Component]) -> dict[str, Handler]:
    """The steps that a component knows, by their type."""
    known = kind.__dict__.get("_offbook_steps")
    if known is None:
        known = {
            camel(name): Handler(name, _arguments(method, kind))
            for name, method in inspect.getmembers(kind, callable)
            if getattr(method, MARK, False)
        }
        kind._offbook_steps = known  # pyright: ignore[reportAttributeAccessIssue]  # noqa: SLF001 - computed once a class
    return known


def bind_step(kind: type[Component], one: Step) -> tuple[str, dict[str, Any]]:
    """The method and its arguments for a step; or what is wrong with the step."""
    steps = steps_of(kind)
    handler = steps.get(one["type"])
    if handler is None:
        raise UsageError(f"there is no step {one['type']!r}", hint=nearest(one["type"], steps))
    given = {key: value for key, value in one.items() if key != "type"}
    try:
        arguments = convert(given, handler.arguments)
    except FormatError as error:
        what = error.what.replace("Object", f"the step {one['type']!r}", 1)
        raise UsageError(what, hint=error.hint) from error
    return handler.method, msgspec.structs.asdict(arguments)


def write_step(kind: type[Component], method: str, args: tuple[Any, ...], named: Any) -> Step:
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
