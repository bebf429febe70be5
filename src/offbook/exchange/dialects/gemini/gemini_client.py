"""The asking side: requests to Google, and what it answered."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects.decoding import RawBody
from offbook.exchange.dialects.gemini import gemini_wire
from offbook.exchange.dialects.gemini.gemini_messages import GeminiMessageReader
from offbook.exchange.dialects.gemini.gemini_stream import write_parts
from offbook.exchange.messages import JSON, Message, ToolCall, to_json
from offbook.exchange.model import Reply, StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from offbook.exchange.model import Request

PARAMETERS = {"max_tokens": "maxOutputTokens", "temperature": "temperature", "top_p": "topP"}

REASONS: dict[str, StopReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
}


def write_turns(messages: Iterable[Message]) -> Iterator[JSON]:
    """The turns of a conversation: results stand together, before what the user says."""
    results: list[JSON] = []
    for message in messages:
        parts = write_parts(message.blocks)
        if message.role == "tool":
            results += parts
            continue
        if message.role == "assistant":
            if results:
                yield {"role": "user", "parts": results}
            yield {"role": "model", "parts": parts}
        else:
            yield {"role": "user", "parts": results + parts}
        results = []
    if results:
        yield {"role": "user", "parts": results}


def write_options(request: Request) -> JSON:
    """What was asked beside the conversation, under Gemini's names."""
    if request.metadata.get("dialect") == gemini_wire.NAME:
        return request.parameters
    given = {
        own: request.parameters[name]
        for name, own in PARAMETERS.items()
        if name in request.parameters
    }
    return {"generationConfig": given} if given else {}


def read_error(body: bytes, status: int, headers: dict[str, str]) -> ModelError:
    """The error that Google answered with."""
    try:
        whole: Any = msgspec.json.decode(body)
        first: Any = whole[0] if body.lstrip()[:1] == b"[" else whole
        message = str(first["error"]["message"])
    except (msgspec.MsgspecError, LookupError, TypeError):
        message = body[:200].decode("utf-8", "replace")
    return ModelError(
        message or f"status {status}", status=status, retry_after=_read_delay(headers, body)
    )


def _read_delay(headers: dict[str, str], body: bytes) -> float | None:
    told = re.search(rb'"retryDelay":\s*"([\d.]+)s"', body)
    try:
        return float(headers.get("retry-after") or (told[1] if told else b""))
    except ValueError:
        return None


def gather_reply(pieces: Sequence[bytes | str | msgspec.Raw], request: Request) -> Reply:
    """The reply whose pieces these are."""
    results = [gemini_wire.result(piece) for piece in pieces]
    parts: list[gemini_wire.GeminiPart] = []
    raws: list[Any] = []
    chunks: list[str] = []
    whole = Reply(model=request.model)
    finish = ""
    for piece, result in zip(pieces, results, strict=True):
        if result.error is not None:
            raise ModelError(
                str(result.error.get("message", "")), status=int(result.error.get("code", 500))
            )
        finish = "SAFETY" if result.promptFeedback and not result.candidates else finish
        for candidate in result.candidates[:1]:
            finish = candidate.finishReason or finish
            more = candidate.content.listed if candidate.content else ()
            seen = RawBody(
                bytes(piece) if isinstance(piece, msgspec.Raw) else piece, gemini_wire.NAME
            )
            for at, part in enumerate(more):
                if not _merge(parts, part, chunks):
                    place = ("candidates", 0, "content", "parts", at)
                    raws.append(seen.keep("", *place).data)
        whole = msgspec.structs.replace(
            whole,
            usage=_read_usage(result.usageMetadata) if result.usageMetadata else whole.usage,
            model=result.modelVersion or whole.model,
            id=result.responseId or whole.id,
        )
    seen = RawBody(to_json([{"parts": raws}]), gemini_wire.NAME)
    messages = GeminiMessageReader(frozenset(), seen).read([gemini_wire.GeminiTurn(parts, "model")])
    blocks = messages[0].blocks
    stop = REASONS.get(finish, "error" if finish else "stop")
    if stop == "stop" and any(isinstance(block, ToolCall) for block in blocks):
        stop = "tool_use"
    streamed = tuple(chunks) if len(results) > 1 else ()
    return msgspec.structs.replace(whole, blocks=blocks, stop=stop, chunks=streamed)


def _merge(
    parts: list[gemini_wire.GeminiPart], part: gemini_wire.GeminiPart, chunks: list[str]
) -> bool:
    """Pieces of one text become one part again; whether this one did."""
    if part.text is not None and not part.thought:
        chunks.append(part.text)
    last = parts[-1] if parts else None
    if (
        last is not None
        and last.text is not None
        and part.text is not None
        and bool(last.thought) == bool(part.thought)
        and not last.thoughtSignature
    ):
        last.text += part.text
        last.thoughtSignature = part.thoughtSignature
        return True
    parts.append(part)
    return False


def _read_usage(counts: gemini_wire.GeminiUsage) -> Usage:
    return Usage(
        counts.promptTokenCount,
        counts.candidatesTokenCount + counts.thoughtsTokenCount,
        counts.cachedContentTokenCount,
        reasoning=counts.thoughtsTokenCount,
    )
