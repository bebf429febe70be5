"""OpenAI's Responses API, over HTTP and over a WebSocket.

A conversation is a list of items, and the provider may store its beginning: a request continues a
response (`previous_response_id`) or a conversation by its id.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, cast

import msgspec

from offbook.determinism.clock import EPOCH, stable_id
from offbook.errors import ModelError
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.conversations import PrefixCache
from offbook.exchange.dialects.decoding import ALL_RULES, RawBody, find_unpaired_call, rejection
from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse, request_metadata
from offbook.exchange.dialects.response_parsing import (
    is_event_stream,
    raise_for_status,
    response_body,
)
from offbook.exchange.dialects.responses import responses_wire as wire
from offbook.exchange.dialects.responses.responses_client import (
    encode_items,
    parse_response_body,
    parse_stream,
)
from offbook.exchange.dialects.responses.responses_stream import ResponseBuilder
from offbook.exchange.dialects.side_requests import estimate_tokens
from offbook.exchange.dialects.streaming import EVENT_STREAM
from offbook.exchange.messages import JSON, to_json
from offbook.exchange.model import Reply, Request, Tool

if TYPE_CHECKING:
    from offbook.exchange.dialects.conversations import CachedPrefix, ConversationStore

ID_PREFIX = "resp_"
CONVERSATIONS = "/conversations/"


class Responses:
    """The dialect of `/v1/responses`."""

    name = wire.NAME
    continues_by_id = True

    def __init__(self, rules: frozenset[str] = ALL_RULES) -> None:
        self._rules = rules
        self._tools = lru_cache(maxsize=64)(self._decode_tools)
        self._cache: PrefixCache[wire.ResponsesState] = PrefixCache(wire.find_input)
        self._encoded_tools: tuple[tuple[Tool, ...], msgspec.Raw] = ((), msgspec.Raw(b"[]"))

    def claims(self, http_request: HttpRequest) -> bool:
        """Return whether this is a request for a response or a stored conversation."""
        path = f"{http_request.path}/"
        return "/responses/" in path or CONVERSATIONS in path

    def side_response(
        self, http_request: HttpRequest, conversations: ConversationStore
    ) -> HttpResponse | None:
        """Return an earlier response, a conversation or a token count; None for a model call."""
        path, method = http_request.path, http_request.method
        if CONVERSATIONS in f"{path}/":
            return self._conversation_response(http_request, conversations)
        reply_id = path.rpartition("/responses")[2].strip("/")
        if not reply_id:
            return None
        if method == "POST" and reply_id == "input_tokens":
            count = estimate_tokens(len(http_request.body))
            return _json_response({"object": "response.input_tokens", "input_tokens": count})
        # Other methods, such as cancelling, are not supported.
        exchange = conversations.get(reply_id) if method == "GET" else None
        if exchange is None:
            message = f"Response with id '{reply_id}' not found."
            return self.encode_error(ModelError(message, status=404, details={"code": ""}))
        request, reply = exchange
        return self.encode(reply, msgspec.structs.replace(request, stream=False))

    def _conversation_response(
        self, http_request: HttpRequest, conversations: ConversationStore
    ) -> HttpResponse:
        """Create, return or delete a stored conversation."""
        id_ = f"{http_request.path}/".rpartition(CONVERSATIONS)[2].strip("/")
        method, body = http_request.method, http_request.body
        if method == "POST" and not id_:
            try:
                created = openai.decode_body(wire.conversation_decoder, body or b"{}")
                raw = RawBody(body, wire.NAME)
                reader = wire.ItemReader(self._rules, conversations, wire.EMPTY_STATE, raw)
                reader.read(created.items or (), "items")
            except ModelError as error:
                return self.encode_error(error)
            id_ = stable_id("conv_", body.decode("utf-8", "replace"), str(conversations.count))
            conversations.add(id_, Request(reader.finish().history), Reply())
        elif conversations.get(id_) is None or method not in {"DELETE", "GET"}:
            message = f"Conversation with id '{id_}' not found, or its items are not supported."
            return self.encode_error(ModelError(message, status=404))
        if method == "DELETE":
            return _json_response({"id": id_, "object": "conversation.deleted", "deleted": True})
        fields: JSON = {"object": "conversation", "created_at": EPOCH, "metadata": {}}
        return _json_response({"id": id_, **fields})

    def decode(self, http_request: HttpRequest, conversations: ConversationStore) -> Request:
        """Decode a request, with everything before it in the conversation.

        The body is that of a POST request or of a `response.create` event of a WebSocket. The
        metadata of a request that asks for no reply has `generate: False`.
        """
        return self._cache.decode(http_request.body, self._decode, http_request, conversations)

    def _decode(
        self,
        text: bytes,
        cached: CachedPrefix[wire.ResponsesState] | None,
        http_request: HttpRequest,
        conversations: ConversationStore,
    ) -> Request:
        body, options = openai.decode_body(wire.body_decoder, text)
        conversation = options.get("conversation")
        if isinstance(conversation, dict):
            conversation = cast("JSON", conversation).get("id")
        conversation = conversation if isinstance(conversation, str) else ""
        previous_id = body.previous_response_id
        if cached is not None and (previous_id or conversation):
            # The items continue a stored conversation, so the cached state does not apply.
            return self._decode(http_request.body, None, http_request, conversations)
        if "missing_field" in self._rules:
            wire.require_fields(body, options)
        raw = RawBody(text, wire.NAME)
        before = cached.state if cached else wire.EMPTY_STATE
        reader = wire.ItemReader(self._rules, conversations, before, raw)
        if exchange := conversations.get(previous_id or conversation):
            reader.continue_from(*exchange)
        elif previous_id and "unknown_previous" in self._rules:
            raise rejection(
                "unknown_previous",
                f"Previous response with id '{previous_id}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        items = body.input or ()
        if isinstance(items, str):
            items = [wire.ResponsesItem(role="user", content=items)]
        reader.read(items, "input")
        state = reader.finish()
        if body.input:
            # A cached prefix was accepted with all its calls answered: pair the rest only.
            messages = state.history[len(before.history) :] if cached else state.history
            violation = find_unpaired_call(messages, self._rules, adjacent=False)
            if violation is not None:
                raise wire.pairing_error(violation, messages)
            if reader.is_cacheable:
                self._cache.add(http_request.body, text, state, cached)
        tools = self._tools(bytes(body.tools)) if body.tools else ()
        if state.tools:
            tools = (*tools, *openai.check_tools(state.tools, self._rules))
        instructions = wire.decode_instructions(body.instructions, raw)
        metadata = request_metadata(http_request, wire.NAME)
        if instructions:
            metadata["instructions"] = len(instructions)
        if previous_id:
            metadata["previous_response_id"] = previous_id
        if conversation:
            metadata["conversation"] = conversation
        if body.client_metadata:
            metadata["client_metadata"] = body.client_metadata
        if body.generate is False:
            metadata["generate"] = False
        return Request(
            state.history,
            "\n\n".join(filter(None, (instructions, *state.system))),
            tools,
            body.model or "",
            options,
            metadata,
            body.stream is True,
        )

    def _decode_tools(self, raw_tools: bytes) -> tuple[Tool, ...]:
        tools = wire.decode_tools(openai.decode_body(wire.tools_decoder, raw_tools) or ())
        return openai.check_tools(tools, self._rules)

    def reply_id(self, reply: Reply, request: Request) -> str:
        """Return the id of the response."""
        return openai.make_openai_id(ID_PREFIX, reply, request)

    def encode(self, reply: Reply, request: Request) -> HttpResponse:
        """Encode the response, whole or as a stream."""
        if reply.stop == "error" and not request.stream:
            return self.encode_error(ModelError(openai.SERVER_ERROR, status=500))
        id_ = self.reply_id(reply, request)
        builder = self._builder(id_, reply, request)
        if request.stream:
            headers = _headers(id_, EVENT_STREAM)
            return HttpResponse(200, headers, chunks=tuple(builder.encode_events()))
        return HttpResponse(200, _headers(id_, openai.JSON_TYPE), builder.encode())

    def events(self, reply: Reply, request: Request) -> list[JSON]:
        """Return the events of a response; over a WebSocket each of them is a message."""
        return self._builder(self.reply_id(reply, request), reply, request).events()

    def _builder(self, id_: str, reply: Reply, request: Request) -> ResponseBuilder:
        tools, encoded = self._encoded_tools
        if tools is not request.tools:  # an agent offers the same tools with every request
            encoded = msgspec.Raw(to_json(wire.encode_tools(request.tools)))
            self._encoded_tools = (request.tools, encoded)
        return ResponseBuilder(id_, reply, request, encoded)

    def failure(self, error: ModelError) -> JSON:
        """Return the event of an error over a WebSocket."""
        return {"type": "error", "status": error.status, "error": openai.error_object(error)}

    def encode_error(self, error: ModelError, request: Request | None = None) -> HttpResponse:
        """Encode an error."""
        del request
        return openai.error_response(error)

    def build_request(self, request: Request, base_url: str, key: str) -> HttpRequest:
        """Build a request; the base URL ends in `/v1`, as the client libraries take it."""
        body: JSON = {"model": request.model, "input": encode_items(request.messages)}
        if request.system:
            body["instructions"] = request.system
        if request.tools:
            body["tools"] = wire.encode_tools(request.tools)
        body.update(request.parameters)
        if request.stream:
            body["stream"] = True
        headers = {"authorization": f"Bearer {key}", "content-type": openai.JSON_TYPE}
        return HttpRequest("POST", f"{base_url.rstrip('/')}/responses", headers, to_json(body))

    def parse_response(self, response: HttpResponse, request: Request) -> Reply:
        """Parse a response of the provider."""
        raise_for_status(response, openai.ERROR_CATEGORIES)
        if is_event_stream(response):
            return parse_stream(response_body(response), request)
        return parse_response_body(response.body, request)


def _headers(id_: str, content_type: str) -> dict[str, str]:
    return {"content-type": content_type, "x-request-id": f"req_{id_.removeprefix(ID_PREFIX)}"}


def _json_response(body: JSON) -> HttpResponse:
    return HttpResponse(200, _headers("offbook", openai.JSON_TYPE), to_json(body))
