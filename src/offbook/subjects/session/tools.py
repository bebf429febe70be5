"""What a tool gives back, in every shape that people write it in."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, isawaitable, signature
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import UsageError, did_you_mean
from offbook.exchange.messages import Content, Image, RawBlock, Text, join_text
from offbook.exchange.model import Tool

if TYPE_CHECKING:
    from collections.abc import Collection

    from offbook.subjects.session.hooks import Context


# --- What a tool gives back, in every shape that people write it in.


class ToolOutcome(msgspec.Struct, frozen=True):
    """What a tool gave back: its content for the model, details for everybody else."""

    content: tuple[Content, ...] = ()
    details: Any = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """The text of it."""
        return join_text(self.content)


OUTCOME_KEYS = {"content", "details", "is_error", "isError"}
OUTCOME_SHAPES = (
    'give a string, an Outcome, or {"content": [{"type": "text", "text": …}], "details": …}'
)


def to_tool_outcome(value: object, where: str) -> ToolOutcome:
    """Read a tool's answer: a string, an `Outcome`, or a dict in the shape of one."""
    if isinstance(value, str):
        return ToolOutcome((Text(value),), {})
    if isinstance(value, ToolOutcome):
        return value
    if value is None:
        return ToolOutcome((), {})
    if isinstance(value, Mapping):
        return _from_dict(cast("Mapping[str, Any]", value), where)
    raise UsageError(
        f"a {type(value).__name__} is no tool result", where=where, hint=OUTCOME_SHAPES
    )


def _from_dict(value: Mapping[str, Any], where: str) -> ToolOutcome:
    unknown = set(value) - OUTCOME_KEYS
    if unknown or "content" not in value:
        wrong = f"unknown key {min(map(str, unknown))!r} in" if unknown else "no 'content' in"
        raise UsageError(f"{wrong} a tool result", where=where, hint=OUTCOME_SHAPES)
    content = value["content"]
    blocks: Sequence[object] = [content] if isinstance(content, str) else content
    if not isinstance(blocks, (list, tuple)):
        raise UsageError(
            f"the 'content' of a tool result is a {type(blocks).__name__}",
            where=where,
            hint=OUTCOME_SHAPES,
        )
    failed = bool(value.get("is_error", value.get("isError", False)))
    return ToolOutcome(tuple(_block(b, where) for b in blocks), value.get("details", {}), failed)


def _block(value: object, where: str) -> Content:
    if isinstance(value, (Text, Image, RawBlock)):
        return value
    if isinstance(value, str):
        return Text(value)
    try:
        return msgspec.convert(value, Content)  # pyright: ignore[reportArgumentType, reportReturnType] - msgspec takes unions
    except msgspec.ValidationError as error:
        raise UsageError(
            f"a content block is wrong: {error}", where=where, hint=OUTCOME_SHAPES
        ) from error


# --- Functions that tests write may leave out the arguments that they do not need.

POSITIONAL = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}


def fit_arity(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, given only as many arguments as it takes."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # a function of C that does not tell
        return function
    if any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters):
        return function
    taken = sum(parameter.kind in POSITIONAL for parameter in parameters)

    def fitted(*args: Any) -> Any:
        return function(*args[:taken])

    return fitted


# --- Parameters are checked against the tool's JSON schema. The door of jsonschema-rs.

Validator = Callable[[dict[str, Any]], "str | None"]


def compile_schema(schema: dict[str, Any], where: str) -> Validator:
    """A function that tells what is wrong with the parameters, or None."""
    try:
        raw = msgspec.json.encode(schema, order="sorted")
    except (TypeError, msgspec.MsgspecError) as error:
        raise UsageError(f"the schema is not JSON: {error}", where=where) from error
    return _compiled(raw, where)


@functools.lru_cache(maxsize=512)
def _compiled(raw: bytes, where: str) -> Validator:
    import jsonschema_rs

    try:
        validator = jsonschema_rs.validator_for(raw.decode())
    except (jsonschema_rs.ValidationError, ValueError) as error:
        message = str(error).splitlines()[0]
        raise UsageError(
            f"the parameters' schema is wrong: {message}",
            where=where,
            hint='give a JSON schema: {"type": "object", "properties": {…}, "required": […]}',
        ) from error

    def check(params: dict[str, Any]) -> str | None:
        if validator.is_valid(params):
            return None
        return "; ".join(
            f"{'.'.join(map(str, error.instance_path)) or 'parameters'}: {error.message}"
            for error in validator.iter_errors(params)
        )

    return check


