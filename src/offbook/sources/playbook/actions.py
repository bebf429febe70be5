"""The words of a playbook (`when`, `call`, `say`, `think`, `fail`, `person`, `role`); its steps.

Each word checks its arguments immediately, so a mistake is reported at the line that contains it
and not in the middle of a run.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import msgspec

from offbook.errors import (
    MAX_RETRY_AFTER,
    OffbookWarning,
    PlaybookError,
    did_you_mean,
    explain_call,
)

# Messages and models are not imported: a module with tests is collected 15 ms faster.
if TYPE_CHECKING:
    from offbook.exchange.messages import ToolResult
    from offbook.exchange.model import Request
    from offbook.exchange.people import PersonQuestion


Params = Mapping[str, Any]
# Called when the step is reached, so that it can use the results of earlier calls.
LateParams = Callable[[], "Params | Awaitable[Params]"]
Callback = Callable[["ToolResult"], object]
Raises = type[Exception] | tuple[type[Exception], ...]
Match = str | re.Pattern[str]

_encode_json = msgspec.json.Encoder().encode


class _ScriptUse:
    """Whether a call is part of a script, and the calls that `.then()` made of it."""

    __slots__ = ("in_script", "made")

    def __init__(self) -> None:
        self.in_script = False
        self.made: list[_ScriptUse] = []

    def __eq__(self, other: object) -> bool:  # calls are compared by what they do
        return isinstance(other, _ScriptUse)

    def __hash__(self) -> int:
        return 0

    def reaches_script(self) -> bool:
        return self.in_script or any(use.reaches_script() for use in self.made)

    def mark_as_reported(self) -> None:
        self.in_script = True
        for use in self.made:
            use.mark_as_reported()


class _ThenUse(_ScriptUse):
    """The same of a call that `.then()` made; one that no script ever contained is reported."""

    __slots__ = ("tool",)

    def __init__(self, tool: str) -> None:
        super().__init__()
        self.tool = tool

    # As Python does with a coroutine that was never awaited.
    def __del__(self) -> None:
        if not (self.in_script or self.made or sys.is_finalizing()):
            fact = f"the check of call({self.tool!r}, …).then() never ran: no script has the call"
            warnings.warn(fact, OffbookWarning, stacklevel=2)


class Call(msgspec.Struct, frozen=True):
    """The model calls a tool. The agent must send its result back, unless it is `unanswered`."""

    tool: str
    params: Params | LateParams
    callbacks: tuple[Callback, ...] = ()
    unanswered: bool = False
    raises: Raises | None = None
    unknown: bool = False
    invalid: bool | None = False  # None in a recorded script: its arguments are not checked
    use: _ScriptUse = msgspec.field(default_factory=_ScriptUse)

    def then(self, callback: Callback) -> Call:
        """Pass the tool's result to `callback` when it arrives; an exception fails the run.

        Several callbacks run in the order in which they were added.
        """
        if not callable(callback) or not _accepts(callback, 1):
            raise PlaybookError(
                f"call({self.tool!r}, …).then() takes a function of the result",
                hint=f"write call({self.tool!r}, …).then(lambda result: …)",
            )
        if self.unanswered:
            raise PlaybookError(
                f"call({self.tool!r}, …, unanswered=True) has no result to pass to .then()",
                hint="remove unanswered=True, or .then(…)",
            )
        use = _ThenUse(self.tool)
        self.use.made.append(use)
        return msgspec.structs.replace(self, callbacks=(*self.callbacks, callback), use=use)

    def raise_if_then_was_dropped(self, where: str) -> None:
        """Raise an error if this call is in the script in place of the one with its `.then()`."""
        if not self.use.made or all(use.reaches_script() for use in self.use.made):
            return
        self.use.mark_as_reported()
        raise PlaybookError(
            f"a .then() of call({self.tool!r}, …) is not part of the script",
            where=where,
            hint=".then() returns a new action: write action = action.then(…)",
        )


# The stop reasons of a reply, and "cut": such a stream has none, because its end never comes.
ScriptedStop = Literal["stop", "tool_use", "length", "stop_sequence", "refusal", "error", "cut"]
STOPS = get_args(ScriptedStop)


class Say(msgspec.Struct, frozen=True):
    """The model says a text. Most agents stop at a message without a tool call."""

    text: str
    stop: ScriptedStop = "stop"


class Think(msgspec.Struct, frozen=True):
    """The model thinks before the next action, in the same message."""

    text: str


class Fail(msgspec.Struct, frozen=True):
    """The provider answers with an error."""

    message: str
    status: int
    category: str
    retry_after: float | None


class Person(msgspec.Struct, frozen=True):
    """A person answers a question of the agent, between two messages of the model."""

    about: Match
    answer: Any

    def matches(self, question: PersonQuestion) -> bool:
        """Return whether it answers a question: by the name of the tool, or by its text."""
        if isinstance(self.about, str) and self.about == question.tool:
            return True
        return _matches(self.about, question.text)


Action = Call | Say | Think | Fail | Person
ACTION_KINDS = (Call, Say, Think, Fail, Person)
# Each entry is one message of the model: an action, or a list of them.
Actions = Sequence["Action | Sequence[Action]"]


class Turn(msgspec.Struct, frozen=True):
    """A prompt, and the actions that the model answers it with."""

    text: str
    actions: Actions


class Role(msgspec.Struct, frozen=True):
    """A script for requests of one kind, and the conditions by which they are recognised."""

    name: str
    actions: Actions
    system: Match | None = None
    model: Match | None = None
    tools: tuple[str, ...] | None = None
    first: Match | None = None
    hat: str | None = None  # of a loop, exactly

    def matches(self, request: Request) -> bool:
        """Return whether the request belongs to this role."""
        return not self.mismatches(request)

    def mismatches(self, request: Request) -> list[tuple[str, object, object]]:
        """Return the conditions that the request misses, as (name, expected, got)."""
        mismatches: list[tuple[str, object, object]] = [
            (name, expected, text)
            for name, expected, text in (
                ("system", self.system, request.system),
                ("model", self.model, request.model),
                ("first", self.first, request.first_prompt),
            )
            if not _matches(expected, text)
        ]
        if self.tools is not None and not set(self.tools) <= set(request.tool_names):
            mismatches.append(("tools", self.tools, request.tool_names))
        if self.hat is not None and self.hat != (hat := request.metadata.get("hat")):
            mismatches.append(("hat", self.hat, hat))
        return mismatches


def _matches(match: Match | None, text: str) -> bool:
    if match is None:
        return True
    return match in text if isinstance(match, str) else match.search(text) is not None


def group_actions(action: Action | Sequence[Action]) -> Sequence[Action]:
    """Return the actions of one message: a list is a group, a bare action is a group of one."""
    given: Any = action
    return (given,) if type(given) in ACTION_KINDS else given


def list_called_tools(script: Iterable[Turn | Role]) -> set[str]:
    """Return the names of all tools that a script calls."""
    return {
        action.tool
        for entry in script
        for message in entry.actions
        for action in group_actions(message)
        if type(action) is Call  # quicker than `isinstance`, for each run
    }


@explain_call
def when(text: str, actions: Actions) -> Turn:
    """Script the model's answer to a prompt: these actions, one message each.

    A list inside the list is one message: `[call("a"), call("b")]` calls two tools at once. The
    list may be empty if roles answer the requests.
    """
    if not isinstance(text, str):
        raise PlaybookError(
            f"when() takes the prompt first, a string, not {type(text).__name__}",
            hint='write when("the user\'s prompt", [call(…), say(…)])',
        )
    require_condition(text, "when() has an empty prompt")
    return Turn(text, _check_actions(actions, f"when({text!r}, …)"))


@explain_call
def call(
    tool: str,
    params: Params | LateParams | None = None,
    *,
    unanswered: bool = False,
    unknown: bool = False,
    invalid: bool = False,
    raises: Raises | None = None,
) -> Call:
    """Let the model call `tool`. A function as `params` is called when the step is reached.

    The run fails if the result never comes back. `unanswered=True` is for a call with which the
    agent ends, such as that of an output tool. With `unknown=True` the model calls a tool that the
    agent does not offer, with `invalid=True` it sends arguments that the tool's schema forbids. The
    run also fails if the tool raises an exception other than those of `raises`, even if the
    framework turns it into a result.
    """
    if not isinstance(tool, str) or not tool:
        raise PlaybookError("call() takes the tool's name first", hint='write call("bash", {…})')
    if unanswered is not False or unknown is not False or invalid is not False:
        for option, value in {
            "unanswered": unanswered,
            "unknown": unknown,
            "invalid": invalid,
        }.items():
            if not isinstance(value, bool):
                raise PlaybookError(
                    f"expected a bool: call({tool!r}, {option}={value!r})",
                    hint=f"write {option}=True",
                )
    if raises is not None:
        for kind in raises if isinstance(raises, tuple) else (raises,):
            if not isinstance(kind, type) or not issubclass(kind, Exception):
                raise PlaybookError(
                    f"call({tool!r}, …, raises=…) takes a class of exceptions, not {kind!r}",
                    hint=f"write call({tool!r}, …, raises=ValueError)",
                )
    options = ((), unanswered, raises, unknown, invalid)
    if params is None:
        return Call(tool, {}, *options)
    if isinstance(params, dict):  # almost every call, and `Mapping` is slower to test
        return Call(tool, check_params(cast("Params", params), tool), *options)
    if callable(params):
        if not _accepts(params, 0):
            raise PlaybookError(
                f"the function in call({tool!r}, …) must not take arguments",
                hint=f"write call({tool!r}, lambda: {{…}}); it can read variables set in .then()",
            )
        return Call(tool, params, *options)
    if not isinstance(params, Mapping):
        raise PlaybookError(
            f"call({tool!r}, …) takes a dict or a function, not {type(params).__name__}",
            hint=f'write call({tool!r}, {{"name": value}}) or call({tool!r}, lambda: {{…}})',
        )
    return Call(tool, check_params(params, tool), *options)


def check_params(params: Mapping[Any, Any], tool: str) -> Params:
    """Return the parameters of a call, or raise if JSON cannot represent them."""
    for key in params:
        if not isinstance(key, str):
            raise PlaybookError(
                f"parameter names of call({tool!r}, …) must be strings, got {key!r}",
                hint=f'write call({tool!r}, {{"name": value}})',
            )
    try:
        _encode_json(params)
    except UnicodeEncodeError:  # half a character: JSON has an escape for it
        return params
    except (TypeError, ValueError, RecursionError) as error:
        raise PlaybookError(
            f"the parameters of call({tool!r}, …) are not JSON: {error}",
            hint="use strings, numbers, booleans, None, lists and dicts",
        ) from error
    return params


def _accepts(function: Callable[..., object], count: int) -> bool:
    """Return whether a function accepts `count` positional arguments."""
    from inspect import signature

    try:
        signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # builtins written in C may have no signature: give them a try
        return True
    return True


@explain_call
def say(text: str, *, stop: ScriptedStop = "stop") -> Say:
    """Let the model say `text`; most agents stop at a text without a tool call.

    With `stop="cut"` the stream ends after the text, without the events that end a message; a
    request without a stream gets a closed connection.
    """
    if not isinstance(text, str):
        raise PlaybookError(f"say() takes a string, not {type(text).__name__}", hint='say("Done.")')
    _check_text(text, "say()")
    if stop not in STOPS:  # a playbook is often written without a type checker
        raise PlaybookError(
            f"unknown stop reason: say(stop={stop!r})",
            hint=did_you_mean(str(stop), STOPS),
        )
    return Say(text, stop)


def _check_text(text: str, where: str) -> None:
    """Raise for a text that no provider could send."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PlaybookError(
            f"{where}: the text has a lone surrogate, {text[error.start]!r}, which is not UTF-8",
            hint="remove it, or write the whole character",
        ) from None


