"""Cohere's API, version 2: chats, embeddings and the ranking of documents.

A reply with calls has its text in `tool_plan`, any other one in `content`.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.determinism.run_context import stable_id
from offbook.errors import ModelError
from offbook.exchange.dialects.dialect import (
    HttpRequest,
    HttpResponse,
    error_headers,
    make_reply_id,
    request_metadata,
)
from offbook.exchange.dialects.embeddings import embed, estimate_tokens, pack_floats
from offbook.exchange.dialects.provider_responses import (
    StreamAccumulator,
    interrupted_stream,
    invalid_response,
    is_event_stream,
    parse_sse,
    raise_for_status,
    response_body,
)
from offbook.exchange.dialects.wire import (
    ALL_RULES,
    EVENT_STREAM,
    FunctionTool,
    JsonPath,
    RawBody,
    RequestDecoder,
    encode_function,
    encode_sse,
    find_bad_schema,
    find_unpaired_call,
    raw_block_data,
    rejection,
    split_fixed,
    split_reply_text,
    split_words,
    unsupported_block,
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
    parse_arguments,
    render_arguments,
    to_json,
)
from offbook.exchange.model import Reply, Request, StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from offbook.exchange.dialects.dialect import ConversationStore
    from offbook.exchange.dialects.wire import Violation

NAME = "cohere"
CHAT = "/v2/chat"
SIDE_PATHS = ("/v2/embed", "/v1/embed", "/v2/rerank", "/v1/rerank")
OLD_CHAT = "/v1/chat"
JSON_TYPE = "application/json"
EMBEDDING_DIMENSIONS = 1536
SERVER_ERROR = "internal server error, this has been reported to our developers"


# ---------------------------------------------------------------------------- wire types


class CohereUrl(msgspec.Struct):
    """The URL of an image."""

    url: str = ""


class CohereDocument(msgspec.Struct):
    """A document in a tool result: a text, or an object."""

    data: str | JSON = ""


class CoherePart(msgspec.Struct):
    """A content part of any type."""

    type: str = "text"
    text: str | None = None
    thinking: str | None = None
    image_url: CohereUrl | None = None
    document: CohereDocument | None = None


class CohereFunction(msgspec.Struct):
    """The name and the arguments of a call, or a part of the arguments in a stream."""

    name: str | None = None
    arguments: str | None = None


class CohereCall(msgspec.Struct):
    """A tool call."""

    id: str | None = None
    function: CohereFunction = msgspec.field(default_factory=CohereFunction)


class CohereMessage(msgspec.Struct):
    """A message of a request or a response."""

    role: str = ""
    content: str | list[CoherePart] | None = None
    tool_calls: list[CohereCall] | None = None
    tool_plan: str | None = None
    tool_call_id: str = ""


class CohereBody(msgspec.Struct):
    """The body of a chat."""

    model: str = ""
    messages: list[CohereMessage] | None = None
    tools: list[FunctionTool] | None = None
    stream: bool | None = None


class CohereSideBody(msgspec.Struct):
    """The body of a request for embeddings, or for a ranking."""

    model: str = ""
    texts: list[str] | None = None
    inputs: list[CohereMessage] | None = None
    embedding_types: list[str] | None = None
    output_dimension: int | None = None
    query: str = ""
    documents: list[str | JSON] | None = None
    top_n: int | None = None
    return_documents: bool | None = None


class CohereTokens(msgspec.Struct):
    """Token counts; Cohere writes them as floats."""

    input_tokens: float | None = None
    output_tokens: float | None = None


class CohereUsage(msgspec.Struct):
    """Token counts, and those that were read from the cache."""

    tokens: CohereTokens | None = None
    cached_tokens: float | None = None


class CohereResponse(msgspec.Struct, kw_only=True):
    """A whole response."""

    id: str = ""
    message: CohereMessage
    finish_reason: str = "COMPLETE"
    usage: CohereUsage | None = None


_body_decoder = RequestDecoder(
    CohereBody,
    """
    citation_options documents frequency_penalty k logprobs max_tokens p presence_penalty priority
    response_format safety_mode seed stop_sequences strict_tools temperature thinking tool_choice
    """,
)
_side_decoder = msgspec.json.Decoder(CohereSideBody)
_response_decoder = msgspec.json.Decoder(CohereResponse)


# ------------------------------------------------------------------------------- dialect


class Cohere:
    """Cohere's API, with these validation rules."""

    name = NAME
    continues_by_id = False

    def __init__(self, rules: frozenset[str] = ALL_RULES) -> None:
        self._rules = rules

    def claims(self, http_request: HttpRequest) -> bool:
        """Return whether this is a request to Cohere."""
        return http_request.path.endswith((CHAT, OLD_CHAT, *SIDE_PATHS))

    def side_response(
        self,
        http_request: HttpRequest,
        conversations: ConversationStore,  # noqa: ARG002 - the protocol's
    ) -> HttpResponse | None:
        """Return embeddings or a ranking; None for a chat."""
        path = http_request.path
        if path.endswith(CHAT):
            return None
        try:
            if path.endswith(OLD_CHAT):
                message = f"Offbook does not support {OLD_CHAT}: use {CHAT} (cohere.ClientV2)"
                raise ModelError(message, status=404)  # noqa: TRY301 - rendered below
            body = _side_response(path, http_request.body)
        except ModelError as error:
            return self.encode_error(error)
        return HttpResponse(200, {"content-type": JSON_TYPE}, to_json(body))

    def decode(self, http_request: HttpRequest, conversations: ConversationStore) -> Request:  # noqa: ARG002 - the protocol's
        """Decode a chat; raise `ModelError` where Cohere would reject it."""
        try:
            body, options = _body_decoder.decode(http_request.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ModelError(f"invalid request: {error}", status=400) from error
        if not body.messages and "missing_field" in self._rules:
            message = "invalid request: messages must have at least one message"
            raise rejection("missing_field", message)
        system, messages = self._decode_messages(
            body.messages or (), RawBody(http_request.body, NAME)
        )
        if violation := find_unpaired_call(messages, self._rules):
            raise _pairing_error(violation)
        tools = tuple(tool.decode() for tool in body.tools or ())
        if violation := find_bad_schema(tools, self._rules):
            message = f"invalid tool {violation.ids[0]}: parameters must be of type object"
            raise rejection(violation.rule, message)
        metadata = request_metadata(http_request, NAME)
        return Request(
            History(messages), system, tools, body.model, options, metadata, body.stream is True
        )

    def _decode_messages(
        self, sent: Sequence[CohereMessage], raw: RawBody
    ) -> tuple[str, list[Message]]:
        """Return the system prompt and the messages."""
        system: list[str] = []
        messages: list[Message] = []
        names: dict[str, str] = {}
        for index, message in enumerate(sent):
            content = _decode_content(message.content, raw, ("messages", index, "content"))
            match message.role:
                case "system" | "developer":
                    # At the start they are the system prompt; later ones are messages.
                    if messages:
                        messages.append(Message("system", content))
                    else:
                        system.append(Message("system", content).text)
                case "assistant":
                    decoded = _decode_reply(message, content)
                    names |= {call.id: call.name for call in decoded.calls}
                    messages.append(decoded)
                case "tool":
                    call_id = message.tool_call_id
                    shown: list[Content] = [
                        block for block in content if isinstance(block, (Text, Image, RawBlock))
                    ]
                    result = ToolResult(call_id, tuple(shown), None, names.get(call_id, ""))
                    messages.append(Message("tool", (result,)))
                case role if role != "user" and "unknown_role" in self._rules:
                    raise rejection(
                        "unknown_role",
                        f"invalid request: messages[{index}].role must be one of 'user',"
                        f" 'assistant', 'system', 'tool', got {role!r}",
                    )
                case _:
                    messages.append(Message("user", content))
        return "\n\n".join(system), messages

    def reply_id(self, reply: Reply, request: Request) -> str:
        """Return the id of the response."""
        return make_reply_id("", reply, request, length=32)

    def encode(self, reply: Reply, request: Request) -> HttpResponse:
        """Encode the response, whole or as a stream of events."""
        reply_id = self.reply_id(reply, request)
        if request.stream:
            events = tuple(_encode_events(reply, reply_id))
            return HttpResponse(200, {"content-type": EVENT_STREAM}, b"", events)
        if reply.stop == "error":
            return self.encode_error(ModelError(SERVER_ERROR, status=500), request)
        body = {
            "id": reply_id,
            "message": _encode_message(reply.blocks),
            "finish_reason": _finish_reason(reply),
            "usage": _encode_usage(reply.usage),
        }
        return HttpResponse(200, {"content-type": JSON_TYPE}, to_json(body))

    def encode_error(self, error: ModelError, request: Request | None = None) -> HttpResponse:  # noqa: ARG002 - the protocol's
        """Encode an error."""
        error_id = stable_id("", str(error.status), error.message, length=32)
        headers = {"content-type": JSON_TYPE, **error_headers(error)}
        body = {"id": error_id, "message": error.message}
        return HttpResponse(error.status, headers, to_json(body))

    def build_request(self, request: Request, base_url: str, key: str) -> HttpRequest:
        """Build a request to Cohere."""
        body: JSON = {"model": request.model, "messages": list(_encode_messages(request))}
        if request.tools:
            body["tools"] = [encode_function(tool) for tool in request.tools]
        # The options of other dialects have other names.
        if request.metadata.get("dialect", NAME) == NAME:
            body |= request.parameters
        body["stream"] = request.stream
        headers = {"content-type": JSON_TYPE, "authorization": f"Bearer {key}"}
        return HttpRequest("POST", f"{base_url.rstrip('/')}{CHAT}", headers, to_json(body))

    def parse_response(self, response: HttpResponse, request: Request) -> Reply:
        """Parse a response of Cohere."""
        raise_for_status(response)
        body = response_body(response)
        try:
            if is_event_stream(response):
                reply = _parse_stream(body)
            else:
                decoded = _response_decoder.decode(body)
                path = ("message", "content")
                content = _decode_content(decoded.message.content, RawBody(body, NAME), path)
                blocks = _decode_reply(decoded.message, content).blocks
                stop = STOPS.get(decoded.finish_reason, "stop")
                reply = Reply(blocks, stop, _parse_usage(decoded.usage), id=decoded.id)
        except msgspec.MsgspecError as error:
            raise invalid_response("Cohere", error) from error
        return msgspec.structs.replace(reply, model=request.model)


# ---------------------------------------------------------------------------- decoding


def _decode_content(
    content: str | list[CoherePart] | None, raw: RawBody, path: JsonPath
) -> tuple[AnyBlock, ...]:
    if isinstance(content, str):
        return (Text(content),) if content else ()
    blocks: list[AnyBlock] = []
    for index, part in enumerate(content or ()):
        if part.text is not None:
            blocks.append(Text(part.text))
        elif part.thinking is not None:
            blocks.append(Thinking(part.thinking))
        elif part.image_url is not None:
            blocks.append(Image(url=part.image_url.url))
        elif part.document is not None:  # the usual form of a tool result
            data = part.document.data
            blocks.append(Text(data if isinstance(data, str) else to_json(data).decode()))
        else:
            blocks.append(raw.block(part.type, (*path, index)))
    return tuple(blocks)


def _decode_reply(message: CohereMessage, content: tuple[AnyBlock, ...]) -> Message:
    plan = (Text(message.tool_plan),) if message.tool_plan else ()
    calls = (
        ToolCall(
            call.id or "", call.function.name or "", parse_arguments(call.function.arguments or "")
        )
        for call in message.tool_calls or ()
    )
    return Message("assistant", (*content, *plan, *calls))


def _pairing_error(violation: Violation) -> ModelError:
    ids, place = ", ".join(violation.ids), f"messages[{violation.index}]"
    messages = {
        "missing_result": f"invalid request: {place}: missing tool results for tool calls: {ids}",
        "orphan_result": f"invalid tool message at {place}: tool call id not found in previous"
        f" tool calls: {ids}",
        "duplicate_id": f"invalid request: {place}: duplicate tool call id: {ids}",
    }
    return rejection(violation.rule, messages[violation.rule])


# ------------------------------------------------------------------------ side requests


def _side_response(path: str, raw: bytes) -> JSON:
    try:
        body = _side_decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"invalid request: {error}", status=400) from error
    version = {"api_version": {"version": path.split("/")[-2].removeprefix("v")}}
    reply_id = stable_id("", raw.decode(), length=32)
    if path.endswith("/rerank"):
        meta: JSON = {**version, "billed_units": {"search_units": 1}}
        return {"id": reply_id, "results": _rank(body), "meta": meta}
    texts = body.texts or [
        Message("user", _decode_content(entry.content, RawBody(b"{}", NAME), ())).text
        for entry in body.inputs or ()
    ]
    size = EMBEDDING_DIMENSIONS if body.output_dimension is None else body.output_dimension
    if not texts or size < 1:
        message = "invalid request: texts and a positive output_dimension are required"
        raise ModelError(message, status=400)
    vectors = [embed(text, size) for text in texts]
    tokens = sum(estimate_tokens(len(text)) for text in texts)
    meta = {**version, "billed_units": {"input_tokens": tokens}}
    reply: JSON = {"id": reply_id, "texts": texts, "meta": meta}
    kinds = body.embedding_types or ([] if path.endswith("/v1/embed") else ["float"])
    if not kinds:
        return {**reply, "response_type": "embeddings_floats", "embeddings": vectors}
    encoded = {kind: [_convert_vector(vector, kind) for vector in vectors] for kind in kinds}
    return {**reply, "response_type": "embeddings_by_type", "embeddings": encoded}


