"""Amazon Bedrock's Converse API: whole messages, and streams of binary frames.

`invoke` with the body of Anthropic is in the dialect `anthropic`, and with that of Titan's
embeddings here; those of the other model families are not supported.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import msgspec
from msgspec import UNSET, UnsetType

from offbook.errors import ModelError
from offbook.exchange.dialects.amazon import (
    EVENT_STREAM,
    encode_event,
    encode_exception,
    error_response,
    parse_frames,
)
from offbook.exchange.dialects.dialect import (
    HttpRequest,
    HttpResponse,
    make_reply_id,
    request_metadata,
)
from offbook.exchange.dialects.embeddings import embed, estimate_tokens
from offbook.exchange.dialects.provider_responses import (
    StreamAccumulator,
    interrupted_stream,
    raise_for_status,
    response_body,
)
from offbook.exchange.dialects.wire import (
    ALL_RULES,
    JsonPath,
    RawBody,
    RequestDecoder,
    Violation,
    find_bad_schema,
    find_unpaired_call,
    raw_block_data,
    rejection,
    split_fixed,
    split_reply_text,
)
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Content,
    History,
    Image,
    Message,
    RawBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    render_arguments,
    to_json,
)
from offbook.exchange.model import Reply, Request, StopReason, Tool, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from offbook.exchange.dialects.dialect import ConversationStore


# Wire structs of Amazon Bedrock's Converse API, and decoding of its requests.

NAME = "bedrock"

# ruff: noqa: N815 - the field names are Amazon's


class BedrockToolUse(msgspec.Struct, frozen=True):
    """A tool call."""

    toolUseId: str
    name: str
    input: JSON | None = None


class BedrockBytes(msgspec.Struct, frozen=True):
    """The base64 data of an image."""

    bytes: str = ""


class BedrockImage(msgspec.Struct, frozen=True):
    """An image."""

    format: str = "png"
    source: BedrockBytes = BedrockBytes()


class BedrockResultPart(msgspec.Struct, frozen=True):
    """A part of a tool result."""

    text: str | None = None
    json: msgspec.Raw = msgspec.Raw()
    image: BedrockImage | None = None


class BedrockToolResult(msgspec.Struct, frozen=True):
    """A tool result."""

    toolUseId: str
    content: list[BedrockResultPart] = []
    status: str = "success"


class BedrockReasoningText(msgspec.Struct, frozen=True):
    """Thinking and its signature."""

    text: str = ""
    signature: str = ""


class BedrockReasoning(msgspec.Struct, frozen=True):
    """Thinking, readable or redacted."""

    reasoningText: BedrockReasoningText | None = None
    redactedContent: str = ""


class BedrockPart(msgspec.Struct, frozen=True):
    """A content block: exactly one of the fields is set."""

    text: str | None = None
    toolUse: BedrockToolUse | None = None
    toolResult: BedrockToolResult | None = None
    reasoningContent: BedrockReasoning | None = None
    image: BedrockImage | None = None


class BedrockTurn(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    role: str
    content: list[BedrockPart]


class BedrockSchema(msgspec.Struct, frozen=True):
    """The parameters of a tool."""

    json: JSON = {}


class BedrockToolSpec(msgspec.Struct, frozen=True):
    """The name and parameters of a tool."""

    name: str
    description: str = ""
    inputSchema: BedrockSchema = BedrockSchema()


class BedrockTool(msgspec.Struct, frozen=True):
    """An offered tool, or a cache point."""

    toolSpec: BedrockToolSpec | None = None


class BedrockToolConfig(msgspec.Struct, frozen=True):
    """The offered tools."""

    tools: list[BedrockTool] = []


class BedrockBody(msgspec.Struct, frozen=True):
    """A request body."""

    messages: list[BedrockTurn] | None = None
    system: list[BedrockPart] | None = None
    toolConfig: BedrockToolConfig | None = None
    inferenceConfig: JSON | UnsetType | None = UNSET
    additionalModelRequestFields: JSON | UnsetType | None = UNSET
    guardrailConfig: JSON | UnsetType | None = UNSET
    outputConfig: JSON | UnsetType | None = UNSET


_body_decoder = RequestDecoder(
    BedrockBody, "inferenceConfig additionalModelRequestFields guardrailConfig outputConfig"
)


# ---------------------------------------------------------------------------- decoding


def decode_body(body: bytes) -> tuple[BedrockBody, JSON]:
    """Return the body and its options; raise Bedrock's error if it is invalid."""
    try:
        return _body_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"The model returned the following errors: {error}", status=400) from error


