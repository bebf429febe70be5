"""Encoding of replies as Gemini's responses and streams of responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.exchange.dialects.decoding import raw_block_data
from offbook.exchange.dialects.dialect import HttpResponse
from offbook.exchange.dialects.gemini import gemini_wire as wire
from offbook.exchange.dialects.streaming import split_reply_text, split_words
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Image,
    RawBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from offbook.exchange.model import Reply, StopReason, Usage

JSON_TYPE = "application/json; charset=UTF-8"

FINISH_REASONS: dict[StopReason, str] = {
    "stop": "STOP",
    "tool_use": "STOP",
    "stop_sequence": "STOP",
    "length": "MAX_TOKENS",
    "refusal": "SAFETY",
    "error": "OTHER",
}


def encode_usage(usage: Usage) -> JSON:
    """Encode the token counts."""
    encoded: JSON = {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": max(usage.output - usage.reasoning, 0),
        "totalTokenCount": usage.input + usage.output,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.input}],
    }
    if usage.cache_read:
        encoded["cachedContentTokenCount"] = usage.cache_read
    if usage.reasoning:
        encoded["thoughtsTokenCount"] = usage.reasoning
    return encoded


def encode_parts(blocks: Iterable[AnyBlock]) -> list[JSON]:
    """Encode blocks; the signature of thinking is sent with the part that follows it."""
    parts: list[JSON] = []
    signature = ""
    for block in blocks:
        if isinstance(block, Thinking):
            if signature:  # two thinking blocks in a row
                parts[-1]["thoughtSignature"] = signature
            signature = block.signature
            if block.text or not signature:
                parts.append({"text": block.text, "thought": True})
            continue
        part = _encode_part(block)
        if signature:
            part["thoughtSignature"] = signature
            signature = ""
        parts.append(part)
    if signature:
        if not parts:
            parts.append({"text": "", "thought": True})
        parts[-1]["thoughtSignature"] = signature
    return parts


def _encode_part(block: AnyBlock) -> JSON:
    match block:
        case Text(text):
            return {"text": text}
        case ToolCall(call_id, name, arguments):
            name = f"{block.namespace}__{name}" if block.namespace else name
            call: JSON = {"name": name, "args": arguments}
            return {"functionCall": {"id": call_id, **call} if call_id else call}
        case Image(data, media_type, url):
            if url:
                return {"fileData": {"fileUri": url, "mimeType": media_type}}
            return {"inlineData": {"data": data, "mimeType": media_type}}
        case ToolResult():
            details = block.details
            key = "error" if block.failed else "result"
            response: JSON = {
                "name": block.name,
                "response": details if isinstance(details, dict) else {key: block.text},
            }
            if block.call_id:
                response["id"] = block.call_id
            images = [_encode_part(part) for part in block.content if not isinstance(part, Text)]
            if images:
                response["parts"] = images
            return {"functionResponse": response}
        case Thinking(text):
            return {"text": text, "thought": True}
        case RawBlock():
            return {**raw_block_data(block, wire.NAME)}  # a copy: a signature may be added


def encode_response(reply: Reply, fields: JSON) -> HttpResponse:
    """Encode a whole response; `fields` are those in addition to the candidates."""
    candidate = {
        "content": {"parts": encode_parts(reply.blocks), "role": "model"},
        "index": 0,
        "finishReason": FINISH_REASONS[reply.stop],
    }
    body = to_json({"candidates": [candidate], **fields})
    return HttpResponse(200, {"content-type": JSON_TYPE}, body)


def encode_stream(reply: Reply, fields: JSON, *, as_array: bool) -> HttpResponse:
    """Encode a stream of responses, as events or as the elements of a JSON array."""
    chunks = list(_split_parts(reply))
    last = len(chunks) - 1
    finish = b',"finishReason":%b' % to_json(FINISH_REASONS[reply.stop])
    tail = to_json(fields)[1:]  # encoded once for all chunks
    responses = [
        b'{"candidates":[{"content":{"parts":%b,"role":"model"},"index":0%b}],%b'
        % (to_json(parts), finish if index == last else b"", tail)
        for index, parts in enumerate(chunks)
    ]
    if as_array:
        elements = [b"[" + responses[0], *(b",\r\n" + response for response in responses[1:])]
        return HttpResponse(200, {"content-type": JSON_TYPE}, b"", (*elements, b"]"))
    headers = {"content-type": "text/event-stream", "cache-control": "no-cache"}
    events = tuple(b"data: %b\r\n\r\n" % response for response in responses)
    return HttpResponse(200, headers, b"", events)


def _split_parts(reply: Reply) -> Iterator[list[JSON]]:
    """Yield the parts of each chunk: texts are split, adjacent calls are sent together."""
    calls: list[JSON] = []
    parts = encode_parts(reply.blocks)
    for part in parts:
        if "functionCall" in part:
            calls.append(part)
            continue
        if calls:
            yield calls
            calls = []
        text = part.get("text", "")
        is_thinking = "thought" in part
        texts = split_words(text) if is_thinking else split_reply_text(reply, text)
        attributes = {"thought": True} if is_thinking else {}
        for chunk in texts[:-1]:
            yield [{"text": chunk, **attributes}]
        # The last chunk has the other fields, such as the signature.
        yield [{**part, "text": texts[-1]}] if texts else [part]
    if calls:
        yield calls
    if not parts:
        yield [{"text": ""}]