def _convert_vector(vector: list[float], kind: str) -> Any:
    """Return a vector in one of Cohere's types."""
    scaled = [max(-128, min(127, round(value * 127))) for value in vector]
    eights = [vector[start : start + 8] for start in range(0, len(vector), 8)]
    packed = [sum(2 ** (7 - n) for n, value in enumerate(e) if value > 0) for e in eights]
    match kind:
        case "float":
            return vector
        case "int8":
            return scaled
        case "uint8":
            return [value + 128 for value in scaled]
        case "ubinary":
            return packed
        case "binary":
            return [value - 128 for value in packed]
        case "base64":
            return b64encode(pack_floats(vector)).decode()
        case _:
            raise ModelError(f"invalid request: unknown embedding type {kind!r}", status=400)


def _rank(body: CohereSideBody) -> list[JSON]:
    """Return the documents by the similarity of their embeddings to that of the query."""
    if not body.query or not body.documents:
        raise ModelError("invalid request: query and documents are required", status=400)
    query = embed(body.query, EMBEDDING_DIMENSIONS)
    results: list[JSON] = []
    for index, document in enumerate(body.documents):
        text = document if isinstance(document, str) else str(document.get("text", document))
        vector = embed(text, EMBEDDING_DIMENSIONS)
        similarity = sum(one * other for one, other in zip(query, vector, strict=True))
        result: JSON = {"index": index, "relevance_score": round(max(0.0, similarity), 6)}
        results.append({**result, "document": {"text": text}} if body.return_documents else result)
    results.sort(key=lambda result: -result["relevance_score"])
    return results[: body.top_n]


