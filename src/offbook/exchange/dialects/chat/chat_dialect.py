"""OpenAI's chat completions, with the list of models and the embeddings.

The format cannot represent everything, so a conversation is normalized on the way: the system
messages at the start become the one `system`; the texts of a reply become one text, after its
reasoning and before its calls; and a tool result does not say whether it is an error.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, cast

import msgspec

from offbook.determinism.run_context import EPOCH
from offbook.errors import ModelError, UsageError
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.chat import chat_wire as wire
from offbook.exchange.dialects.dialect import (
    CachedPrefix,
    ConversationStore,
    HttpRequest,
    HttpResponse,
    PrefixCache,
    request_metadata,
)
from offbook.exchange.dialects.wire import (
    ALL_RULES,
    EVENT_STREAM,
    PLACEHOLDER,
    ByteTemplate,
    FilledTemplate,
    RawBody,
    encode_sse,
    find_unpaired_call,
    split_fixed,
    split_reply_text,
    split_words,
    unsupported_block,
)
from offbook.exchange.messages import (
    JSON,
    Text,
    Thinking,
    ToolCall,
    render_arguments,
    render_custom_input,
    to_json,
)
from offbook.exchange.model import Reply, Request, StopReason, Tool, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


ID_PREFIX = "chatcmpl-"
CHAT_PATH = "/chat/completions"
MODELS = ("gpt-5", "gpt-5-mini", "gpt-4o", "gpt-4o-mini", "text-embedding-3-small")


class Chat:
    """The dialect of `/v1/chat/completions`."""

    name = wire.NAME
    continues_by_id = False

    def __init__(self, rules: frozenset[str] = ALL_RULES) -> None:
        self._rules = rules
        self._tools = lru_cache(maxsize=64)(self._decode_tools)
        self._cache: PrefixCache[wire.ChatState] = PrefixCache("messages", wire.shorten_state)

    def claims(self, http_request: HttpRequest) -> bool:
        """Return whether this is a completion or another of OpenAI's endpoints."""
        path = http_request.path
        if path.endswith(CHAT_PATH):
            return True
        if path.endswith(("/embeddings", *wire.MEDIA_PATHS)):
            return not path.endswith("/api/embeddings")  # Ollama's
        if path.endswith("/models") or "/models/" in path:
            return http_request.method == "GET" and not _is_of_others(http_request)
        return re.search(wire.STORE_PATH, path) is not None and not _is_of_others(http_request)

    def side_response(
        self, http_request: HttpRequest, conversations: ConversationStore
    ) -> HttpResponse | None:
        """Return models, embeddings or what the client stored; None for a model call."""
        path = http_request.path
        if path.endswith(CHAT_PATH):
            return None
        if path.endswith(wire.MEDIA_PATHS) or re.search(wire.SEARCH_PATH, path):
            return None
        if re.search(wire.STORE_PATH, path):
            from offbook.exchange.dialects.chat.chat_stores import store_response

            try:
                return store_response(http_request, conversations)
            except ModelError as error:
                return self.encode_error(error)
        if path.endswith("/embeddings"):
            from offbook.exchange.dialects.chat.chat_media import make_embeddings

            try:
                body = make_embeddings(http_request.body)
            except ModelError as error:
                return self.encode_error(error)
        elif path.endswith("/models"):
            body = {"object": "list", "data": [_describe_model(name) for name in MODELS]}
        else:
            body = _describe_model(path.rpartition("/models/")[2])
        headers = {"content-type": openai.JSON_TYPE, "x-request-id": "req_offbook"}
        return HttpResponse(200, headers, to_json(body))

    def decode(self, http_request: HttpRequest, conversations: ConversationStore) -> Request:
        """Decode a request."""
        path = http_request.path
        if path.endswith(CHAT_PATH):
            return self._cache.decode(http_request.body, self._decode, http_request, conversations)
        if path.endswith(wire.MEDIA_PATHS):
            from offbook.exchange.dialects.chat.chat_media import decode_media

            return decode_media(http_request)
        if re.search(wire.SEARCH_PATH, path):
            from offbook.exchange.dialects.chat.chat_stores import decode_search

            return decode_search(http_request, conversations)
        return self._cache.decode(http_request.body, self._decode, http_request, conversations)

    def _decode(
        self,
        text: bytes,
        cached: CachedPrefix[wire.ChatState] | None,
        http_request: HttpRequest,
        conversations: ConversationStore,
    ) -> Request:
        if cached is not None and (earlier := cached.request) is not None:
            if earlier.metadata["endpoint"] != http_request.path:  # it may have the model
                return self._decode(http_request.body, None, http_request, conversations)
            messages = openai.decode_body(wire.messages_decoder, text)
            state = self._decode_messages(
                messages, cached, RawBody(text, wire.NAME, ()), conversations
            )
            request = msgspec.structs.replace(
                earlier,
                messages=state.history,
                system="\n\n".join(state.system),
                metadata=request_metadata(http_request, wire.NAME),
            )
            if state.is_cacheable:
                self._cache.add(http_request.body, text, state, cached, request)
            return request
        body, options = openai.decode_body(wire.body_decoder, text)
        if body.model is None:
            # Azure has the model in the path: `/openai/deployments/MODEL/chat/completions`.
            _, found, rest = http_request.path.partition("/deployments/")
            body.model = rest.partition("/")[0] if found else None
        if not (body.model and body.messages) and "missing_field" in self._rules:
            wire.require_fields(body, is_continuation=cached is not None)
        if options and options.get("modalities"):
            from offbook.exchange.dialects.chat.chat_choices import check_audio

            check_audio(options, stream=body.stream is True, rules=self._rules)
        state = cached.state if cached else wire.EMPTY_STATE
        if body.messages:
            raw = RawBody(text, wire.NAME, ("messages",))
            state = self._decode_messages(body.messages, cached, raw, conversations)
        tools = self._tools(bytes(body.tools)) if body.tools else ()
        if body.functions:
            functions = wire.decode_functions(body.functions)
            tools += openai.check_tools(functions, self._rules, "parameters")
        request = Request(
            state.history,
            "\n\n".join(state.system),
            tools,
            body.model or "",
            options,
            request_metadata(http_request, wire.NAME),
            body.stream is True,
        )
        if state.is_cacheable and body.messages:
            self._cache.add(http_request.body, text, state, cached, request)
        return request

    def _decode_messages(
        self,
        messages: list[wire.ChatMessage],
        cached: CachedPrefix[wire.ChatState] | None,
        raw: RawBody,
        conversations: ConversationStore,
    ) -> wire.ChatState:
        """Decode the messages after a cached prefix."""
        before = cached.state if cached else wire.EMPTY_STATE
        state = wire.decode_messages(messages, before, self._rules, raw, conversations)
        if state.has_tools:
            # A cached prefix was accepted with all its calls answered: pair the rest only.
            new = state.history[len(before.history) :] if cached else state.history
            violation = find_unpaired_call(new, self._rules)
            if violation is not None:
                raise wire.pairing_error(violation, len(state.system))
        return state

    def _decode_tools(self, raw_tools: bytes) -> tuple[Tool, ...]:
        return openai.check_tools(wire.decode_tools(raw_tools), self._rules, "function.parameters")

    def reply_id(self, reply: Reply, request: Request) -> str:
        """Return the id of the completion."""
        return openai.make_openai_id(ID_PREFIX, reply, request)

    def encode(self, reply: Reply, request: Request) -> HttpResponse:
        """Encode the completion, whole or as a stream."""
        if not request.metadata.get("endpoint", CHAT_PATH).endswith(CHAT_PATH):
            if _is_media(request):
                from offbook.exchange.dialects.chat.chat_media import encode_media

                return encode_media(reply, request)
            if _is_search(request):
                from offbook.exchange.dialects.chat.chat_stores import encode_search

                return encode_search(reply, request)
        id_ = reply.id if reply.id.startswith(ID_PREFIX) else self.reply_id(reply, request)
        choices = None
        if request.parameters and not RARE_OPTIONS.isdisjoint(request.parameters):
            from offbook.exchange.dialects.chat.chat_choices import ChoiceOptions

            choices = ChoiceOptions.read(request.parameters)
        headers = {"content-type": openai.JSON_TYPE, "x-request-id": f"req_{id_[9:]}"}
        if request.stream:
            headers["content-type"] = EVENT_STREAM
            chunks = FilledTemplate(encode_template(reply, request), to_json(id_))
            if choices is not None:
                changed = choices.change_chunks(chunks, reply.text)
                return HttpResponse(200, headers, b"", tuple(changed))
            return HttpResponse(200, headers, b"", chunks)
        if reply.stop == "error":
            return self.encode_error(ModelError(openai.SERVER_ERROR, status=500))
        (body,) = encode_template(reply, request).chunks
        body = body.replace(PLACEHOLDER, to_json(id_))
        return HttpResponse(200, headers, body if choices is None else choices.change(body))

    def encode_error(self, error: ModelError, request: Request | None = None) -> HttpResponse:
        """Encode an error."""
        del request
        return openai.error_response(error)

    def build_request(self, request: Request, base_url: str, key: str) -> HttpRequest:
        """Build a request; the base URL ends in `/v1`, as the client libraries take it."""
        if _is_media(request) or _is_search(request):
            raise UsageError(
                f"cannot record {request.metadata['endpoint']}: only chats are recorded",
                hint="script it by say(…), or let the agent call the real endpoint",
            )
        from offbook.exchange.dialects.chat.chat_client import encode_messages, encode_tools

        body: JSON = {"model": request.model, "messages": encode_messages(request)}
        if request.tools:
            body.update(encode_tools(request.tools))
        body.update(request.parameters)
        if request.stream:
            body["stream"] = True
            # Without this option a stream has no usage.
            body["stream_options"] = {"include_usage": True, **body.get("stream_options", {})}
        headers = {"authorization": f"Bearer {key}", "content-type": openai.JSON_TYPE}
        url = f"{base_url.rstrip('/')}/chat/completions"
        return HttpRequest("POST", url, headers, to_json(body))

    def parse_response(self, response: HttpResponse, request: Request) -> Reply:
        """Parse a response of the provider."""
        from offbook.exchange.dialects.chat.chat_client import parse_completion, parse_stream
        from offbook.exchange.dialects.provider_responses import (
            is_event_stream,
            raise_for_status,
            response_body,
        )

        raise_for_status(response, openai.ERROR_CATEGORIES)
        if is_event_stream(response):
            return parse_stream(response_body(response), request)
        return parse_completion(response.body, request)