def decode_messages(
    turns: Iterable[BedrockTurn], rules: frozenset[str], raw: RawBody
) -> list[Message]:
    """Decode and validate the turns; each tool result becomes a message."""
    messages: list[Message] = []
    tool_names: dict[str, str] = {}
    for number, turn in enumerate(turns, 1):
        if turn.role not in {"user", "assistant"} and "unknown_role" in rules:
            raise rejection(
                "unknown_role",
                f"1 validation error detected: Value '{turn.role}' at"
                f" 'messages.{number}.member.role' failed to satisfy constraint: Member must"
                " satisfy enum value set: [user, assistant]",
            )
        blocks: list[AnyBlock] = []
        results: list[Message] = []
        for index, part in enumerate(turn.content):
            path = ("messages", number - 1, "content", index)
            if part.toolResult is not None:
                result = _decode_result(
                    part.toolResult, tool_names, raw, (*path, "toolResult", "content")
                )
                results.append(Message("tool", (result,)))
            else:
                block = decode_block(part, raw, path)
                blocks.append(block)
                if isinstance(block, ToolCall):
                    tool_names[block.id] = block.name
        messages += results
        if blocks or not results:
            role = "assistant" if turn.role == "assistant" else "user"
            messages.append(Message(role, tuple(blocks)))
    violation = find_unpaired_call(messages, rules)
    if violation is not None:
        raise _pairing_error(violation)
    return messages


def decode_block(part: BedrockPart, raw: RawBody, path: JsonPath) -> AnyBlock:
    """Decode a block; one without a neutral form is kept raw."""
    if part.text is not None:
        return Text(part.text)
    if part.toolUse is not None:
        return ToolCall(part.toolUse.toolUseId, part.toolUse.name, part.toolUse.input or {})
    if part.reasoningContent is not None:
        thinking = part.reasoningContent.reasoningText
        if thinking is None:
            return Thinking("", part.reasoningContent.redactedContent, redacted=True)
        return Thinking(thinking.text, thinking.signature)
    return _decode_image(part.image, raw, path)


def _decode_image(image: BedrockImage | None, raw: RawBody, path: JsonPath) -> Image | RawBlock:
    if image is not None and image.source.bytes:
        return Image(image.source.bytes, f"image/{image.format}")
    block = raw.block("", path)
    return msgspec.structs.replace(block, kind=next(iter(block.data), "block"))


def _decode_result(
    result: BedrockToolResult, tool_names: dict[str, str], raw: RawBody, path: JsonPath
) -> ToolResult:
    content: list[Content] = []
    for index, part in enumerate(result.content):
        if part.text is not None:
            content.append(Text(part.text))
        elif part.json:
            content.append(Text(bytes(part.json).decode()))
        else:
            content.append(_decode_image(part.image, raw, (*path, index)))
    name = tool_names.get(result.toolUseId, "")
    return ToolResult(result.toolUseId, tuple(content), result.status == "error", name)


def _pairing_error(violation: Violation) -> ModelError:
    ids, path = ", ".join(violation.ids), f"messages.{violation.index}.content"
    messages = {
        "missing_result": f"Expected toolResult blocks at {path} for the following Ids: {ids}",
        "orphan_result": f"The number of toolResult blocks at {path} exceeds the number of toolUse"
        " blocks of previous turn.",
        "duplicate_id": f"The toolUse blocks at {path} contain duplicate Ids: {ids}",
    }
    return rejection(violation.rule, messages[violation.rule])


def decode_tools(config: BedrockToolConfig | None, rules: frozenset[str]) -> tuple[Tool, ...]:
    """Decode and validate the offered tools."""
    specs = [tool.toolSpec for tool in config.tools if tool.toolSpec] if config else []
    tools = tuple(Tool(spec.name, spec.description, spec.inputSchema.json) for spec in specs)
    violation = find_bad_schema(tools, rules)
    if violation is not None:
        raise rejection(
            violation.rule,
            f"The value at toolConfig.tools.{violation.index}.toolSpec.inputSchema.json.type must"
            " be one of the following: object.",
        )
    return tools


# ------------------------------------------------------------------------------- stream
# Encoding of replies as Bedrock's messages and binary event streams.