@explain_call
def think(text: str) -> Think:
    """Let the model think `text` before the next action."""
    if not isinstance(text, str):
        raise PlaybookError(
            f"think() takes a string, not {type(text).__name__}", hint='think("Let me see.")'
        )
    _check_text(text, "think()")
    return Think(text)


@explain_call
def fail(
    message: str = "the model is overloaded",
    *,
    status: int = 529,
    category: str = "",
    retry_after: float | None = None,
) -> Fail:
    """Let the provider answer the request with an error."""
    # A bool is an int in Python, but never meant as a status.
    if not isinstance(message, str) or not isinstance(status, int) or isinstance(status, bool):
        raise PlaybookError(
            f"fail() takes a message and a status, not {type(message).__name__} and {status!r}",
            hint='write fail("overloaded", status=529)',
        )
    if status not in range(400, 600):
        raise PlaybookError(
            f"fail(status={status}) is not an error status", hint="use a status from 400 to 599"
        )
    if not isinstance(category, str):
        raise PlaybookError(
            f"expected a string: fail(category={category!r})", hint='write category="rate_limit"'
        )
    if retry_after is not None and not (
        isinstance(retry_after, (int, float)) and 0 <= retry_after <= MAX_RETRY_AFTER
    ):
        raise PlaybookError(
            f"expected seconds: fail(retry_after={retry_after!r})", hint="use a number from 0 up"
        )
    return Fail(message, status, category, retry_after)


