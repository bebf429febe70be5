"""What the model answers, as one response."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.exchange.dialects.decoding import raw_block_data
from offbook.exchange.dialects.dialect import HttpResponse
from offbook.exchange.dialects.gemini import gemini_wire
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


# --- What the model answers, as one response.

FINISHES: dict[StopReason, str] = {
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
        case RawBlock():
            return {**raw_block_data(block, gemini_wire.NAME)}


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


# --- What the model answers, piece by piece.


def answer_stream(reply: Reply, tail: bytes, *, array: bool) -> HttpResponse:
    """The response in pieces; the last one tells why it ended."""
    groups = list(_cut(reply))
    last = len(groups) - 1
    finish = b'"finishReason":%b' % to_json(FINISHES[reply.stop])
    results = [
        b'{"candidates":[{"content":{"parts":%b,"role":"model"},"index":0%b}],%b'
        % (to_json(parts), b"," + finish if at == last else b"", tail)
        for at, parts in enumerate(groups)
    ]
    if array:
        headers = {"content-type": "application/json; charset=UTF-8"}
        chunks = [b"[" + results[0], *(b",\r\n" + result for result in results[1:]), b"]"]
        return HttpResponse(200, headers, b"", tuple(chunks))
    headers = {"content-type": "text/event-stream", "cache-control": "no-cache"}
    return HttpResponse(
        200, headers, b"", tuple(b"data: %b\r\n\r\n" % result for result in results)
    )


def _cut(reply: Reply) -> Iterator[list[JSON]]:
    """The parts of each piece: texts come bit by bit, calls whole and together."""
    calls: list[JSON] = []
    some = False
    for part in write_parts(reply.blocks):
        some = True
        if "functionCall" in part:
            calls.append(part)
            continue
        if calls:
            yield calls
            calls = []
        yield from _cut_part(part, reply)
    if calls:
        yield calls
    if not some:
        yield [{"text": ""}]


def _cut_part(part: JSON, reply: Reply) -> Iterator[list[JSON]]:
    text = part.get("text", "")
    pieces = split_words(text) if "thought" in part else split_reply_text(reply, text)
    if not pieces:
        yield [part]
        return
    *others, last = pieces
    about = {"thought": True} if "thought" in part else {}
    for piece in others:
        yield [{"text": piece, **about}]
    yield [{**part, "text": last}]