# --- The tools of a session: registered, checked, mocked, and run.

ToolFunction = Callable[..., object]
ANY_OBJECT: dict[str, Any] = {"type": "object"}


class RegisteredTool(msgspec.Struct, frozen=True):
    """A tool that can be run: what the model sees of it, who brought it, and what it does."""

    tool: Tool
    execute: ToolFunction
    owner: str
    validator: Validator
    mocked: bool = False


class ToolRegistry:
    """All tools of a session, by name; some may be switched off, some may be mocked."""

    def __init__(self, mocks: Mapping[str, Any], *, mock_extensions: bool) -> None:
        self._tools: dict[str, RegisteredTool] = {}
        self._active: set[str] | None = None
        self._mocks = {_name(name): MockTool(name, handler) for name, handler in mocks.items()}
        self._mock_extensions = mock_extensions
        self._offered: tuple[Tool, ...] | None = None

    def add(self, tool: Tool, execute: ToolFunction, owner: str) -> None:
        """Register a tool; an extension's comes in the place of a built-in of the same name."""
        there = self._tools.get(tool.name)
        if there is not None and "" not in {there.owner, owner}:
            raise UsageError(
                f"the tool {tool.name!r} is registered twice",
                where=owner,
                hint=f"{there.owner} has it already: rename one",
            )
        validator = compile_schema(tool.schema or ANY_OBJECT, f"{owner or 'offbook'}: {tool.name}")
        self._tools[tool.name] = RegisteredTool(tool, execute, owner, validator)
        self._offered = None

    def find(self, name: str) -> RegisteredTool | None:
        """The tool of this name as it will run: the real one, or its mock."""
        if self._active is not None and name not in self._active:
            return None
        real = self._tools.get(name)
        mock = self._mocks.get(name)
        if mock is None or (real and real.owner and not self._mock_extensions):
            return real
        if real is None:
            tool = Tool(name, "", ANY_OBJECT)
            return RegisteredTool(tool, mock.run, "", compile_schema(ANY_OBJECT, name), mocked=True)
        return RegisteredTool(real.tool, mock.run, real.owner, real.validator, mocked=True)

    def activate(self, names: Collection[str] | None) -> None:
        """Offer only these to the model; None offers all."""
        for name in names or ():
            if name not in self.names():
                raise UsageError(
                    f"set_active_tools: there is no {name!r}", hint=did_you_mean(name, self.names())
                )
        self._active = None if names is None else set(names)
        self._offered = None

    def names(self) -> set[str]:
        """All names, switched off or not."""
        return self._tools.keys() | self._mocks.keys()

    def offered(self) -> tuple[Tool, ...]:
        """What the model is offered now."""
        if self._offered is None:
            found = (self.find(name) for name in sorted(self.names()))
            self._offered = tuple(registered.tool for registered in found if registered)
        return self._offered

    def unused(self) -> dict[str, str]:
        """The mocks that were never asked for, each with who has the real tool."""
        return {
            name: self._tools[name].owner if name in self._tools else ""
            for name, mock in self._mocks.items()
            if not mock.used
        }


def _name(name: object) -> str:
    if isinstance(name, str) and name:
        return name
    raise UsageError(
        f"mock_tools has the key {name!r}, which names no tool", hint='write {"bash": "ok"}'
    )


class MockTool:
    """A tool's stand-in: a text, a full result, or a function of the parameters (or of none)."""

    def __init__(self, name: str, handler: object) -> None:
        self._where = f"mock_tools[{name!r}]"
        self._handler = fit_arity(handler) if callable(handler) else None
        self._static = None if callable(handler) else to_tool_outcome(handler, self._where)
        self.used = 0

    async def run(self, params: dict[str, Any], context: Context) -> ToolOutcome:  # noqa: ARG002 - a tool's signature
        """What the stand-in answers; what it raises becomes an error result."""
        self.used += 1
        if self._handler is None:
            return self._static or ToolOutcome()
        try:
            answer = self._handler(params)
            if isawaitable(answer):
                answer = await answer
            return to_tool_outcome(answer, self._where)
        except Exception as error:  # noqa: BLE001 - a mock that throws leaves an error result
            return to_tool_outcome(
                {"content": describe_exception(error), "is_error": True}, self._where
            )


def describe_exception(error: BaseException) -> str:
    """An exception, in one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
