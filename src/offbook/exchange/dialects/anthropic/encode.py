"""What the model answers, as one message."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from offbook.exchange.foreign import write_foreign
from offbook.exchange.messages import JSON, AnyBlock, Foreign, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from offbook.errors import ModelError
    from offbook.exchange.reply import Reply, Stop, Usage
    from offbook.exchange.request import Request

from offbook.exchange.dialects.anthropic import forms
from offbook.exchange.dialects.anthropic.seals import seal_thought

STOPS: dict[Stop, str] = {
    "stop": "end_turn",
    "tool_use": "tool_use",
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
}

REFUSED = {"type": "refusal", "category": None, "explanation": None}


def hides_thoughts(parameters: JSON) -> bool:
    """Whether the request wants thoughts without their words."""
    thinking = parameters.get("thinking")
    return isinstance(thinking, dict) and cast("JSON", thinking).get("display") == "omitted"


def find_sequence(reply: Reply, request: Request) -> str | None:
    """The sequence at which the reply stopped, if that is why."""
    if reply.stop != "stop_sequence":
        return None
    return next(iter(request.parameters.get("stop_sequences") or ()), None)


def write_usage(usage: Usage, output: int) -> JSON:
    """The tokens, as Anthropic counts them."""
    written: JSON = {
        "input_tokens": max(usage.input - usage.cache_read - usage.cache_write, 0),
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write,
            "ephemeral_1h_input_tokens": 0,
        },
        "output_tokens": output,
        "service_tier": "standard",
    }
    if usage.reasoning:
        written["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return written


def write_error(error: ModelError, details: JSON, request_id: str) -> JSON:
    """The body of a refusal."""
    kind = forms.ERRORS.get(error.status) or (
        "api_error" if error.status >= 500 else "invalid_request_error"  # noqa: PLR2004 - HTTP's
    )
    about: JSON = {"type": kind, "message": error.message}
    if details:
        about["details"] = details
    return {"type": "error", "error": about, "request_id": request_id}


def write_block(block: AnyBlock, *, hide: bool = False) -> JSON | None:
    """A content block; None for what a model does not say."""
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case ToolCall(call_id, _, arguments):
            return {"type": "tool_use", "id": call_id, "name": full_name(block), "input": arguments}
        case Thinking(text, signature, redacted):
            if redacted:
                return {"type": "redacted_thinking", "data": signature or seal_thought(text)}
            sealed = signature or seal_thought(text)
            return {"type": "thinking", "thinking": "" if hide else text, "signature": sealed}
        case Foreign():
            return write_foreign(block, forms.NAME)
        case _:
            return None


def full_name(call: ToolCall) -> str:
    """The name of a call's tool, its namespace with it."""
    return f"{call.namespace}__{call.name}" if call.namespace else call.name