STOP_REASONS: dict[StopReason, str] = {
    "stop": "end_turn",
    "tool_use": "tool_use",
    "length": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "content_filtered",
    "error": "end_turn",
}
SERVER_ERROR = "Internal server error"
_REDACTED = "AAAA"  # the content of redacted thinking that was scripted


# ----------------------------------------------------------------------------- replies


def encode_block(block: AnyBlock) -> JSON | None:
    """Encode a content block; None for a tool result."""
    match block:
        case Text(text):
            return {"text": text}
        case Thinking(text, signature, redacted):
            if redacted:
                return {"reasoningContent": {"redactedContent": signature or _REDACTED}}
            thinking = {"text": text, "signature": signature}
            return {"reasoningContent": {"reasoningText": thinking}}
        case ToolCall(call_id, name, arguments):
            return {"toolUse": {"toolUseId": call_id, "name": name, "input": arguments}}
        case Image(data, media_type):
            image_format = media_type.partition("/")[2] or "png"
            return {"image": {"format": image_format, "source": {"bytes": data}}}
        case RawBlock():
            return raw_block_data(block, NAME)
        case ToolResult():
            return None


def _encode_usage(usage: Usage) -> JSON:
    encoded: JSON = {
        # Bedrock counts the cached tokens separately.
        "inputTokens": max(usage.input - usage.cache_read - usage.cache_write, 0),
        "outputTokens": usage.output,
        "totalTokens": usage.input + usage.output,
    }
    if usage.cache_read or usage.cache_write:
        encoded["cacheReadInputTokens"] = usage.cache_read
        encoded["cacheWriteInputTokens"] = usage.cache_write
    return encoded


def _stop_reason(reply: Reply) -> str:
    return "tool_use" if reply.calls else STOP_REASONS[reply.stop]


def encode_message(reply: Reply) -> bytes:
    """Encode a whole message."""
    blocks = (encode_block(block) for block in reply.sent_blocks)
    message = {"role": "assistant", "content": [block for block in blocks if block]}
    return to_json(
        {
            "output": {"message": message},
            "stopReason": _stop_reason(reply),
            "usage": _encode_usage(reply.usage),
            "metrics": {"latencyMs": 0},
        }
    )


def encode_frames(reply: Reply) -> Iterator[bytes]:
    """Yield the frames of a stream."""
    yield encode_event("messageStart", {"role": "assistant"})
    for index, block in enumerate(reply.sent_blocks):
        position: JSON = {"contentBlockIndex": index}
        if isinstance(block, ToolCall):
            start = {"toolUse": {"toolUseId": block.id, "name": block.name}}
            yield encode_event("contentBlockStart", {"start": start, **position})
        for delta in _deltas(reply, block):
            yield encode_event("contentBlockDelta", {"delta": delta, **position})
        yield encode_event("contentBlockStop", position)
    if reply.stop == "error":
        yield encode_exception(SERVER_ERROR)
        return
    yield encode_event("messageStop", {"stopReason": _stop_reason(reply)})
    metadata = {"usage": _encode_usage(reply.usage), "metrics": {"latencyMs": 0}}
    yield encode_event("metadata", metadata)


def _deltas(reply: Reply, block: AnyBlock) -> Iterator[JSON]:
    match block:
        case Text(text):
            for chunk in split_reply_text(reply, text):
                yield {"text": chunk}
        case ToolCall(_, _, arguments):
            for chunk in split_fixed(render_arguments(arguments)):
                yield {"toolUse": {"input": chunk}}
        case Thinking(text, signature, False):
            for chunk in split_fixed(text):
                yield {"reasoningContent": {"text": chunk}}
            if signature:
                yield {"reasoningContent": {"signature": signature}}
        case Thinking(_, signature):
            yield {"reasoningContent": {"redactedContent": signature or _REDACTED}}
        case _:  # an image or a raw block has no deltas
            return


# ------------------------------------------------------------------------------- client
# The client side of Bedrock's API: request bodies, and parsing of responses.

_STOPS: dict[str, StopReason] = {reason: stop for stop, reason in reversed(STOP_REASONS.items())}


# ------------------------------------------------------------------- building requests