# ---------------------------------------------------------------------------- encoding

FINISH_REASONS: dict[StopReason, str] = {
    "stop": "COMPLETE",
    "tool_use": "TOOL_CALL",
    "length": "MAX_TOKENS",
    "stop_sequence": "STOP_SEQUENCE",
    "refusal": "COMPLETE",
    "error": "ERROR",
}
STOPS: dict[str, StopReason] = {reason: stop for stop, reason in reversed(FINISH_REASONS.items())}


def _finish_reason(reply: Reply) -> str:
    return FINISH_REASONS["tool_use" if reply.calls and reply.stop == "stop" else reply.stop]


def _encode_call(call: ToolCall, arguments: str) -> JSON:
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _encode_part(block: AnyBlock) -> JSON:
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case Thinking(text):
            return {"type": "thinking", "thinking": text}
        case Image(data, media_type, url):
            url = url or f"data:{media_type};base64,{data}"
            return {"type": "image_url", "image_url": {"url": url}}
        case RawBlock():
            return raw_block_data(block, NAME)
        case _:
            raise unsupported_block(block, NAME)


def _encode_message(blocks: Sequence[AnyBlock]) -> JSON:
    """Encode a message of the model."""
    message: JSON = {"role": "assistant"}
    calls = [block for block in blocks if isinstance(block, ToolCall)]
    content = [block for block in blocks if not isinstance(block, ToolCall)]
    if calls:
        plan = "\n".join(block.text for block in content if isinstance(block, Text))
        content = [block for block in content if not isinstance(block, Text)]
        encoded = [_encode_call(call, render_arguments(call.arguments)) for call in calls]
        message |= {"tool_calls": encoded, **({"tool_plan": plan} if plan else {})}
    if content:
        message["content"] = [_encode_part(block) for block in content]
    return message


