"""What OpenAI would refuse of a response, in its words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.exchange import rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offbook.errors import ModelError
    from offbook.exchange.dialects.responses import forms
    from offbook.exchange.messages import Message


def require(body: forms.Body) -> None:
    """Refuse a body that lacks what it must have."""
    options = cast("Any", body)
    if not body.model and options.prompt is msgspec.UNSET:
        raise rules.reject(
            "missing_field",
            "Missing required parameter: 'model'.",
            param="model",
            code="missing_required_parameter",
        )
    given = (options.prompt, options.conversation)
    if body.input is None and not body.previous_response_id and not any(given):
        raise rules.reject(
            "missing_field",
            "One of 'input' or 'previous_response_id' or 'prompt' or 'conversation' "
            "must be provided.",
            param="input",
            code="missing_required_parameter",
        )


def say_breach(breach: rules.Breach, messages: Sequence[Message]) -> ModelError:
    """The refusal of calls and results that do not belong together."""
    id_ = breach.ids[0]
    if breach.rule == "missing_result":
        custom = any(call.id == id_ and call.custom for call in messages[breach.at].calls)
        kind = "custom tool call" if custom else "function call"
        message = f"No tool output found for {kind} {id_}."
    elif breach.rule == "orphan_result":
        message = f"No tool call found for function call output with call_id {id_}."
    else:
        message = f"Duplicate item found with call_id {id_}."
    return rules.reject(breach.rule, message, param="input")