@explain_call
def person(about: Match, answer: Any) -> Person:
    """Let a person answer a question of the agent, after the action before it.

    `about` is the name of the tool that needs an approval, or a part of the question. The answer is
    `allow`, `allow({…})` with other parameters, `deny`, `deny("reason")`, or a value.
    """
    if not isinstance(about, (str, re.Pattern)):
        raise PlaybookError(
            "person() takes a tool or a part of the question first",
            hint='write person("refund", allow) or person("Which account?", "7")',
        )
    require_condition(about, "person() has an empty question")
    if answer is None:
        raise PlaybookError(f"person({about!r}, …) has no answer", hint="use allow, deny or a text")
    return Person(about, answer)


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
    """Script the requests that match a system prompt, model, tools or first user message.

    A string matches if the text contains it, a pattern if it is found in the text, `tools` if the
    request offers all of them. A `say` ends one conversation of the role; the next conversation
    continues with the action after it. When all actions are used, matching requests belong to the
    next role that matches, or to the turn if they are of its conversation.
    """
    where = f"role({name!r}, …)"
    if not isinstance(name, str) or not name:
        raise PlaybookError(
            "role() takes its name first", hint='write role("researcher", […], system="…")'
        )
    if (system, model, tools, first) == (None,) * 4:
        raise PlaybookError(
            f"{where} has no condition to match requests by",
            hint="add system=, model=, tools= or first=",
        )
    for option, match in (("system", system), ("model", model), ("first", first)):
        if match is not None and not isinstance(match, (str, re.Pattern)):
            raise PlaybookError(
                f"{where}: {option} must be a string or a pattern, got {type(match).__name__}",
                hint=f'write {option}="…" or {option}=re.compile(…)',
            )
        require_condition(match, f"{where} has an empty {option}")
    if tools is not None:
        # a string is iterable too, and never meant
        if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
            kind = type(cast("object", tools)).__name__
            raise PlaybookError(
                f"{where}: tools must be a list of names, got {kind}", hint='write tools=["…"]'
            )
        tools = tuple(tools)
        require_condition(tools, f"{where} has an empty list of tools")
    checked = _check_actions(actions, where)
    if not checked:
        raise PlaybookError(f"{where} has no actions", hint="end it with say(…)")
    return Role(name, checked, system, model, tools, first)