def _is_media(request: Request) -> bool:
    return str(request.metadata.get("endpoint", "")).endswith(wire.MEDIA_PATHS)


def _is_search(request: Request) -> bool:
    return re.search(wire.SEARCH_PATH, str(request.metadata.get("endpoint", ""))) is not None


def _is_of_others(http_request: HttpRequest) -> bool:
    """Return whether Anthropic or Google get this request: they have some of the same paths."""
    path, headers = http_request.path, http_request.headers
    return (
        "x-goog-api-key" in headers
        or "anthropic-version" in headers
        or "/v1beta/" in path
        or "/messages/batches" in path
    )


def _describe_model(name: str) -> JSON:
    return {"id": name, "object": "model", "created": EPOCH, "owned_by": "offbook"}


# ------------------------------------------------------------------------------- stream
# Encoding of replies as chat completions and streams of chunks.
#
# Replies of one text are encoded once per text as byte templates, with a placeholder for the id.

MAX_TEMPLATES = 256
MAX_TEMPLATE_TEXT = 10_000
RARE_OPTIONS = {"n", "logprobs", "modalities"}  # of `chat_choices.py`

Form = Literal["completion", "chunks", "chunks with usage"]

TOOL_CALLS = b"tool_calls"
FINISH_REASONS: dict[StopReason, bytes] = {
    "stop": b"stop",
    "tool_use": TOOL_CALLS,
    "length": b"length",
    "stop_sequence": b"stop",
    "refusal": b"stop",
    "error": b"stop",
}

