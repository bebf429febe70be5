"""Tool results, and the mocks of tools.

A tool returns a string, None, a dict or a `ToolOutcome`; all are converted to the last one. A mock
is a constant result, or a function of the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, isawaitable, signature
from typing import Any, cast

import msgspec

from offbook.errors import UsageError
from offbook.exchange.messages import Content, Image, RawBlock, Text, join_text
from offbook.subjects.subject import MOCKS_USED
from offbook.trace.events import Verdict

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


def validate_mock_names(mocks: Mapping[str, Any]) -> None:
    """Raise a UsageError for a key of `mock_tools` that is not a tool name."""
    for name in mocks:
        if not isinstance(name, str) or not name:
            raise UsageError(
                f"mock_tools keys must be tool names, got {name!r}",
                hint='write mock_tools={"bash": "ok"}',
            )


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


def check_mocks_used(
    unused: Mapping[str, str], answers: Mapping[str, int], host: Sequence[str] = ()
) -> list[Verdict]:
    """Return a failed verdict if mocks were never used.

    `unused` are mocks of tools, each with the extension whose tool ran instead; `answers` is the
    number of answers left in `mock_ui`; `host` are mocks of the host.
    """
    names = [
        f"{name} (the tool of {owner} ran instead; mock_extension_tools=True mocks it)"
        if owner
        else name
        for name, owner in unused.items()
    ]
    problems = [f"mock_tools {', '.join(names)}"] if names else []
    problems += [f"{n} answer{'s' * (n > 1)} of mock_ui[{m!r}]" for m, n in answers.items()]
    problems += [f"mock_host {', '.join(host)}"] if host else []
    if not problems:
        return []
    message = f"never used: {'; '.join(problems)}"
    return [Verdict(MOCKS_USED, "fail", message, actual=[*unused, *answers, *host])]