def require_condition(match: Match | Sequence[str] | None, what: str) -> None:
    """Raise for a condition that everything fulfils."""
    value = match.pattern if isinstance(match, re.Pattern) else match
    if value is not None and not (value.strip() if isinstance(value, str) else value):
        raise PlaybookError(f"{what}, which matches everything", hint="write what to match")


def _check_actions(actions: object, where: str) -> Actions:
    """Return the actions as tuples, or raise for anything that is not an action."""
    # The forgotten brackets of when("…", say("…")) are the most frequent mistake.
    if not isinstance(actions, (list, tuple)) and (
        isinstance(actions, ACTION_KINDS) or not isinstance(actions, Sequence)
    ):
        raise PlaybookError(
            f"{where} takes a list of actions, not {type(actions).__name__}",
            hint="put the actions into [ … ]",
        )
    checked: list[Action | tuple[Action, ...]] = []
    for number, entry in enumerate(cast("Sequence[Any]", actions), 1):
        if type(entry) in ACTION_KINDS:
            if type(entry) is Call:
                entry.use.in_script = True
            checked.append(entry)
        else:
            checked.append(_check_group(entry, f"action {number} of {where}"))
    return tuple(checked)


def _check_group(entry: object, what: str) -> tuple[Action, ...]:
    """Return a list of actions, which is one message, as a tuple; raise for anything else."""
    is_group = isinstance(entry, (list, tuple))
    group = cast("Sequence[object]", entry) if is_group else (entry,)
    if not group:
        raise PlaybookError(
            f"{what} is an empty list", hint="a list is one message: add an action to it"
        )
    kinds = [*map(type, group)]
    if len(kinds) > 1 and Person in kinds:
        raise PlaybookError(
            f"{what}: person() is not part of a message of the model",
            hint="move person(…) behind the inner list",
        )
    # A provider sends an error in place of a message, not along with one.
    if len(kinds) > 1 and Fail in kinds:
        raise PlaybookError(
            f"{what}: fail() cannot be combined with other actions",
            hint="move fail(…) out of the inner list",
        )
    for action in group:
        if type(action) not in ACTION_KINDS:
            raise PlaybookError(
                f"{what}: expected an action, got {type(action).__name__}",
                hint="actions are call(…), say(…), think(…), fail(…), person(…), or a list of them",
            )
        if type(action) is Call:
            action.use.in_script = True
    return cast("tuple[Action, ...]", tuple(group))