def _encode_usage(usage: Usage) -> JSON:
    tokens = {"input_tokens": usage.input, "output_tokens": usage.output}
    return {"billed_units": tokens, "tokens": tokens, "cached_tokens": usage.cache_read}


def _encode_events(reply: Reply, reply_id: str) -> Iterator[bytes]:
    """Yield the events of a stream."""

    def event(kind: str, message: JSON | None = None, **fields: Any) -> bytes:
        delta: JSON = {} if message is None else {"delta": {"message": message}}
        return encode_sse(to_json({"type": kind, **fields, **delta}), kind)

    empty: JSON = {"content": [], "tool_plan": "", "tool_calls": [], "citations": []}
    yield event("message-start", {"role": "assistant", **empty}, id=reply_id)
    index = 0
    for block in reply.blocks:
        match block:
            case Text(text) if reply.calls:
                for chunk in split_reply_text(reply, text):
                    yield event("tool-plan-delta", {"tool_plan": chunk})
            case Text(text) | Thinking(text):
                field = "text" if isinstance(block, Text) else "thinking"
                words = split_reply_text(reply, text) if field == "text" else split_words(text)
                start = {"content": {"type": field, field: ""}}
                yield event("content-start", start, index=index)
                for chunk in words:
                    yield event("content-delta", {"content": {field: chunk}}, index=index)
                yield event("content-end", index=index)
                index += 1
            case ToolCall():
                continue
            case _:
                raise unsupported_block(block, NAME)
    for number, call in enumerate(reply.calls):
        yield event("tool-call-start", {"tool_calls": _encode_call(call, "")}, index=number)
        for chunk in split_fixed(render_arguments(call.arguments)):
            part = {"tool_calls": {"function": {"arguments": chunk}}}
            yield event("tool-call-delta", part, index=number)
        yield event("tool-call-end", index=number)
    end: JSON = {"finish_reason": _finish_reason(reply), "usage": _encode_usage(reply.usage)}
    if reply.stop == "error":
        end["error"] = SERVER_ERROR
    yield encode_sse(to_json({"type": "message-end", "id": reply_id, "delta": end}), "message-end")
    yield encode_sse(b"[DONE]")


