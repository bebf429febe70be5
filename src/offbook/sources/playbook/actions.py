"""The words of a playbook: what the model does, on what prompt, in which part."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, cast, get_args

import msgspec

from offbook.errors import PlaybookError, did_you_mean, explain_call
from offbook.exchange.messages import ToolResult
from offbook.exchange.model import StopReason

if TYPE_CHECKING:
    from offbook.exchange.model import Request


Params = Mapping[str, Any]
LateParams = Callable[[], "Params | Awaitable[Params]"]
Callback = Callable[[ToolResult], object]


class Call(msgspec.Struct, frozen=True):
    """The model calls a tool."""

    tool: str
    params: Params | LateParams
    callbacks: tuple[Callback, ...] = ()

    def then(self, callback: Callback) -> Call:
        """Hand the tool's result to `callback` once it is there; what it raises fails the run.

        Several callbacks are asked in the order in which they were added.
        """
        if not callable(callback) or not _takes(callback, 1):
            raise PlaybookError(
                f"call({self.tool!r}, …).then() takes a function of the result",
                hint=f"write call({self.tool!r}, …).then(lambda result: …)",
            )
        return msgspec.structs.replace(self, callbacks=(*self.callbacks, callback))


class Say(msgspec.Struct, frozen=True):
    """The model says something; on its own, that ends the turn."""

    text: str
    stop: StopReason = "stop"


class Think(msgspec.Struct, frozen=True):
    """The model thinks before whatever comes next in the same message."""

    text: str


class Fail(msgspec.Struct, frozen=True):
    """The provider answers with an error."""

    message: str
    status: int
    category: str
    retry_after: float | None


Action = Call | Say | Think | Fail
Actions = Sequence["Action | Sequence[Action]"]


class Turn(msgspec.Struct, frozen=True):
    """A prompt, and what the model does about it."""

    text: str
    actions: Actions


Match = str | re.Pattern[str]


class Role(msgspec.Struct, frozen=True):
    """A part in the cast: what it does, and by what its requests are known."""

    name: str
    actions: Actions
    system: Match | None = None
    model: Match | None = None
    tools: tuple[str, ...] | None = None
    first: Match | None = None

    def plays(self, request: Request) -> bool:
        """Whether this request is one of this role's."""
        return (
            _fits(self.system, request.system)
            and _fits(self.model, request.model)
            and _fits(self.first, request.first_prompt)
            and (self.tools is None or set(self.tools) <= set(request.tool_names))
        )

    def misfits(self, request: Request) -> list[tuple[str, object, object]]:
        """What this request would need to be one of this role's: by what, wanted, came."""
        asked: list[tuple[str, Any, Any]] = [
            (name, getattr(self, name), getattr(request, name))
            for name in ("system", "model", "first")
        ]
        found = [(by, wanted, came) for by, wanted, came in asked if not _fits(wanted, came)]
        if self.tools is not None and not set(self.tools) <= set(request.tool_names):
            found.append(("tools", self.tools, request.tool_names))
        return found


def _fits(match: Match | None, text: str) -> bool:
    if match is None:
        return True
    return match in text if isinstance(match, str) else match.search(text) is not None


def _takes(function: Callable[..., object], count: int) -> bool:
    """Whether a function can be called with so many arguments; one that hides it can."""
    try:
        signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a function of C that does not tell
        return True
    return True


@explain_call
def when(text: str, actions: Actions) -> Turn:
    """On this prompt, the model does these things, one after the other."""
    if not isinstance(text, str):
        raise PlaybookError(
            f"when() takes the prompt first, a string, not {type(text).__name__}",
            hint='write when("what the user says", [call(…), say(…)])',
        )
    return Turn(text, _listed(actions, f"when({text!r}, …)"))


@explain_call
def call(tool: str, params: Params | LateParams | None = None) -> Call:
    """The model calls `tool`; a function gives the parameters when the call's turn comes."""
    if not isinstance(tool, str) or not tool:
        raise PlaybookError("call() takes the tool's name first", hint='write call("bash", {…})')
    if params is not None and not callable(params) and not isinstance(params, Mapping):
        raise PlaybookError(
            f"call({tool!r}, …) takes a dict or a function, not {type(params).__name__}",
            hint=f'write call({tool!r}, {{"name": value}}) or call({tool!r}, lambda: {{…}})',
        )
    if callable(params) and not _takes(params, 0):
        raise PlaybookError(
            f"the function of call({tool!r}, …) takes arguments, but is given none",
            hint=f"write call({tool!r}, lambda: {{…}}); it can see what .then() has kept",
        )
    if params is None or callable(params):
        return Call(tool, params or {})
    return Call(tool, check_names(params, tool))


