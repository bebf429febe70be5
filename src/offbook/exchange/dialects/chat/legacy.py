"""Functions, which came before tools: at most one call in a reply, and no ids.

A call gets the id that it was given in this run, else the number of its place; a result answers
the latest call of its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.errors import UsageError
from offbook.exchange.arguments import read_arguments, write_arguments
from offbook.exchange.dialects.chat import forms
from offbook.exchange.messages import JSON, ToolCall, ToolResult
from offbook.exchange.request import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offbook.exchange.messages import Content
    from offbook.exchange.threads import Threads

MARK = {"legacy": True}


def read_functions(offers: Iterable[forms.Offer]) -> tuple[Tool, ...]:
    """The functions that are offered, as tools."""
    return tuple(
        Tool(offer.name, offer.description or "", offer.parameters or {}, more=MARK)
        for offer in offers
    )


def is_legacy(tools: Iterable[Tool]) -> bool:
    """Whether these were offered as functions."""
    return any(tool.more == MARK for tool in tools)


def read_call(call: forms.Function, names: dict[str, str], threads: Threads) -> ToolCall:
    """A call of a function."""
    name, arguments = call.name or "", read_arguments(call.arguments or "")
    id_ = threads.find_call(name, arguments, names) or f"function-{len(names) + 1}"
    return ToolCall(id_, name, arguments)


def read_result(name: str, content: tuple[Content, ...], names: dict[str, str]) -> ToolResult:
    """What a function answered."""
    id_ = next((id_ for id_ in reversed(names) if names[id_] == name), "")
    return ToolResult(id_, content, name=name)


def write_call(calls: Sequence[ToolCall]) -> JSON:
    """The one call of a reply."""
    if len(calls) > 1:
        raise UsageError(
            f"the agent offers functions, and a reply calls {len(calls)} of them at once",
            hint="script one call after the other, or offer them as tools",
        )
    return {"name": calls[0].name, "arguments": write_arguments(calls[0].arguments)}