# ------------------------------------------------------------------------- client side


def _encode_messages(request: Request) -> Iterator[JSON]:
    if request.system:
        yield {"role": "system", "content": request.system}
    for message in request.messages:
        if message.role == "assistant":
            yield _encode_message(message.blocks)
        elif message.role == "tool":
            for result in message.results:
                content = _encode_parts(result.content)
                yield {"role": "tool", "tool_call_id": result.call_id, "content": content}
        else:
            yield {"role": message.role, "content": _encode_parts(message.blocks)}


def _encode_parts(blocks: Iterable[AnyBlock]) -> str | list[JSON]:
    parts = tuple(blocks)
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    return [_encode_part(block) for block in parts]


def _parse_usage(usage: CohereUsage | None) -> Usage:
    tokens = (usage and usage.tokens) or CohereTokens()
    cached = (usage and usage.cached_tokens) or 0
    return Usage(int(tokens.input_tokens or 0), int(tokens.output_tokens or 0), int(cached))


_CONTENT, _PLAN, _CALLS = range(3)


def _parse_stream(stream: bytes) -> Reply:
    accumulator = StreamAccumulator[tuple[int, ...]]()
    reply_id = ""
    end: JSON | None = None
    for event in parse_sse(stream):
        if event.data == "[DONE]":
            break
        data = msgspec.json.decode(event.data, type=JSON)
        index = data.get("index", 0)
        delta: JSON = data.get("delta") or {}
        message: JSON = delta.get("message") or {}
        match data.get("type"):
            case "message-start":
                reply_id = data.get("id", "")
            case "content-start" | "content-delta":
                content: JSON = message.get("content") or {}
                if text := content.get("text"):
                    accumulator.add_text((_CONTENT, index), text)
                if thinking := content.get("thinking"):
                    accumulator.block((_CONTENT, index), "thinking").add(thinking)
            case "tool-plan-delta":
                accumulator.add_text((_PLAN,), message.get("tool_plan", ""))
            case "tool-call-start" | "tool-call-delta":
                call = msgspec.convert(message.get("tool_calls") or {}, CohereCall)
                block = accumulator.block((_CALLS, index), "call")
                block.call_id = block.call_id or call.id or ""
                block.name = block.name or call.function.name or ""
                block.add(call.function.arguments or "")
            case "message-end":
                end = delta
            case _:
                pass
    if end is None:
        raise interrupted_stream()
    if end.get("error"):
        raise ModelError(str(end["error"]), status=500)
    usage = msgspec.convert(end.get("usage"), CohereUsage | None)
    stop = STOPS.get(end.get("finish_reason", ""), "stop")
    chunks = tuple(accumulator.chunks)
    return Reply(accumulator.blocks(), stop, _parse_usage(usage), id=reply_id, chunks=chunks)
