"""The tools of a session: results, parameter validation, mocks, and the registry.

A tool is a function `(params, ctx)`. Its parameters are validated against its JSON schema before
it runs, and its return value is converted to a `ToolOutcome`. `mock_tools` replaces the function
and keeps the schema, so the model cannot distinguish a mock from the real tool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, isawaitable, signature
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import UsageError, did_you_mean
from offbook.exchange.messages import Content, Image, RawBlock, Text, join_text
from offbook.exchange.model import Tool, compile_validator

if TYPE_CHECKING:
    from collections.abc import Collection

ToolFunction = Callable[..., object]
Validator = Callable[[dict[str, Any]], "str | None"]

ANY_OBJECT: dict[str, Any] = {"type": "object"}
OUTCOME_KEYS = {"content", "details", "is_error", "isError"}
OUTCOME_SHAPES = (
    'return a string, a ToolOutcome, or {"content": [{"type": "text", "text": …}], "details": …}'
)
POSITIONAL = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}


class ToolOutcome(msgspec.Struct, frozen=True):
    """The result of a tool: content for the model, and details for hooks, tests and the trace.

        return ToolOutcome((Text("3 orders"),), details={"ids": [1, 2, 3]})

    A tool may also return a string, None, or a dict with the same fields.
    """

    content: tuple[Content, ...] = ()
    details: Any = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """The text of the content."""
        return join_text(self.content)


def error_outcome(text: str, details: Any = None) -> ToolOutcome:
    """Return an error result with this text."""
    return ToolOutcome((Text(text),), details, is_error=True)


def to_tool_outcome(value: object, where: str) -> ToolOutcome:
    """Convert a tool's return value: a string, None, a `ToolOutcome`, or a dict of its fields."""
    if isinstance(value, str):  # by far the most frequent, so it is tested first
        return ToolOutcome((Text(value),), {})
    if isinstance(value, ToolOutcome):
        return value
    if value is None:
        return ToolOutcome((), {})
    if not isinstance(value, Mapping):
        kind = type(value).__name__
        raise UsageError(f"expected a tool result, got {kind}", where=where, hint=OUTCOME_SHAPES)
    fields = cast("Mapping[str, Any]", value)
    unknown = set(fields) - OUTCOME_KEYS
    if unknown or "content" not in fields:
        problem = f"unknown key {min(map(str, unknown))!r}" if unknown else "missing 'content'"
        raise UsageError(f"{problem} in a tool result", where=where, hint=OUTCOME_SHAPES)
    blocks = fields["content"]
    if isinstance(blocks, str):
        blocks = [blocks]
    if not isinstance(blocks, (list, tuple)):
        raise UsageError(
            f"expected a list as 'content' of a tool result, got {type(blocks).__name__}",
            where=where,
            hint=OUTCOME_SHAPES,
        )
    content: list[Content] = []
    for block in cast("list[object]", blocks):
        if isinstance(block, (Text, Image, RawBlock)):
            content.append(block)
        elif isinstance(block, str):
            content.append(Text(block))
        else:
            try:
                content.append(msgspec.convert(block, Content))  # pyright: ignore[reportArgumentType] - msgspec takes unions
            except msgspec.ValidationError as error:
                raise UsageError(
                    f"invalid content block in a tool result: {error}",
                    where=where,
                    hint=OUTCOME_SHAPES,
                ) from error
    # `isError` is the spelling of MCP and of TypeScript extensions.
    is_error = bool(fields.get("is_error", fields.get("isError", False)))
    return ToolOutcome(tuple(content), fields.get("details", {}), is_error)


def describe_exception(error: BaseException) -> str:
    """Return an exception as one line: its type, and its message if it has one."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def fit_arity(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that drops the trailing arguments that `function` does not accept.

    A mock may be written `lambda: "ok"` where it is called with the parameters.
    """
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # functions written in C may have no signature
        return function
    if any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters):
        return function
    accepted = sum(parameter.kind in POSITIONAL for parameter in parameters)

    def fitted(*args: Any) -> Any:
        return function(*args[:accepted])

    return fitted


def compile_schema(schema: dict[str, Any], where: str) -> Validator:
    """Return a function that validates parameters and returns the error message, or None."""
    find_errors = compile_validator(
        schema,
        where,
        kind="parameter schema",
        hint='expected a JSON schema: {"type": "object", "properties": {…}, "required": […]}',
    )

    def validate(params: dict[str, Any]) -> str | None:
        errors = find_errors(params)
        if not errors:
            return None
        return "; ".join(
            f"{'.'.join(map(str, error.path)) or 'parameters'}: {error.message}" for error in errors
        )

    return validate