def encode_turns(messages: Iterable[Message]) -> list[JSON]:
    """Encode the conversation; adjacent messages of one role become one turn."""
    turns: list[JSON] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        content: list[JSON] = []
        for block in message.blocks:
            if isinstance(block, ToolResult):
                content.append(_encode_result(block))
            elif (encoded := encode_block(block)) is not None:
                content.append(encoded)
        # Converse rejects adjacent turns of one role.
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += content
        else:
            turns.append({"role": role, "content": content})
    return turns


def _encode_result(result: ToolResult) -> JSON:
    content = [
        {"text": block.text} if isinstance(block, Text) else encode_block(block) or {}
        for block in result.content
    ]
    status = "error" if result.failed else "success"
    return {"toolResult": {"toolUseId": result.call_id, "content": content, "status": status}}


def encode_tools(tools: Iterable[Tool]) -> list[JSON]:
    """Encode the offered tools."""
    encoded: list[JSON] = []
    for tool in tools:
        spec: JSON = {
            "name": tool.name,
            "inputSchema": {"json": tool.schema or {"type": "object"}},
        }
        if tool.description:
            spec["description"] = tool.description
        encoded.append({"toolSpec": spec})
    return encoded


# ------------------------------------------------------------------- parsing responses


def parse_message(body: bytes) -> Reply:
    """Parse a whole message."""
    decoded = msgspec.json.decode(body, type=JSON)
    parts = msgspec.convert(decoded["output"]["message"]["content"], list[BedrockPart])
    raw = RawBody(body, NAME)
    path = ("output", "message", "content")
    blocks = [decode_block(part, raw, (*path, index)) for index, part in enumerate(parts)]
    stop = _STOPS.get(decoded["stopReason"], "stop")
    return Reply(tuple(blocks), stop, _parse_usage(decoded.get("usage", {})))


def parse_stream(body: bytes) -> Reply:
    """Parse an event stream."""
    accumulator = StreamAccumulator[int]()
    stop: StopReason | None = None
    usage = Usage()
    for headers, payload in parse_frames(body):
        data = msgspec.json.decode(payload or b"{}", type=JSON)
        if headers.get(":message-type") != "event":
            raise ModelError(str(data.get("message", "the stream failed")), status=500)
        index = data.get("contentBlockIndex", 0)
        match headers.get(":event-type"):
            case "contentBlockStart":
                block = accumulator.block(index, "text")
                if call := data.get("start", {}).get("toolUse"):
                    block.kind = "call"
                    block.call_id, block.name = call["toolUseId"], call["name"]
            case "contentBlockDelta":
                delta = data["delta"]
                block = accumulator.block(index, "text")
                if "text" in delta:
                    accumulator.add_text(index, delta["text"])
                elif "toolUse" in delta:
                    block.add(delta["toolUse"].get("input", ""))
                elif reasoning := delta.get("reasoningContent"):
                    if "redactedContent" in reasoning:
                        block.kind = "redacted"
                        block.signature = reasoning["redactedContent"]
                    else:
                        block.kind = "thinking"
                        block.add(reasoning.get("text", ""))
                        block.signature = reasoning.get("signature", block.signature)
            case "messageStop":
                stop = _STOPS.get(data["stopReason"], "stop")
            case "metadata":
                usage = _parse_usage(data.get("usage", {}))
            case _:
                pass
    if stop is None:
        raise interrupted_stream()
    return Reply(accumulator.blocks(), stop, usage, chunks=tuple(accumulator.chunks))


def _parse_usage(usage: JSON) -> Usage:
    read, written = usage.get("cacheReadInputTokens", 0), usage.get("cacheWriteInputTokens", 0)
    uncached = usage.get("inputTokens", 0)
    return Usage(uncached + read + written, usage.get("outputTokens", 0), read, written)


# ------------------------------------------------------------------------------ dialect

PATH = re.compile(r"/model/([^/]+)/(converse|converse-stream|invoke|invoke-with-response-stream)$")


class TitanBody(msgspec.Struct):
    """A request to Amazon's Titan for an embedding."""

    inputText: str | None = None
    dimensions: int = 1024
    embeddingTypes: list[str] | None = None


