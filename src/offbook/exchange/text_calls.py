"""Tool calls and results that a client sends as texts.

smolagents writes the calls into a message of the assistant, and the results of all of them into one
message of the user:

    Calling tools:
    [{'id': 'call_1', 'type': 'function', 'function': {'name': 'find_order', 'arguments': {…}}}]

    Observation:
    order 7
"""

from __future__ import annotations

from ast import literal_eval
from typing import TYPE_CHECKING, Any, cast

from offbook.exchange.messages import JSON, Message, Text, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OBSERVATION = "Observation:\n"
ERROR = "Error:\n"
NEXT_TASK = "\nNew task:\n"  # the next prompt, in the same message


def parse_calls(text: str) -> dict[str, ToolCall]:
    """Return the calls in such a list by their ids; none in a text that only looks like one."""
    try:
        entries = cast("list[Any]", literal_eval(text))
        calls = [ToolCall(entry["id"], *_function(entry["function"])) for entry in entries]
    except (ValueError, SyntaxError, TypeError, KeyError):
        return {}
    return {call.id: call for call in calls}


def _function(fields: Mapping[str, Any]) -> tuple[str, JSON]:
    arguments = fields.get("arguments")
    return fields["name"], cast("JSON", arguments) if isinstance(arguments, dict) else {}


def parse_results(calls: Mapping[str, ToolCall], new: Sequence[Message]) -> tuple[ToolResult, ...]:
    """Return the results of these calls in the new messages."""
    text = "\n".join(message.text for message in new if message.role == "user")
    is_error = ERROR in text and OBSERVATION not in text
    if not is_error and OBSERVATION not in text:
        return ()
    observed = text.partition(ERROR if is_error else OBSERVATION)[2].partition(NEXT_TASK)[0]
    content = (Text(observed),)
    return tuple(ToolResult(call.id, content, is_error, call.name) for call in calls.values())