# The constant parts of a response are literal bytes: most of a response consists of them.
_COMPLETION = (
    b'{"id":%b,"object":"chat.completion","created":%d,"model":%b,"choices":[{"index":0,'
    b'"message":%b,"logprobs":null,"finish_reason":"%b"}],"usage":%b,"service_tier":"default",'
    b'"system_fingerprint":"fp_offbook"}'
)

_USAGE = (
    b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,'
    b'"prompt_tokens_details":{"cached_tokens":%d,"audio_tokens":0},'
    b'"completion_tokens_details":{"reasoning_tokens":%d,"audio_tokens":0,'
    b'"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}'
)

_CHUNK = (
    b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,'
    b'"service_tier":"default","system_fingerprint":"fp_offbook","choices":['
)


# ------------------------------------------------------------------------------ blocks


class ChatReply:
    """The parts of a reply in the order of the wire format, and its finish reason."""

    __slots__ = ("calls", "extra_fields", "finish", "functions", "refused", "text", "thinking")

    def __init__(self, reply: Reply, tools: Sequence[Tool]) -> None:
        thinking: list[str] = []
        texts: list[str] = []
        self.calls: list[ToolCall] = []
        blocks, self.extra_fields = wire.split_extra_fields(reply.blocks)
        for block in blocks:
            if isinstance(block, Text):
                texts.append(block.text)
            elif isinstance(block, ToolCall):
                self.calls.append(block)
            elif isinstance(block, Thinking):
                thinking.append(block.text)
            else:
                raise unsupported_block(block, wire.NAME)
        self.thinking = "\n".join(thinking)
        self.text = "\n".join(texts)
        self.refused = reply.stop == "refusal" and bool(self.text)
        has_functions = wire.uses_functions(tools)
        self.functions = bool(self.calls) and has_functions
        self.finish = FINISH_REASONS[reply.stop]
        if self.calls and reply.stop == "stop":
            self.finish = TOOL_CALLS
        # A refusal has its text in `refusal`; without text the reply was filtered.
        elif reply.stop == "refusal" and not self.text:
            self.finish = b"content_filter"
        if self.finish == TOOL_CALLS and has_functions:
            self.finish = b"function_call"