class RegisteredTool(msgspec.Struct, frozen=True):
    """A tool that can run: its description for the model, its function, and its extension.

    `owner` is the name of the extension; it is empty for built-in tools and for mocks.
    """

    tool: Tool
    execute: ToolFunction
    owner: str
    validator: Validator
    mocked: bool = False


class ToolRegistry:
    """All tools of a session, by name. Some may be inactive, some may be mocked."""

    def __init__(self, mocks: Mapping[str, Any], *, mock_extensions: bool) -> None:
        for name in mocks:
            if not isinstance(name, str) or not name:
                raise UsageError(
                    f"mock_tools keys must be tool names, got {name!r}",
                    hint='write mock_tools={"bash": "ok"}',
                )
        self._tools: dict[str, RegisteredTool] = {}
        self._active: set[str] | None = None
        self._mocks = {name: MockTool(name, handler) for name, handler in mocks.items()}
        self._unused = set(self._mocks)
        self._mock_extensions = mock_extensions
        self._offered: tuple[Tool, ...] | None = None

    def add(self, tool: Tool, execute: ToolFunction, owner: str) -> None:
        """Register a tool. An extension may replace a built-in tool of the same name."""
        registered = self._tools.get(tool.name)
        if registered is not None and "" not in {registered.owner, owner}:
            raise UsageError(
                f"tool {tool.name!r} is registered twice",
                where=owner,
                hint=f"already registered by {registered.owner}: rename one of them",
            )
        validator = compile_schema(tool.schema or ANY_OBJECT, f"{owner or 'offbook'}: {tool.name}")
        self._tools[tool.name] = RegisteredTool(tool, execute, owner, validator)
        self._offered = None

    def find(self, name: str) -> RegisteredTool | None:
        """Return the tool to run or its mock, or None if it is unknown or inactive."""
        registered = self._resolve(name)
        if registered is not None and registered.mocked:
            # Used even if a hook blocks the call: such a mock protects the machine.
            self._unused.discard(name)
        return registered

    def _resolve(self, name: str) -> RegisteredTool | None:
        if self._active is not None and name not in self._active:
            return None
        real = self._tools.get(name)
        mock = self._mocks.get(name)
        # The tools of extensions are usually under test: they win over mocks unless the test says
        # otherwise. `unused_mocks` then reports the mock.
        if mock is None or (real and real.owner and not self._mock_extensions):
            return real
        if real is None:
            tool = Tool(name, "", ANY_OBJECT)
            return RegisteredTool(tool, mock.run, "", compile_schema(ANY_OBJECT, name), mocked=True)
        return RegisteredTool(real.tool, mock.run, real.owner, real.validator, mocked=True)

    def activate(self, names: Collection[str] | None) -> None:
        """Offer only these tools to the model; None offers all."""
        for name in names or ():
            if name not in self.names():
                raise UsageError(
                    f"set_active_tools: unknown tool {name!r}",
                    hint=did_you_mean(name, self.names()),
                )
        self._active = None if names is None else set(names)
        self._offered = None

    def names(self) -> set[str]:
        """Return the names of all tools, active or not."""
        return self._tools.keys() | self._mocks.keys()

    def offered(self) -> tuple[Tool, ...]:
        """Return the tools that the next request offers to the model."""
        # The tuple is kept until a tool changes: requests that share it share its hash, too.
        if self._offered is None:
            active = (self._resolve(name) for name in sorted(self.names()))
            self._offered = tuple(registered.tool for registered in active if registered)
        return self._offered

    def unused_mocks(self) -> dict[str, str]:
        """Return the mocks of tools that were never called, with the owner of the real tool."""
        return {
            name: self._tools[name].owner if name in self._tools else ""
            for name in self._mocks
            if name in self._unused
        }


class MockTool:
    """The replacement of a tool: a constant result, or a function of the parameters.

    An exception as the result is a tool that fails: `{"bash": TimeoutError("no shell")}`.
    """

    def __init__(self, name: str, handler: object) -> None:
        self._where = f"mock_tools[{name!r}]"
        self._handler = fit_arity(handler) if callable(handler) else None
        # A wrong constant is reported before the run, a wrong return value when it is returned.
        self._constant = ToolOutcome() if callable(handler) else self._to_outcome(handler)

    async def run(self, params: dict[str, Any], _context: object) -> ToolOutcome:
        """Return the mocked result. An exception of the test's function is raised as it is."""
        if self._handler is None:
            return self._constant
        try:
            answer = self._handler(params)
            if isawaitable(answer):
                answer = await answer
        except BaseException as error:
            error.add_note(f"in {self._where}")
            raise
        return self._to_outcome(answer)

    def _to_outcome(self, answer: object) -> ToolOutcome:
        if isinstance(answer, Exception):
            return error_outcome(describe_exception(answer), {})
        return to_tool_outcome(answer, self._where)
