"""The tools of a session: registered, checked, mocked, and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import UsageError, nearest
from offbook.exchange.request import Tool
from offbook.subjects.session.arity import fit_arity
from offbook.subjects.session.outcome import Outcome, outcome
from offbook.subjects.session.schema import Validator, compile_schema

if TYPE_CHECKING:
    from collections.abc import Collection

    from offbook.subjects.session.context import Context

Execute = Callable[..., object]
ANYTHING: dict[str, Any] = {"type": "object"}


class Registered(msgspec.Struct, frozen=True):
    """A tool that can be run: what the model sees of it, who brought it, and what it does."""

    tool: Tool
    execute: Execute
    owner: str
    validator: Validator
    mocked: bool = False


class Tools:
    """All tools of a session, by name; some may be switched off, some may be mocked."""

    def __init__(self, mocks: Mapping[str, Any], *, mock_extensions: bool) -> None:
        self._tools: dict[str, Registered] = {}
        self._active: set[str] | None = None
        self._mocks = {_name(name): Mock(name, handler) for name, handler in mocks.items()}
        self._mock_extensions = mock_extensions
        self._offered: tuple[Tool, ...] | None = None

    def add(self, tool: Tool, execute: Execute, owner: str) -> None:
        """Register a tool; an extension's comes in the place of a built-in of the same name."""
        there = self._tools.get(tool.name)
        if there is not None and "" not in {there.owner, owner}:
            raise UsageError(
                f"the tool {tool.name!r} is registered twice",
                where=owner,
                hint=f"{there.owner} has it already: rename one",
            )
        validator = compile_schema(tool.schema or ANYTHING, f"{owner or 'offbook'}: {tool.name}")
        self._tools[tool.name] = Registered(tool, execute, owner, validator)
        self._offered = None

    def find(self, name: str) -> Registered | None:
        """The tool of this name as it will run: the real one, or its mock."""
        if self._active is not None and name not in self._active:
            return None
        real = self._tools.get(name)
        mock = self._mocks.get(name)
        if mock is None or (real and real.owner and not self._mock_extensions):
            return real
        if real is None:
            tool = Tool(name, "", ANYTHING)
            return Registered(tool, mock.run, "", compile_schema(ANYTHING, name), mocked=True)
        return Registered(real.tool, mock.run, real.owner, real.validator, mocked=True)

    def activate(self, names: Collection[str] | None) -> None:
        """Offer only these to the model; None offers all."""
        for name in names or ():
            if name not in self.names():
                raise UsageError(
                    f"set_active_tools: there is no {name!r}", hint=nearest(name, self.names())
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


class Mock:
    """A tool's stand-in: a text, a full result, or a function of the parameters (or of none)."""

    def __init__(self, name: str, handler: object) -> None:
        self._where = f"mock_tools[{name!r}]"
        self._handler = fit_arity(handler) if callable(handler) else None
        self._static = None if callable(handler) else outcome(handler, self._where)
        self.used = 0

    async def run(self, params: dict[str, Any], context: Context) -> Outcome:  # noqa: ARG002 - a tool's signature
        """What the stand-in answers; what it raises becomes an error result."""
        self.used += 1
        if self._handler is None:
            return self._static or Outcome()
        try:
            answer = self._handler(params)
            if isawaitable(answer):
                answer = await answer
            return outcome(answer, self._where)
        except Exception as error:  # noqa: BLE001 - a mock that throws leaves an error result
            return outcome({"content": describe_raise(error), "is_error": True}, self._where)


def describe_raise(error: BaseException) -> str:
    """An exception, in one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
