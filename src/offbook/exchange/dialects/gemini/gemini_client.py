"""The client side of Gemini's API: request bodies, and parsing of responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects.decoding import RawBody
from offbook.exchange.dialects.gemini import gemini_wire as wire
from offbook.exchange.dialects.gemini.gemini_stream import encode_parts
from offbook.exchange.dialects.response_parsing import StreamAccumulator
from offbook.exchange.messages import JSON, RAW_ARGUMENTS, Message, ToolCall, to_json
from offbook.exchange.model import Reply, StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from offbook.exchange.model import Request, Tool

# The parameters that every provider understands, for requests that came in another dialect.
_COMMON_PARAMETERS = {
    "max_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
}

_STOP_REASONS: dict[str, StopReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
}


# ------------------------------------------------------------------- building requests


def encode_turns(messages: Iterable[Message]) -> Iterator[JSON]:
    """Yield the turns of a conversation; tool results are part of the next user turn."""
    results: list[JSON] = []
    for message in messages:
        parts = encode_parts(message.blocks)
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


def encode_options(request: Request) -> JSON:
    """Encode the options of a request under Gemini's names."""
    if request.metadata.get("dialect") == wire.NAME:
        return request.parameters
    config = {
        name: request.parameters[common_name]
        for common_name, name in _COMMON_PARAMETERS.items()
        if common_name in request.parameters
    }
    return {"generationConfig": config} if config else {}


def encode_tools(tools: Iterable[Tool]) -> list[JSON]:
    """Encode the offered tools."""
    functions: list[JSON] = []
    others: list[JSON] = []
    for tool in tools:
        if tool.kind != "function":
            others.append({tool.kind: tool.schema.get(RAW_ARGUMENTS, tool.schema)})
            continue
        name = f"{tool.namespace}__{tool.name}" if tool.namespace else tool.name
        function: JSON = {"name": name, "description": tool.description, **tool.more}
        if tool.schema:
            function["parametersJsonSchema"] = tool.schema
        functions.append(function)
    return [{"functionDeclarations": functions}, *others] if functions else others


# ------------------------------------------------------------------- parsing responses


def parse_responses(bodies: Sequence[bytes | str | msgspec.Raw], request: Request) -> Reply:
    """Parse a whole response, or the responses of a stream."""
    accumulator = StreamAccumulator[int]()
    parts: list[wire.GeminiPart] = []
    raw_parts: list[Any] = []
    reply = Reply(model=request.model)
    finish = ""
    for body in bodies:
        response = wire.decode_response(body)
        if (error := response.error) is not None:
            message = str(error.get("message", ""))
            raise ModelError(message, status=int(error.get("code", 500)))
        if response.promptFeedback and not response.candidates:
            finish = "SAFETY"
        for candidate in response.candidates[:1]:
            finish = candidate.finishReason or finish
            # The raw JSON is kept for parts without a neutral form.
            raw = RawBody(bytes(body) if isinstance(body, msgspec.Raw) else body, wire.NAME)
            new_parts = candidate.content.part_list if candidate.content else ()
            for index, part in enumerate(new_parts):
                last = parts[-1] if parts else None
                is_continuation = (
                    last is not None
                    and last.text is not None
                    and part.text is not None
                    and bool(last.thought) == bool(part.thought)
                    and not last.thoughtSignature  # a signature ends its part
                )
                if is_continuation and last is not None:
                    last.thoughtSignature = part.thoughtSignature
                else:
                    parts.append(part)
                    path = ("candidates", 0, "content", "parts", index)
                    raw_parts.append(raw.block("", path).data)
                if part.text is not None:
                    accumulator.block(len(parts) - 1, "text").add(part.text)
                    if not part.thought:
                        accumulator.chunks.append(part.text)
        usage = response.usageMetadata
        reply = msgspec.structs.replace(
            reply,
            usage=_parse_usage(usage) if usage else reply.usage,
            model=response.modelVersion or reply.model,
            id=response.responseId or reply.id,
        )
    for index, block in accumulator.items():
        parts[index].text = block.text
    reader = wire.GeminiMessageReader(
        frozenset(), RawBody(to_json([{"parts": raw_parts}]), wire.NAME)
    )
    (message,) = reader.read([wire.GeminiTurn(parts, "model")])
    stop = _STOP_REASONS.get(finish, "error" if finish else "stop")
    if stop == "stop" and any(isinstance(block, ToolCall) for block in message.blocks):
        stop = "tool_use"
    chunks = tuple(accumulator.chunks) if len(bodies) > 1 else ()
    return msgspec.structs.replace(reply, blocks=message.blocks, stop=stop, chunks=chunks)


def _parse_usage(usage: wire.GeminiUsage) -> Usage:
    return Usage(
        usage.promptTokenCount,
        usage.candidatesTokenCount + usage.thoughtsTokenCount,
        usage.cachedContentTokenCount,
        reasoning=usage.thoughtsTokenCount,
    )