def _is_custom(call: ToolCall, tools: Sequence[Tool]) -> bool:
    return call.custom or any(tool.kind == "custom" and tool.name == call.name for tool in tools)


def _encode_usage(usage: Usage) -> bytes:
    total = usage.input + usage.output
    return _USAGE % (usage.input, usage.output, total, usage.cache_read, usage.reasoning)


# -------------------------------------------------------------------------- completion


def _encode_completion(reply: Reply, model: str, tools: Sequence[Tool]) -> bytes:
    """Encode a whole completion, with a placeholder for its id."""
    parts = ChatReply(reply, tools)
    text, calls = parts.text, parts.calls
    message: JSON = {
        "role": "assistant",
        "content": None if parts.refused or (calls and not text) else text,
        "refusal": text if parts.refused else None,
        "annotations": [],
        **parts.extra_fields,
    }
    if parts.thinking:
        message["reasoning_content"] = parts.thinking
    if parts.functions:
        message["function_call"] = wire.encode_function_call(calls)
    elif calls:
        message["tool_calls"] = [wire.encode_call(c, custom=_is_custom(c, tools)) for c in calls]
    return _COMPLETION % (
        PLACEHOLDER,
        EPOCH,
        to_json(model),
        to_json(message),
        parts.finish,
        _encode_usage(reply.usage),
    )


# ------------------------------------------------------------------------------ chunks


