"""Google's Gemini API."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects.dialect import (
    HttpRequest,
    HttpResponse,
    error_headers,
    make_reply_id,
    request_metadata,
)
from offbook.exchange.dialects.embeddings import estimate_tokens
from offbook.exchange.dialects.gemini import gemini_wire as wire
from offbook.exchange.dialects.provider_responses import (
    StreamAccumulator,
    error_status,
    interrupted_stream,
    invalid_response,
    is_event_stream,
    parse_sse,
    raise_for_status,
    response_body,
)
from offbook.exchange.dialects.wire import (
    ALL_RULES,
    RawBody,
    raw_block_data,
    rejection,
    split_reply_text,
    split_words,
)
from offbook.exchange.messages import (
    JSON,
    RAW_ARGUMENTS,
    AnyBlock,
    History,
    Image,
    Message,
    RawBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    to_json,
)
from offbook.exchange.model import Reply, Request, StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from offbook.exchange.dialects.dialect import ConversationStore, LiveSession
    from offbook.exchange.model import Tool


STATUS_NAMES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}

MODELS = ("gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-embedding-001")
LIVE = "BidiGenerateContent"  # at the end of the path of a WebSocket
SIDE_VERBS = frozenset({"countTokens", "embedContent", "batchEmbedContents", "predict"})

_API_VERSION = re.compile(r"/v\d\w*$")


class Gemini:
    """Google's Gemini API, with these validation rules."""

    name = wire.NAME
    continues_by_id = False

    def __init__(self, rules: frozenset[str] = ALL_RULES) -> None:
        self._rules = rules

    def claims(self, http_request: HttpRequest) -> bool:
        """Return whether this is a request to Gemini."""
        verb = _find_verb(http_request.path)
        return (
            verb in wire.MODEL_CALLS
            or verb in SIDE_VERBS
            or "x-goog-api-key" in http_request.headers
            or http_request.path.endswith(LIVE)
        )

    def open_session(self, http_request: HttpRequest) -> LiveSession | None:
        """Return a new conversation of the Live API."""
        if not http_request.path.endswith(LIVE):
            return None
        from offbook.exchange.dialects.gemini.gemini_live import GeminiLiveSession

        return GeminiLiveSession(http_request)

    def side_response(
        self,
        http_request: HttpRequest,
        conversations: ConversationStore,  # noqa: ARG002 - the protocol's
    ) -> HttpResponse | None:
        """Return models, token counts or embeddings; None for a model call."""
        if _find_verb(http_request.path) in wire.MODEL_CALLS:
            return None
        try:
            body = _side_response(http_request)
        except ModelError as error:
            return self.encode_error(error)
        return HttpResponse(200, {"content-type": JSON_TYPE}, to_json(body))

    def decode(self, http_request: HttpRequest, conversations: ConversationStore) -> Request:
        """Decode a request; raise `ModelError` where Gemini would reject it."""
        body, options = wire.decode_body(wire.body_decoder, http_request.body)
        for snake_name, name in wire.OPTIONS.items():
            if snake_name in options:
                options.setdefault(name, options.pop(snake_name))
        turns = body.turns
        if not turns and "missing_field" in self._rules:
            message = "* GenerateContentRequest.contents: contents is not specified\n"
            raise rejection("missing_field", message)
        tools, tool_problem = wire.decode_tools(bytes(body.tools))
        if tool_problem and "bad_tool_schema" in self._rules:
            raise rejection("bad_tool_schema", tool_problem)
        path = http_request.path
        is_stream = _find_verb(path) == "streamGenerateContent"
        metadata = request_metadata(http_request, wire.NAME)
        if is_stream and "sse" not in parse_qs(http_request.query).get("alt", ()):
            metadata["framing"] = "array"  # without `alt=sse` a stream is a JSON array
        raw = RawBody(http_request.body or b"{}", wire.NAME)
        reader = wire.GeminiMessageReader(self._rules, raw, conversations)
        system = body.systemInstruction or body.system_instruction
        model = path.rpartition("/models/")[2] if "/models/" in path else path.rpartition("/")[2]
        return Request(
            History(reader.read(turns, "contents")),
            "\n".join(part.text or "" for part in system.part_list) if system else "",
            tools,
            unquote(model.rpartition(":")[0]),
            options,
            metadata,
            is_stream,
        )

    def reply_id(self, reply: Reply, request: Request) -> str:
        """Return the id of the response."""
        return make_reply_id("", reply, request, length=22)

    def encode(self, reply: Reply, request: Request) -> HttpResponse:
        """Encode the response, whole or as a stream."""
        reply = _fit_modalities(reply, request)
        fields: JSON = {
            "usageMetadata": encode_usage(reply.usage),
            "modelVersion": reply.model or request.model,
            "responseId": self.reply_id(reply, request),
        }
        if not request.stream:
            return encode_response(reply, fields)
        return encode_stream(reply, fields, as_array=_is_array(request))

    def encode_error(self, error: ModelError, request: Request | None = None) -> HttpResponse:
        """Encode an error."""
        status = error.status
        default_name = "INTERNAL" if status >= 500 else "FAILED_PRECONDITION"  # noqa: PLR2004 - HTTP's
        status_name = STATUS_NAMES.get(status, default_name)
        headers = {"content-type": JSON_TYPE, **error_headers(error)}
        fields: JSON = {"code": status, "message": error.message, "status": status_name}
        if error.retry_after is not None:
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            fields["details"] = [{"@type": kind, "retryDelay": f"{error.retry_after:g}s"}]
        body: object = {"error": fields}
        if request is not None and _is_array(request):
            body = [body]
        return HttpResponse(status, headers, to_json(body))

    def build_request(self, request: Request, base_url: str, key: str) -> HttpRequest:
        """Build a request to Google."""
        base = base_url.rstrip("/")
        if not _API_VERSION.search(base):
            base += "/v1beta"
        verb, query = (
            ("streamGenerateContent", "alt=sse")
            if request.stream
            else (
                "generateContent",
                "",
            )
        )
        body: JSON = {"contents": list(encode_turns(request.messages)), **encode_options(request)}
        if request.system:
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        if request.tools:
            body["tools"] = encode_tools(request.tools)
        headers = {"content-type": "application/json", "x-goog-api-key": key}
        path = f"{base}/models/{request.model}:{verb}"
        return HttpRequest("POST", path, headers, to_json(body), query)

    def parse_response(self, response: HttpResponse, request: Request) -> Reply:
        """Parse a response of Google."""
        raise_for_status(response)
        body = response_body(response)
        try:
            match body.lstrip()[:1]:
                case b"{":
                    return parse_responses([body], request)
                case b"[":
                    return parse_responses(wire.decode_response_list(body), request, stream=True)
                case _ if is_event_stream(response):
                    events = [event.data for event in parse_sse(body)]
                    return parse_responses(events, request, stream=True)
                case _:
                    return parse_responses([body], request)
        except msgspec.MsgspecError as error:
            raise invalid_response("Gemini", error) from error


