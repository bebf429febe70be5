"""Tool results that a client sends as texts.

smolagents writes the calls into a message of the assistant, and the results of all of them into
one message of the user:

    Calling tools:
    [{'id': 'call_1', 'type': 'function', 'function': {'name': 'find_order', 'arguments': {…}}}]

    Observation:
    order 7
"""

from __future__ import annotations

from ast import literal_eval
from typing import TYPE_CHECKING, Any, cast

from offbook.exchange.messages import Message, Text, ToolResult

if TYPE_CHECKING:
    from collections.abc import Sequence

OBSERVATION = "Observation:\n"
ERROR = "Error:\n"


def parse_results(calls: str, new: Sequence[Message]) -> tuple[ToolResult, ...]:
    """Return the results in the new messages; `calls` is the list in the message before them."""
    text = "\n".join(message.text for message in new if message.role == "user")
    is_error = ERROR in text and OBSERVATION not in text
    if not is_error and OBSERVATION not in text:
        return ()
    content = text.partition(ERROR if is_error else OBSERVATION)[2]
    try:
        entries = cast("list[Any]", literal_eval(calls))
        return tuple(
            ToolResult(entry["id"], (Text(content),), is_error, entry["function"]["name"])
            for entry in entries
        )
    except (ValueError, SyntaxError, TypeError, KeyError):  # a text that only looks like calls
        return ()