def _encode_chunks(
    reply: Reply, model: str, tools: Sequence[Tool], *, with_usage: bool
) -> list[bytes]:
    """Encode the chunks of a stream, with placeholders for its id."""
    parts = ChatReply(reply, tools)
    start = _CHUNK % (PLACEHOLDER, EPOCH, to_json(model))
    head = start + b'{"index":0,"delta":'
    end = b',"usage":null}\n\n' if with_usage else b"}\n\n"
    tail = b',"logprobs":null,"finish_reason":null}]' + end
    # The first delta has the role, and the first call if no text or reasoning precedes it.
    first: JSON = {"role": "assistant", "content": None if parts.refused else "", "refusal": None}
    first.update(parts.extra_fields)
    starts_with_call = bool(parts.calls) and not parts.text and not parts.thinking
    if parts.functions:
        first["content"] = first["content"] or None
    elif starts_with_call:
        first["content"] = None
        first["tool_calls"] = [_open_call(parts.calls[0], 0, tools)]
    chunks = [head + to_json(first) + tail]
    for before, values, after in _deltas(parts, reply, tools, starts_with_call=starts_with_call):
        prefix, suffix = head + before, after + tail
        chunks += [prefix + to_json(value) + suffix for value in values]
    if reply.stop == "error":
        error = openai.error_object(ModelError(openai.SERVER_ERROR, status=500))
        # A broken stream ends with an error and without `[DONE]`.
        return [*chunks, encode_sse(to_json({"error": error}))]
    chunks.append(head + b'{},"logprobs":null,"finish_reason":"' + parts.finish + b'"}]' + end)
    if with_usage:
        chunks.append(start + b'],"usage":' + _encode_usage(reply.usage) + b"}\n\n")
    chunks.append(b"data: [DONE]\n\n")
    return chunks


def _deltas(
    parts: ChatReply, reply: Reply, tools: Sequence[Tool], *, starts_with_call: bool
) -> Iterator[tuple[bytes, Sequence[object], bytes]]:
    """Yield series of deltas that differ in one value: the bytes before, the values, after."""
    if parts.thinking:
        yield b'{"reasoning_content":', split_words(parts.thinking), b"}"
    if parts.text:
        field = b'{"refusal":' if parts.refused else b'{"content":'
        yield field, split_reply_text(reply, parts.text), b"}"
    if parts.functions:
        function = wire.encode_function_call(parts.calls)
        yield b'{"function_call":', [{"name": function["name"], "arguments": ""}], b"}"
        yield b'{"function_call":{"arguments":', split_fixed(function["arguments"]), b"}}"
        return
    for index, call in enumerate(parts.calls):
        if index or not starts_with_call:
            yield b'{"tool_calls":[', [_open_call(call, index, tools)], b"]}"
        if _is_custom(call, tools):
            field, text = b'"custom":{"input":', render_custom_input(call.arguments)
        else:
            field, text = b'"function":{"arguments":', render_arguments(call.arguments)
        yield b'{"tool_calls":[{"index":%d,%b' % (index, field), split_fixed(text), b"}}]}"


def _open_call(call: ToolCall, index: int, tools: Sequence[Tool]) -> JSON:
    """Return a call without its arguments, which follow in later deltas."""
    kind, field = ("custom", "input") if _is_custom(call, tools) else ("function", "arguments")
    return {"index": index, "id": call.id, "type": kind, kind: {"name": call.name, field: ""}}


# --------------------------------------------------------------------------- templates


def encode_template(reply: Reply, request: Request) -> ByteTemplate:
    """Encode a reply as the request asks for it, with placeholders for the id.

    The template of a whole completion has one chunk. A stream has the usage at its end if
    `stream_options` ask for it.
    """
    form: Form = "completion"
    if request.stream:
        options = request.parameters.get("stream_options")
        with_usage = isinstance(options, dict) and cast("JSON", options).get("include_usage")
        form = "chunks with usage" if with_usage else "chunks"
    model = reply.model or request.model
    if len(reply.blocks) == 1:
        (block,) = reply.blocks
        if isinstance(block, Text) and len(block.text) < MAX_TEMPLATE_TEXT:
            return _text_template(form, block.text, reply.stop, reply.usage, model, reply.chunks)
    return _encode(form, reply, model, request.tools)


@lru_cache(MAX_TEMPLATES)  # a scripted reply is often served many times
def _text_template(
    form: Form, text: str, stop: StopReason, usage: Usage, model: str, chunks: tuple[str, ...]
) -> ByteTemplate:
    return _encode(form, Reply((Text(text),), stop, usage, chunks=chunks), model)


def _encode(form: Form, reply: Reply, model: str, tools: tuple[Tool, ...] = ()) -> ByteTemplate:
    if form == "completion":
        return ByteTemplate((_encode_completion(reply, model, tools),))
    with_usage = form == "chunks with usage"
    return ByteTemplate(_encode_chunks(reply, model, tools, with_usage=with_usage))