# -------------------------------------------------------------------------------- steps

TEXT_LIMIT = 60  # with a step's number and word, one line of a terminal
PARAMS_LIMIT = 80


class Step(msgspec.Struct, frozen=True):
    """One message of the model, numbered from 1 through the whole playbook.

    `location` names the turn or role that contains it: `when('Refund order 7')`.
    """

    number: int
    actions: tuple[Action, ...]
    location: str

    @property
    def is_answer(self) -> bool:
        """True for a text without a tool call."""
        return any(isinstance(action, Say) for action in self.actions) and not any(
            isinstance(action, Call) for action in self.actions
        )

    def __str__(self) -> str:
        return f"{self.number}. {' + '.join(map(describe, self.actions))}"


def describe(action: Action) -> str:
    """Render an action as its author wrote it, cut to fit a line."""
    match action:
        case Call(tool, params):
            if callable(params):
                return f'call("{tool}", <late-bound>)'
            from offbook.exchange.messages import to_json

            return f'call("{tool}", {cut_text(to_json(params).decode(), PARAMS_LIMIT)})'
        case Say(text):
            return f'say("{cut_text(text)}")'
        case Think(text):
            return f'think("{cut_text(text)}")'
        case Fail(message, status):
            return f'fail("{cut_text(message)}", status={status})'
        case Person(about, answer):
            from offbook.exchange.people import describe_answer

            shown = about if isinstance(about, str) else about.pattern
            return f'person("{cut_text(shown)}", {cut_text(describe_answer(answer))})'


def cut_text(text: str, length: int = TEXT_LIMIT) -> str:
    """Return the text, shortened to `length` characters."""
    if len(text) <= length:
        return text
    from offbook.secrets import excerpt  # of a run, not of the collection of tests

    return excerpt(text, length)


def turn_location(turn: Turn) -> str:
    """Return the name of a turn in messages."""
    return f"when({cut_text(turn.text)!r})"


def validate(
    script: Sequence[Turn | Role],
    *,
    tools: Collection[str] | None = None,
    commands: Collection[str] = (),
) -> set[str]:
    """Return the names of the tools that a script calls; raise if a turn could never run.

    `tools` are the tools of the subject, if they are known before the run. `commands` are the
    slash commands that the subject answers without a request to the model.
    """
    # What a file has besides turns and roles, `Playbook.load` refuses.
    called = list_called_tools(entry for entry in script if isinstance(entry, (Turn, Role)))
    unknown = set[str]() if tools is None else called.difference(tools)
    for turn in script:
        if not isinstance(turn, Turn):
            continue
        # Roles may answer all requests of a turn, and the agent itself a slash command.
        if not turn.actions and not any(isinstance(entry, Role) for entry in script):
            is_slash = turn.text.startswith("/")
            if is_slash and turn.text[1:].partition(" ")[0] in commands:
                continue
            hint = "add say(…), or a role(…) that answers its requests"
            if is_slash:
                hint = f"unknown command: {did_you_mean(turn.text[1:], commands)}"
            raise PlaybookError("a turn with no actions", where=turn_location(turn), hint=hint)
        for number, message in enumerate(turn.actions if unknown else (), 1):
            for action in group_actions(message):
                if type(action) is Call and action.tool in unknown and not action.unknown:
                    raise PlaybookError(
                        f"the agent has no tool {action.tool!r}",
                        where=f"{turn_location(turn)}, action {number}",
                        hint=did_you_mean(action.tool, tools or ()),
                    )
    return called


class RoleConditions(msgspec.Struct, frozen=True):
    """The parts of a request that a role has conditions for."""

    system: str
    first: str
    model: str
    tools: tuple[str, ...]


def read_head(request: Request) -> RoleConditions:
    """Return the parts of a request that a role has conditions for."""
    return RoleConditions(request.system, request.first_prompt, request.model, request.tool_names)