def _find_verb(path: str) -> str:
    """Return the method in a path: `…/models/MODEL:generateContent`."""
    return path.rpartition(":")[2]


def _fit_modalities(reply: Reply, request: Request) -> Reply:
    """Return the reply as the request asks for it: spoken, if it must not be a text.

    The audio of a text is its bytes in UTF-8.
    """
    config: JSON = request.parameters.get("generationConfig") or {}
    modalities = config.get("responseModalities") or ("TEXT",)
    if "TEXT" in modalities or "AUDIO" not in modalities or not reply.text:
        return reply
    blocks = [
        Image(b64encode(block.text.encode()).decode(), AUDIO_TYPE)
        if isinstance(block, Text)
        else block
        for block in reply.blocks
    ]
    return msgspec.structs.replace(reply, blocks=tuple(blocks))


def _is_array(request: Request) -> bool:
    return request.metadata.get("framing") == "array"


def _side_response(http_request: HttpRequest) -> JSON:
    path, body = http_request.path, http_request.body
    is_model = http_request.method == "GET" and ":" not in path.rpartition("/")[2]
    match _find_verb(path):
        case "countTokens":
            wire.decode_body(wire.body_decoder, body)
            total = estimate_tokens(len(body))
            details = [{"modality": "TEXT", "tokenCount": total}]
            return {"totalTokens": total, "promptTokensDetails": details}
        case "embedContent":
            return {"embedding": wire.decode_body(wire.embedding_decoder, body).vector}
        case "batchEmbedContents":
            batch = wire.decode_body(wire.embedding_batch_decoder, body)
            return {"embeddings": [embedding.vector for embedding in batch.requests]}
        case "predict":
            return wire.decode_body(wire.prediction_decoder, body).embeddings
        case _ if is_model and path.endswith("/models"):
            return {"models": [_describe_model(name) for name in MODELS]}
        case _ if is_model and "/models/" in path:
            return _describe_model(path.rpartition("/")[2])
        case _:
            message = f"Offbook does not support {http_request.method} {path}"
            raise ModelError(message, status=404)


def _describe_model(name: str) -> JSON:
    methods = ["embedContent"] if "embed" in name else sorted(wire.MODEL_CALLS | {"countTokens"})
    return {
        "name": f"models/{name}",
        "version": "001",
        "displayName": name.replace("-", " ").title(),
        "inputTokenLimit": 1_048_576,
        "outputTokenLimit": 65_536,
        "supportedGenerationMethods": methods,
    }


# ------------------------------------------------------------------------------- stream
# Encoding of replies as Gemini's responses and streams of responses.

JSON_TYPE = "application/json; charset=UTF-8"
AUDIO_TYPE = "audio/L16;codec=pcm;rate=24000"

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


# ------------------------------------------------------------------------------- client
# The client side of Gemini's API: request bodies, and parsing of responses.

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


def parse_responses(
    bodies: Sequence[bytes | str | msgspec.Raw], request: Request, *, stream: bool = False
) -> Reply:
    """Parse a whole response, or the responses of a stream."""
    accumulator = StreamAccumulator[int]()
    parts: list[wire.GeminiPart] = []
    raw_parts: list[Any] = []
    reply = Reply(model=request.model)
    finish = ""
    for body in bodies:
        response = wire.decode_response(body)
        if (error := response.error) is not None:
            raise ModelError(str(error.get("message", "")), status=error_status(error))
        if response.promptFeedback and not response.candidates:
            finish = "SAFETY"
        elif not stream and not response.candidates:
            raise invalid_response("Gemini", "it has neither candidates nor promptFeedback")
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
    if stream and not finish:
        raise interrupted_stream()
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