def check_names(params: Mapping[Any, Any], tool: str) -> Params:
    """The parameters, all of them named by strings."""
    odd = next((key for key in params if not isinstance(key, str)), None)
    if odd is not None:
        raise PlaybookError(
            f"a parameter of call({tool!r}, …) is named {odd!r}, a {type(odd).__name__}",
            hint="parameters are named by strings",
        )
    try:
        _spell(params)
    except (TypeError, ValueError, RecursionError) as error:
        raise PlaybookError(
            f"the parameters of call({tool!r}, …) are not what a model can write: {error}",
            hint="give texts, numbers, lists and dicts, as JSON has them",
        ) from error
    return params


_spell = msgspec.json.Encoder().encode


@explain_call
def say(text: str, *, stop: StopReason = "stop") -> Say:
    """The model says `text`, and the turn ends."""
    if not isinstance(text, str):
        raise PlaybookError(f"say() takes a string, not {type(text).__name__}", hint='say("Done.")')
    if stop not in get_args(StopReason):
        raise PlaybookError(
            f"say(stop={stop!r})", hint=did_you_mean(str(stop), get_args(StopReason))
        )
    return Say(text, stop)


@explain_call
def think(text: str) -> Think:
    """The model thinks `text` before the next step."""
    if not isinstance(text, str):
        raise PlaybookError(
            f"think() takes a string, not {type(text).__name__}", hint='think("Let me see.")'
        )
    return Think(text)


@explain_call
def fail(
    message: str = "the model is overloaded",
    *,
    status: int = 529,
    category: str = "",
    retry_after: float | None = None,
) -> Fail:
    """The provider answers this request with an error."""
    if not isinstance(message, str) or not isinstance(status, int) or isinstance(status, bool):
        raise PlaybookError(
            f"fail() takes a message and a status, not {type(message).__name__} and {status!r}",
            hint='write fail("overloaded", status=529)',
        )
    if status not in range(400, 600):
        raise PlaybookError(
            f"fail(status={status}) is no error", hint="errors have a status from 400 to 599"
        )
    if not isinstance(category, str):
        raise PlaybookError(f"fail(category={category!r})", hint='give category="rate_limit"')
    if retry_after is not None and not (isinstance(retry_after, (int, float)) and retry_after >= 0):
        raise PlaybookError(f"fail(retry_after={retry_after!r})", hint="give seconds, 0 or more")
    return Fail(message, status, category, retry_after)


@explain_call
def role(
    name: str,
    actions: Actions,
    *,
    system: Match | None = None,
    model: Match | None = None,
    tools: Iterable[str] | None = None,
    first: Match | None = None,
) -> Role:
    """A part for requests known by their system prompt, model, tools or first user message.

    Strings match when they are contained, patterns when they are found, tools when all of them
    are offered. Each `say` ends one conversation of the role; the next one goes on from there.
    """
    place = f"role({name!r}, …)"
    if not isinstance(name, str) or not name:
        raise PlaybookError(
            "role() takes its name first", hint='write role("researcher", […], system="…")'
        )
    if system is None and model is None and tools is None and first is None:
        raise PlaybookError(
            f"{place} has nothing to be known by", hint="give it system=, model=, tools= or first="
        )
    for by, match in (("system", system), ("model", model), ("first", first)):
        if match is not None and not isinstance(match, (str, re.Pattern)):
            raise PlaybookError(
                f"{place}: {by} is a {type(match).__name__}", hint=f'give {by}="…" or re.compile(…)'
            )
    steps = _listed(actions, place)
    if not steps:
        raise PlaybookError(f"{place} has no actions", hint="let it end with say(…)")
    return Role(name, steps, system, model, _names(tools, place), first)


def _names(tools: Iterable[str] | None, place: str) -> tuple[str, ...] | None:
    if tools is None:
        return None
    if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
        kind = type(cast("object", tools)).__name__
        raise PlaybookError(f"{place}: tools is a {kind}", hint='give tools=["…"]')
    return tuple(tools)


def _listed(actions: object, where: str) -> Actions:
    if isinstance(actions, (Call, Say, Think, Fail)) or not isinstance(actions, Sequence):
        raise PlaybookError(
            f"{where} takes a list of actions, not {type(actions).__name__}",
            hint="put the actions into [ … ]",
        )
    checked: list[Action | tuple[Action, ...]] = []
    for at, action in enumerate(cast("Sequence[object]", actions), 1):
        group = isinstance(action, (list, tuple))
        if group:
            _check_group(cast("Sequence[object]", action), f"action {at} of {where}")
        for part in cast("Sequence[object]", action) if group else (action,):
            if not isinstance(part, (Call, Say, Think, Fail)):
                raise PlaybookError(
                    f"action {at} of {where} is a {type(part).__name__}",
                    hint="actions are call(…), say(…), think(…), fail(…), or a list of them",
                )
        checked.append(cast("Any", tuple(cast("list[Action]", action)) if group else action))
    return tuple(checked)


def _check_group(group: Sequence[object], where: str) -> None:
    if not group:
        raise PlaybookError(f"{where} is an empty list", hint="a list is one message: fill it")
    if len(group) > 1 and any(isinstance(part, Fail) for part in group):
        raise PlaybookError(
            f"{where} fails and says something", hint="let fail(…) stand alone: it is no message"
        )
