"""OpenAI's chat completions, with the list of models and the embeddings.

The format cannot represent everything, so a conversation is normalized on the way: the system
messages at the start become the one `system`; the texts of a reply become one text, after its
reasoning and before its calls; and a tool result does not say whether it is an error.
"""

from __future__ import annotations

from base64 import b64encode
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from offbook.determinism.clock import EPOCH
from offbook.errors import ModelError
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.chat import chat_wire as wire
from offbook.exchange.dialects.chat.chat_stream import (
    count_choices,
    encode_template,
    repeat_choice,
    repeat_chunks,
)
from offbook.exchange.dialects.conversations import CachedPrefix, PrefixCache
from offbook.exchange.dialects.decoding import ALL_RULES, RawBody, find_unpaired_call
from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse, request_metadata
from offbook.exchange.dialects.side_requests import embed, estimate_tokens, pack_floats
from offbook.exchange.dialects.streaming import EVENT_STREAM, PLACEHOLDER, FilledTemplate
from offbook.exchange.messages import JSON, to_json
from offbook.exchange.model import Request, Tool

if TYPE_CHECKING:
    from offbook.exchange.dialects.conversations import ConversationStore
    from offbook.exchange.model import Reply

ID_PREFIX = "chatcmpl-"
MODELS = ("gpt-5", "gpt-5-mini", "gpt-4o", "gpt-4o-mini", "text-embedding-3-small")
EMBEDDING_DIMENSIONS = {"text-embedding-3-large": 3072}


class Chat:
    """The dialect of `/v1/chat/completions`."""

    name = wire.NAME
    continues_by_id = False

    def __init__(self, rules: frozenset[str] = ALL_RULES) -> None:
        self._rules = rules
        self._tools = lru_cache(maxsize=64)(self._decode_tools)
        self._cache: PrefixCache[wire.ChatState] = PrefixCache(wire.find_messages)

    def claims(self, http_request: HttpRequest) -> bool:
        """Return whether this is a completion, an embedding or a request for models."""
        path = http_request.path
        if path.endswith(("/chat/completions", "/embeddings")):
            return True
        if path.endswith("/models") or "/models/" in path:
            # Anthropic and Google have the same paths, but send another header.
            headers = http_request.headers
            return (
                http_request.method == "GET"
                and "x-goog-api-key" not in headers
                and "anthropic-version" not in headers
            )
        return False

    def side_response(
        self, http_request: HttpRequest, conversations: ConversationStore
    ) -> HttpResponse | None:
        """Return the models, or embeddings; None for a completion."""
        del conversations
        path = http_request.path
        if path.endswith("/chat/completions"):
            return None
        if path.endswith("/embeddings"):
            try:
                body = _embeddings(openai.decode_body(wire.embedding_decoder, http_request.body))
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
        return self._cache.decode(http_request.body, self._decode, http_request, conversations)

    def _decode(
        self,
        text: bytes,
        cached: CachedPrefix[wire.ChatState] | None,
        http_request: HttpRequest,
        conversations: ConversationStore,
    ) -> Request:
        body, options = openai.decode_body(wire.body_decoder, text)
        if body.model is None:
            # Azure has the model in the path: `/openai/deployments/MODEL/chat/completions`.
            _, found, rest = http_request.path.partition("/deployments/")
            body.model = rest.partition("/")[0] if found else None
        if "missing_field" in self._rules:
            wire.require_fields(body, is_continuation=cached is not None)
        before = state = cached.state if cached else wire.EMPTY_STATE
        if body.messages:
            raw = RawBody(text, wire.NAME)
            state = wire.decode_messages(body.messages, before, self._rules, raw, conversations)
            if state.has_tools:
                # A cached prefix was accepted with all its calls answered: pair the rest only.
                messages = state.history[len(before.history) :] if cached else state.history
                violation = find_unpaired_call(messages, self._rules)
                if violation is not None:
                    raise wire.pairing_error(violation, len(state.system))
            if state.is_cacheable:
                self._cache.add(http_request.body, text, state, cached)
        tools = self._tools(bytes(body.tools)) if body.tools else ()
        if body.functions:
            functions = wire.decode_functions(body.functions)
            tools += openai.check_tools(functions, self._rules, "parameters")
        return Request(
            state.history,
            "\n\n".join(state.system),
            tools,
            body.model or "",
            options,
            request_metadata(http_request, wire.NAME),
            body.stream is True,
        )

    def _decode_tools(self, raw_tools: bytes) -> tuple[Tool, ...]:
        return openai.check_tools(wire.decode_tools(raw_tools), self._rules, "function.parameters")

    def reply_id(self, reply: Reply, request: Request) -> str:
        """Return the id of the completion."""
        return openai.make_openai_id(ID_PREFIX, reply, request)

    def encode(self, reply: Reply, request: Request) -> HttpResponse:
        """Encode the completion, whole or as a stream."""
        id_ = reply.id if reply.id.startswith(ID_PREFIX) else self.reply_id(reply, request)
        count = count_choices(request.parameters) if request.parameters else 1
        headers = {"content-type": openai.JSON_TYPE, "x-request-id": f"req_{id_[9:]}"}
        if request.stream:
            headers["content-type"] = EVENT_STREAM
            chunks = FilledTemplate(encode_template(reply, request), to_json(id_))
            # Several choices are rare, so they are decoded and encoded again.
            if count > 1:
                return HttpResponse(200, headers, b"", tuple(repeat_chunks(chunks, count)))
            return HttpResponse(200, headers, b"", chunks)
        if reply.stop == "error":
            return self.encode_error(ModelError(openai.SERVER_ERROR, status=500))
        (body,) = encode_template(reply, request).chunks
        body = body.replace(PLACEHOLDER, to_json(id_))
        return HttpResponse(200, headers, repeat_choice(body, count) if count > 1 else body)

    def encode_error(self, error: ModelError, request: Request | None = None) -> HttpResponse:
        """Encode an error."""
        del request
        return openai.error_response(error)

    def build_request(self, request: Request, base_url: str, key: str) -> HttpRequest:
        """Build a request; the base URL ends in `/v1`, as the client libraries take it."""
        # The client side is imported late, here and below: a server and a replay never need it.
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
        from offbook.exchange.dialects import response_parsing as parsing
        from offbook.exchange.dialects.chat.chat_client import parse_completion, parse_stream

        parsing.raise_for_status(response, openai.ERROR_CATEGORIES)
        if parsing.is_event_stream(response):
            return parse_stream(parsing.response_body(response), request)
        return parse_completion(response.body, request)


def _describe_model(name: str) -> JSON:
    return {"id": name, "object": "model", "created": EPOCH, "owned_by": "offbook"}


def _embeddings(body: wire.ChatEmbeddingBody) -> JSON:
    """Return the embedding of each text, or of each list of token numbers."""
    inputs = body.input
    is_batch = isinstance(inputs, list) and not (inputs and isinstance(inputs[0], int))
    texts = cast("list[str | list[int]]", inputs if is_batch else [inputs])
    size = body.dimensions or EMBEDDING_DIMENSIONS.get(body.model, 1536)
    if size < 1:
        raise ModelError("Invalid 'dimensions': expected a value >= 1.", status=400)
    tokens = sum(
        estimate_tokens(len(text)) if isinstance(text, str) else len(text) for text in texts
    )
    data: list[JSON] = []
    for index, text in enumerate(texts):
        vector: list[float] | str = embed(text, size)
        if body.encoding_format == "base64":
            vector = b64encode(pack_floats(vector)).decode()
        data.append({"object": "embedding", "index": index, "embedding": vector})
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": body.model, "usage": usage}
