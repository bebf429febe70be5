"""The tools of a session: parameter validation, and the registry.

A tool is a function `(params, ctx)`. Its parameters are validated against its JSON schema before
it runs, and its return value is converted to a `ToolOutcome`. `mock_tools` replaces the function
and keeps the schema, so the model cannot distinguish a mock from the real tool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import UsageError, did_you_mean
from offbook.exchange.model import Tool, compile_validator
from offbook.subjects.mock_tools import MockTool, validate_mock_names

if TYPE_CHECKING:
    from collections.abc import Collection

ToolFunction = Callable[..., object]
Validator = Callable[[dict[str, Any]], "str | None"]

ANY_OBJECT: dict[str, Any] = {"type": "object"}


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
        validate_mock_names(mocks)
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