def _embed(raw: bytes) -> JSON:
    """Return the embedding of Titan; raise for a body of another model family."""
    try:
        body = msgspec.json.decode(raw, type=TitanBody)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"Malformed input request: {error}", status=400) from error
    if body.inputText is None or body.dimensions < 1:
        message = (
            "Offbook does not support invoke with this body: use converse, or invoke with the body"
            " of Anthropic (anthropic_version) or of Titan's embeddings (inputText)"
        )
        raise ModelError(message, status=400)
    vector = embed(body.inputText, body.dimensions)
    count = estimate_tokens(len(body.inputText))
    signs = [int(value > 0) for value in vector]
    types = {
        kind: signs if kind == "binary" else vector for kind in body.embeddingTypes or ("float",)
    }
    return {"embedding": vector, "embeddingsByType": types, "inputTextTokenCount": count}


class Bedrock:
    """Bedrock's Converse and ConverseStream, with these validation rules."""

    name = NAME
    continues_by_id = False

    def __init__(self, rules: frozenset[str] = ALL_RULES) -> None:
        self._rules = rules

    def claims(self, http_request: HttpRequest) -> bool:
        """Return whether this is a request to Bedrock."""
        return PATH.search(http_request.path) is not None

    def side_response(
        self,
        http_request: HttpRequest,
        conversations: ConversationStore,  # noqa: ARG002 - the protocol's
    ) -> HttpResponse | None:
        """Return the embeddings of `invoke`, or an error; None for a model call."""
        match = PATH.search(http_request.path)
        if match is None or match[2].startswith("converse"):
            return None
        try:
            body = _embed(http_request.body)
        except ModelError as error:
            return self.encode_error(error)
        return HttpResponse(200, {"content-type": "application/json"}, to_json(body))

    def decode(self, http_request: HttpRequest, conversations: ConversationStore) -> Request:  # noqa: ARG002 - the protocol's
        """Decode a request; raise `ModelError` where Bedrock would reject it."""
        body, options = decode_body(http_request.body)
        if not body.messages and "missing_field" in self._rules:
            raise rejection("missing_field", "The messages field is required.")
        match = PATH.search(http_request.path)
        model, operation = (unquote(match[1]), match[2]) if match else ("", "")
        raw = RawBody(http_request.body, NAME)
        return Request(
            History(decode_messages(body.messages or (), self._rules, raw)),
            "\n".join(part.text for part in body.system or () if part.text),
            decode_tools(body.toolConfig, self._rules),
            model,
            options,
            request_metadata(http_request, NAME),
            operation == "converse-stream",
        )

    def reply_id(self, reply: Reply, request: Request) -> str:
        """Return the id of the reply."""
        return make_reply_id("bedrock-", reply, request)

    def encode(self, reply: Reply, request: Request) -> HttpResponse:
        """Encode the message, whole or as a stream of frames."""
        headers = {"x-amzn-requestid": self.reply_id(reply, request)}
        if request.stream:
            headers["content-type"] = EVENT_STREAM
            return HttpResponse(200, headers, b"", tuple(encode_frames(reply)))
        if reply.stop == "error":
            return self.encode_error(ModelError(SERVER_ERROR, status=500), request)
        headers["content-type"] = "application/json"
        return HttpResponse(200, headers, encode_message(reply))

    def encode_error(self, error: ModelError, request: Request | None = None) -> HttpResponse:  # noqa: ARG002 - the protocol's
        """Encode an error; its type is in a header."""
        return error_response(error)

    def build_request(self, request: Request, base_url: str, key: str) -> HttpRequest:
        """Build a request to Bedrock with an API key; AWS signatures are not supported."""
        body: JSON = {"messages": encode_turns(request.messages)}
        if request.system:
            body["system"] = [{"text": request.system}]
        if request.tools:
            body["toolConfig"] = {"tools": encode_tools(request.tools)}
        # The options of other dialects have other names.
        if request.metadata.get("dialect", NAME) == NAME:
            body |= request.parameters
        operation = "converse-stream" if request.stream else "converse"
        url = f"{base_url.rstrip('/')}/model/{quote(request.model, safe='')}/{operation}"
        headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
        return HttpRequest("POST", url, headers, to_json(body))

    def parse_response(self, response: HttpResponse, request: Request) -> Reply:
        """Parse a response of Bedrock, streamed or not."""
        raise_for_status(response)
        body = response_body(response)
        is_stream = response.headers.get("content-type", "").startswith(EVENT_STREAM)
        reply = parse_stream(body) if is_stream else parse_message(body)
        reply_id = response.headers.get("x-amzn-requestid", "")
        return msgspec.structs.replace(reply, id=reply_id, model=request.model)
