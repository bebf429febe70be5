"""What OpenAI would refuse of a chat completion, in its words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.errors import ModelError
from offbook.exchange import rules

if TYPE_CHECKING:
    from offbook.exchange.dialects.chat import forms
    from offbook.exchange.memory import Known


def require(body: forms.Body, known: Known[forms.Read] | None) -> None:
    """Refuse a body that lacks what it must have."""
    if not body.model:
        raise rules.reject("missing_field", "you must provide a model parameter", param="model")
    if body.messages is None:
        raise rules.reject(
            "missing_field",
            "Missing required parameter: 'messages'.",
            param="messages",
            code="missing_required_parameter",
        )
    if not body.messages and known is None:
        raise rules.reject(
            "missing_field",
            "Invalid 'messages': empty array. Expected an array with minimum length 1, "
            "but got an empty array instead.",
            param="messages",
            code="empty_array",
        )


def say_breach(breach: rules.Breach, before: int) -> ModelError:
    """The refusal of calls and results that do not belong together."""
    at = breach.at + before
    where = f"messages.[{at}].role"
    if breach.rule == "missing_result":
        return rules.reject(
            breach.rule,
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            + ", ".join(breach.ids),
            param=where,
        )
    if breach.rule == "orphan_result":
        return rules.reject(
            breach.rule,
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding "
            "message with 'tool_calls'.",
            param=where,
        )
    return rules.reject(
        breach.rule,
        f"Duplicate value for 'tool_call_id' of '{breach.ids[0]}' in messages[{at}].",
        param=f"messages[{at}]",
        code="invalid_value",
    )
