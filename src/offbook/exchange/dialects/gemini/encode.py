"""What the model answers, as one response."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.exchange.dialects.gemini import forms
from offbook.exchange.foreign import write_foreign
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Foreign,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.exchange.reply import Stop, Usage

FINISHES: dict[Stop, str] = {
    "stop": "STOP",
    "tool_use": "STOP",
    "stop_sequence": "STOP",
    "length": "MAX_TOKENS",
    "refusal": "SAFETY",
    "error": "OTHER",
}


def write_usage(usage: Usage) -> JSON:
    """The tokens, as Google counts them."""
    counts: JSON = {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": max(usage.output - usage.reasoning, 0),
        "totalTokenCount": usage.input + usage.output,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.input}],
    }
    if usage.cache_read:
        counts["cachedContentTokenCount"] = usage.cache_read
    if usage.reasoning:
        counts["thoughtsTokenCount"] = usage.reasoning
    return counts


def write_candidate(parts: list[JSON], finish: str | None) -> JSON:
    """The reply, and why it ended."""
    candidate: JSON = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return candidate


def write_parts(blocks: Iterable[AnyBlock]) -> list[JSON]:
    """The parts; the seal of a thought stands at the part that follows it."""
    parts: list[JSON] = []
    seal = ""
    for block in blocks:
        if isinstance(block, Thinking):
            if seal:
                parts[-1]["thoughtSignature"] = seal
            seal = block.signature
            if block.text or not seal:
                parts.append({"text": block.text, "thought": True})
            continue
        part = _write_part(block)
        if seal:
            part["thoughtSignature"] = seal
            seal = ""
        parts.append(part)
    if seal:
        if not parts:
            parts.append({"text": "", "thought": True})
        parts[-1]["thoughtSignature"] = seal
    return parts


def _write_part(block: AnyBlock) -> JSON:
    match block:
        case Text(text):
            return {"text": text}
        case ToolCall(call_id, name, arguments):
            name = f"{block.namespace}__{name}" if block.namespace else name
            call: JSON = {"name": name, "args": arguments}
            return {"functionCall": {"id": call_id, **call} if call_id else call}
        case Image(data, media_type, url):
            place: JSON = {"fileUri": url} if url else {"data": data}
            return {"fileData" if url else "inlineData": {**place, "mimeType": media_type}}
        case ToolResult():
            return _write_response(block)
        case Thinking(text):
            return {"text": text, "thought": True}
        case Foreign():
            return {**write_foreign(block, forms.NAME)}


def _write_response(result: ToolResult) -> JSON:
    details = result.details
    key = "error" if result.is_error else "result"
    response: JSON = {
        "name": result.name,
        "response": details if isinstance(details, dict) else {key: result.text},
    }
    if result.call_id:
        response["id"] = result.call_id
    pictures = [_write_part(part) for part in result.content if not isinstance(part, Text)]
    if pictures:
        response["parts"] = pictures
    return {"functionResponse": response}
