"""OpenAI's Responses API, over HTTP and over a WebSocket.

A conversation is a list of items, and the provider may store its beginning: a request continues a
response (`previous_response_id`) or a conversation by its id.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, cast

import msgspec

from offbook.determinism.run_context import EPOCH, stable_id
from offbook.errors import ModelError
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.dialect import (
    ConversationStore,
    HttpRequest,
    HttpResponse,
    PrefixCache,
    request_metadata,
)
from offbook.exchange.dialects.embeddings import estimate_tokens
from offbook.exchange.dialects.provider_responses import (
    error_with_code,
    interrupted_stream,
    invalid_response,
    is_event_stream,
    parse_sse,
    raise_for_status,
    response_body,
)
from offbook.exchange.dialects.responses import responses_wire as wire
from offbook.exchange.dialects.responses.responses_tools import (
    STATES,
    build_provider_call,
    cite_sources,
    encode_agent_call,
    encode_agent_result,
)
from offbook.exchange.dialects.wire import (
    ALL_RULES,
    EVENT_STREAM,
    RawBody,
    certain_words,
    encode_sse,
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
    Image,
    Message,
    RawBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    render_arguments,
    render_custom_input,
    to_json,
)
from offbook.exchange.model import Reply, Request, StopReason, Tool, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from offbook.exchange.dialects.dialect import CachedPrefix, LiveSession


ID_PREFIX = "resp_"
RETRIEVED = "retrieved"  # in the metadata of a request whose response is asked for by its id
CONVERSATIONS = "/conversations/"
REALTIME = "/realtime/"


class Responses:
    """The dialect of `/v1/responses`."""

    name = wire.NAME
    continues_by_id = True

    def __init__(self, rules: frozenset[str] = ALL_RULES) -> None:
        self._rules = rules
        self._tools = lru_cache(maxsize=64)(self._decode_tools)
        self._cache: PrefixCache[wire.ResponsesState] = PrefixCache("input")
        self._encoded_tools: tuple[tuple[Tool, ...], msgspec.Raw] = ((), msgspec.Raw(b"[]"))

    def claims(self, http_request: HttpRequest) -> bool:
        """Return whether this is a request for a response or a stored conversation."""
        path = f"{http_request.path}/"
        return "/responses/" in path or CONVERSATIONS in path or path.endswith(REALTIME)

    def side_response(
        self, http_request: HttpRequest, conversations: ConversationStore
    ) -> HttpResponse | None:
        """Return an earlier response, a conversation or a token count; None for a model call."""
        path, method = http_request.path, http_request.method
        if f"{path}/".endswith(REALTIME):
            message = f"Offbook supports {path} as a WebSocket only"
            return self.encode_error(ModelError(message, status=404))
        if CONVERSATIONS in f"{path}/":
            return self._conversation_response(http_request, conversations)
        reply_id = path.rpartition("/responses")[2].strip("/")
        if not reply_id:
            return None
        if method == "POST" and reply_id == "input_tokens":
            count = estimate_tokens(len(http_request.body))
            return _json_response({"object": "response.input_tokens", "input_tokens": count})
        if method != "GET" or "/" in reply_id:  # cancelling, deleting, the list of items
            message = f"Offbook does not support {method} {path}"
            return self.encode_error(ModelError(message, status=404))
        exchange = conversations.get(reply_id)
        if exchange is None:
            message = f"Response with id '{reply_id}' not found."
            return self.encode_error(ModelError(message, status=404, details={"code": ""}))
        request, reply = exchange
        metadata = {**request.metadata, RETRIEVED: True}
        return self.encode(reply, msgspec.structs.replace(request, stream=False, metadata=metadata))

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
        in_background = request.parameters.get("background") and not request.stream
        if in_background and not request.metadata.get(RETRIEVED):
            # The client asks for the response until it is complete.
            return HttpResponse(200, _headers(id_, openai.JSON_TYPE), builder.encode_queued())
        if request.stream:
            headers = _headers(id_, EVENT_STREAM)
            return HttpResponse(200, headers, chunks=tuple(builder.encode_events()))
        return HttpResponse(200, _headers(id_, openai.JSON_TYPE), builder.encode())

    def open_session(self, http_request: HttpRequest) -> LiveSession | None:
        """Return a new conversation of the Realtime API."""
        if not f"{http_request.path}/".endswith(REALTIME):
            return None
        from offbook.exchange.dialects.responses.realtime import RealtimeSession

        return RealtimeSession(http_request)

    def run_tool(self, call: ToolCall, tool: Tool, request: Request) -> tuple[AnyBlock, ...]:
        """Return the items of a tool that OpenAI runs; none if the agent runs it."""
        return build_provider_call(call, tool, request)

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
        items = encode_items(request.messages, request.tools)
        body: JSON = {"model": request.model, "input": items}
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


# ------------------------------------------------------------------------------- stream
# Encoding of replies as responses and their event streams.

ENCRYPTED_REASONING = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"

# The request options that a response repeats, with their default values.
_ECHOED_OPTIONS: JSON = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}

# The fields of an item that are still empty in its first event.
_EMPTY_FIELDS: dict[str, JSON] = {
    "message": {"status": "in_progress", "content": []},
    "reasoning": {"summary": [], "encrypted_content": None},
    "function_call": {"status": "in_progress", "arguments": ""},
    "custom_tool_call": {"status": "in_progress", "input": ""},
}

_SERVER_ERROR = {"code": "server_error", "message": openai.SERVER_ERROR}

_OPENED = (
    b',"status":"in_progress","error":null,"incomplete_details":null,"output":[],"usage":null}'
)

_COMPLETED = (
    b'%b,"status":"%b","error":%b,"incomplete_details":%b,"output":%b,'
    b'"usage":{"input_tokens":%d,'
    b'"input_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d},'
    b'"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}}'
)


# ------------------------------------------------------------------------------- items


def encode_item(blocks: tuple[AnyBlock, ...], core_id: str, stop: StopReason) -> JSON:
    """Encode the blocks of one item; its id is a prefix and `core_id`."""
    first = blocks[0]
    match first:
        case Text():
            texts = [cast("Text", block).text for block in blocks]
            if stop == "refusal":
                content: list[JSON] = [{"type": "refusal", "refusal": text} for text in texts]
            else:
                fields: JSON = {"type": "output_text", "annotations": [], "logprobs": []}
                content = [{**fields, "text": text} for text in texts]
            return {
                "id": f"msg_{core_id}",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": content,
            }
        case Thinking(text, signature):
            return {
                "id": f"rs_{core_id}",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": text}] if text else [],
                "encrypted_content": signature or None,
            }
        case ToolCall():
            return _encode_call(first, core_id)
        case RawBlock():
            return raw_block_data(first, wire.NAME)
        case _:
            raise unsupported_block(first, wire.NAME)


def _encode_call(call: ToolCall, core_id: str) -> JSON:
    item: JSON = {
        "id": f"{'ctc' if call.custom else 'fc'}_{core_id}",
        "type": "custom_tool_call" if call.custom else "function_call",
        "status": "completed",
        "call_id": call.id,
        "name": call.name,
    }
    if call.namespace:
        item["namespace"] = call.namespace
    if call.custom:
        item["input"] = render_custom_input(call.arguments)
    else:
        item["arguments"] = render_arguments(call.arguments)
    return item


def _fit_block(block: AnyBlock, request: Request, *, encrypt_thinking: bool) -> AnyBlock:
    """Return the block in the form that the request asks for.

    A call gets the namespace and the kind of its tool, and thinking an encrypted content.
    """
    if isinstance(block, Thinking) and encrypt_thinking and not block.signature:
        return Thinking(block.text, stable_id("gAAAA", block.text, length=40))
    if not isinstance(block, ToolCall) or block.custom or block.namespace:
        return block
    if (item := encode_agent_call(block, request.tools)) is not block:
        return item
    tools = [tool for tool in request.tools if tool.name == block.name]
    if not tools or any(tool.kind == "function" and not tool.namespace for tool in tools):
        return block
    # A tool without a namespace is preferred.
    tool = min(tools, key=lambda tool: bool(tool.namespace))
    return msgspec.structs.replace(block, namespace=tool.namespace, custom=tool.kind == "custom")


# ----------------------------------------------------------------------------- response


class _DeltaRun(msgspec.Struct, frozen=True, gc=False):
    """Events that differ only in their `delta`."""

    type: str
    position: JSON
    deltas: Sequence[str]
    more: JSON = {}


class ResponseBuilder:
    """Encodes a reply as a response or its events.

    Three events contain the response itself, with everything that the request had. Its constant
    part is encoded once, as bytes, and the status is appended.
    """

    def __init__(self, id_: str, reply: Reply, request: Request, tools: msgspec.Raw) -> None:
        self._reply = reply
        core_id = id_.removeprefix("resp_")
        options = request.parameters
        encrypt = ENCRYPTED_REASONING in (options.get("include") or ())
        blocks = [_fit_block(block, request, encrypt_thinking=encrypt) for block in reply.blocks]
        self._items = [
            encode_item(group, f"{core_id}_{index}", reply.stop)
            for index, group in enumerate(wire.group_blocks(blocks))
        ]
        if any(isinstance(block, RawBlock) for block in blocks):
            self._cite(blocks)
        self._logprobs = LOGPROBS in (options.get("include") or ())
        self._top = bool(options.get("top_logprobs"))
        if self._logprobs:
            for item in self._items:
                for part in item["content"] if item["type"] == "message" else ():
                    part.update(self._probabilities(part))
        base: JSON = {
            "id": id_,
            "object": "response",
            "created_at": EPOCH,
            "model": reply.model or request.model,
            **_ECHOED_OPTIONS,
            "tools": tools,
        }
        base.update((key, options[key]) for key in options.keys() & _ECHOED_OPTIONS.keys())
        instructions = cast("int", request.metadata.get("instructions", 0))
        base["instructions"] = request.system[:instructions] or None
        if conversation := request.metadata.get("conversation"):
            base["conversation"] = {"id": conversation}
        base["previous_response_id"] = request.metadata.get("previous_response_id")
        self._base = to_json(base)[:-1]
        self._status = {"error": "failed", "length": "incomplete"}.get(reply.stop, "completed")

    def _cite(self, blocks: Sequence[AnyBlock]) -> None:
        """Add the sources of the provider's searches to the texts after them."""
        texts = iter([block for block in blocks if isinstance(block, Text)])
        for item in self._items:
            for part in item["content"] if item["type"] == "message" else ():
                text = next(texts)
                if part["type"] == "output_text":
                    part["annotations"] = cite_sources(blocks, text)

    def _probabilities(self, part: JSON) -> JSON:
        """Return the probabilities of the words of a text; none of a refusal."""
        if part["type"] != "output_text":
            return {}
        words = certain_words(part["text"])
        top = [{**word, "top_logprobs": [word] if self._top else []} for word in words]
        return {"logprobs": top}

    def encode_queued(self) -> bytes:
        """Return the response of a request that runs in the background, before its end."""
        return self._base + _OPENED.replace(b"in_progress", b"queued")

    def encode(self) -> bytes:
        """Return the complete response."""
        usage, status = self._reply.usage, self._status
        return _COMPLETED % (
            self._base,
            status.encode(),
            to_json(_SERVER_ERROR if status == "failed" else None),
            to_json({"reason": "max_output_tokens"} if status == "incomplete" else None),
            to_json(self._items),
            usage.input,
            usage.cache_read,
            usage.cache_write,
            usage.output,
            usage.reasoning,
            usage.input + usage.output,
        )

    def events(self) -> list[JSON]:
        """Return the events as JSON objects, for a WebSocket."""
        events: list[JSON] = []
        for event in self._events():
            if isinstance(event, _DeltaRun):
                fields = {"type": event.type, **event.position, "delta": "", **event.more}
                events += ({**fields, "delta": delta} for delta in event.deltas)
            elif "response" in event:
                events.append({**event, "response": msgspec.json.decode(event["response"])})
            else:
                events.append(event)
        return [{**event, "sequence_number": number} for number, event in enumerate(events)]

    def encode_events(self) -> list[bytes]:
        """Return the events as server-sent events."""
        events: list[bytes] = []
        for event in self._events():
            if isinstance(event, _DeltaRun):
                # The fields that all deltas share are encoded once.
                fields = to_json({"type": event.type, **event.position, **event.more})[:-1]
                head = b"event: %b\ndata: %b," % (event.type.encode(), fields)
                events += [
                    b'%b"delta":%b,"sequence_number":%d}\n\n' % (head, to_json(delta), number)
                    for number, delta in enumerate(event.deltas, len(events))
                ]
            else:
                # Every event is numbered, including each delta of a run.
                event["sequence_number"] = len(events)
                events.append(encode_sse(to_json(event), event["type"]))
        return events

    def _events(self) -> Iterator[JSON | _DeltaRun]:
        opened = msgspec.Raw(self._base + _OPENED)
        yield {"type": "response.created", "response": opened}
        yield {"type": "response.in_progress", "response": opened}
        for index, item in enumerate(self._items):
            started = {**item, **_EMPTY_FIELDS.get(item["type"], {})}
            if item["type"] in STATES and "status" in item:
                started["status"] = "in_progress"
            yield {"type": "response.output_item.added", "output_index": index, "item": started}
            yield from self._item_events(index, item)
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        yield {"type": f"response.{self._status}", "response": msgspec.Raw(self.encode())}

    def _item_events(self, index: int, item: JSON) -> Iterator[JSON | _DeltaRun]:
        position: JSON = {"item_id": item.get("id"), "output_index": index}
        match item["type"]:
            case "message":
                for number, part in enumerate(item["content"]):
                    yield from self._text_events({**position, "content_index": number}, part)
            case "reasoning":
                name = "response.reasoning_summary"
                for number, part in enumerate(item["summary"]):
                    at: JSON = {**position, "summary_index": number}
                    text = part["text"]
                    yield {"type": f"{name}_part.added", **at, "part": {**part, "text": ""}}
                    yield _DeltaRun(f"{name}_text.delta", at, split_words(text))
                    yield {"type": f"{name}_text.done", **at, "text": text}
                    yield {"type": f"{name}_part.done", **at, "part": part}
            case "function_call":
                name, arguments = "response.function_call_arguments", item["arguments"]
                yield _DeltaRun(f"{name}.delta", position, split_fixed(arguments))
                fields = {"name": item["name"], "arguments": arguments}
                yield {"type": f"{name}.done", **position, **fields}
            case "custom_tool_call":
                name, text = "response.custom_tool_call_input", item["input"]
                yield _DeltaRun(f"{name}.delta", position, split_fixed(text))
                yield {"type": f"{name}.done", **position, "input": text}
            case kind:  # an item of the agent's tools has no events between its start and its end
                states = STATES.get(kind, ())
                for state in states[:-1]:
                    yield {"type": f"response.{kind}.{state}", **position}
                if kind == "code_interpreter_call":
                    name, code = f"response.{kind}_code", item["code"]
                    yield _DeltaRun(f"{name}.delta", position, split_fixed(code))
                    yield {"type": f"{name}.done", **position, "code": code}
                elif kind == "mcp_call":
                    name, text = "response.mcp_call_arguments", item["arguments"]
                    yield _DeltaRun(f"{name}.delta", position, split_fixed(text))
                    yield {"type": f"{name}.done", **position, "arguments": text}
                for state in states[-1:]:
                    yield {"type": f"response.{kind}.{state}", **position}

    def _text_events(self, position: JSON, part: JSON) -> Iterator[JSON | _DeltaRun]:
        kind = part["type"]
        field = "refusal" if kind == "refusal" else "text"
        more: JSON = {} if kind == "refusal" else {"logprobs": part["logprobs"]}
        text = part[field]
        empty: JSON = {**part, field: "", **({"logprobs": []} if more else {})}
        yield {"type": "response.content_part.added", **position, "part": empty}
        deltas = split_reply_text(self._reply, text)
        for run in [[delta] for delta in deltas] if self._logprobs else [deltas]:
            said = self._probabilities({**part, field: "".join(run)}) if self._logprobs else more
            yield _DeltaRun(f"response.{kind}.delta", position, run, said)
        yield {"type": f"response.{kind}.done", **position, field: text, **more}
        yield {"type": "response.content_part.done", **position, "part": part}


# ------------------------------------------------------------------------------- client
# The client side of the Responses API: request items, and parsing of responses.

_LAST_EVENTS = {"response.completed", "response.incomplete", "response.failed"}


# ------------------------------------------------------------------- building requests


def encode_items(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[JSON]:
    """Encode the conversation as items."""
    items: list[JSON] = []
    names = {call.id: call.name for message in messages for call in message.calls}
    # The type of a result depends on the type of its call.
    custom_calls = {call.id for message in messages for call in message.calls if call.custom}
    for index, message in enumerate(messages):
        if message.role == "assistant":
            blocks = [
                encode_agent_call(block, tools) if isinstance(block, ToolCall) else block
                for block in message.blocks
            ]
            groups = wire.group_blocks(blocks)
            items += (
                encode_item(group, f"in{index}_{number}", "stop")
                for number, group in enumerate(groups)
            )
        elif message.role != "tool":
            content = [_encode_part(block) for block in message.blocks]
            items.append({"type": "message", "role": message.role, "content": content})
        else:
            for block in message.blocks:
                match block:
                    case ToolResult(call_id):
                        output = encode_agent_result(block, names.get(call_id, ""), tools)
                        is_custom = call_id in custom_calls
                        items.append(output or _encode_result(block, is_custom=is_custom))
                    case RawBlock():
                        items.append(raw_block_data(block, wire.NAME))
                    case _:
                        raise unsupported_block(block, wire.NAME)
    return items


def _encode_result(result: ToolResult, *, is_custom: bool) -> JSON:
    content = result.content
    is_text = not content or (len(content) == 1 and isinstance(content[0], Text))
    return {
        "type": "custom_tool_call_output" if is_custom else "function_call_output",
        "call_id": result.call_id,
        "output": result.text if is_text else [_encode_part(block) for block in content],
    }


def _encode_part(block: AnyBlock) -> JSON:
    match block:
        case Text(text):
            return {"type": "input_text", "text": text}
        case Image():
            return {"type": "input_image", "image_url": openai.image_url(block)}
        case RawBlock():
            return raw_block_data(block, wire.NAME)
        case _:
            raise unsupported_block(block, wire.NAME)


# ------------------------------------------------------------------- parsing responses


def parse_response_body(body: bytes, request: Request) -> Reply:
    """Parse a whole response."""
    response = openai.decode_response(wire.response_decoder, body)
    if response.output is None:
        raise invalid_response("the provider", "it has no output")
    return _build_reply(response, request, RawBody(body, wire.NAME), ("output",))


def parse_stream(stream: bytes, request: Request) -> Reply:
    """Parse a stream of events.

    The items come whole when they are done, so nothing but the text chunks is accumulated.
    """
    items: list[wire.ResponsesItem] = []
    raw_items: list[str] = []
    chunks: list[str] = []
    for sse_event in parse_sse(stream):
        data = sse_event.data
        if data == "[DONE]":
            break
        event = openai.decode_response(wire.event_decoder, data)
        if event.type in {"response.output_text.delta", "response.refusal.delta"}:
            chunks.append(str(event.delta))
        elif event.type == "response.output_item.done" and event.item is not None:
            items.append(event.item)
            raw_item = openai.decode_response(wire.raw_item_decoder, data).item
            raw_items.append(bytes(raw_item).decode())
        elif event.type == "error":
            error = event.error or wire.ResponsesError(event.code, event.message)
            raise error_with_code(
                error.message or "", error.code, event.status, openai.ERROR_CATEGORIES
            )
        elif event.response is not None and event.type in _LAST_EVENTS:
            response = event.response
            if response.output:
                raw, path = RawBody(data, wire.NAME), ("response", "output")
                return _build_reply(response, request, raw, path, tuple(chunks))
            # Some servers leave the output of the last event empty.
            response.output = items
            raw = RawBody(f"[{','.join(raw_items)}]", wire.NAME)
            return _build_reply(response, request, raw, (), tuple(chunks))
    raise interrupted_stream()


def _build_reply(
    response: wire.ResponsesResponse,
    request: Request,
    raw: RawBody,
    path: tuple[str, ...],
    chunks: tuple[str, ...] = (),
) -> Reply:
    """Return the reply of a response; `path` leads to its items in the raw body."""
    if response.error is not None or response.status == "failed":
        error = response.error or wire.ResponsesError()
        raise error_with_code(
            error.message or openai.SERVER_ERROR, error.code, 500, openai.ERROR_CATEGORIES
        )
    reader = wire.ItemReader(frozenset(), ConversationStore(), wire.EMPTY_STATE, raw)
    reader.read(response.output or [], *path)
    blocks = tuple(block for message in reader.finish().history for block in message.blocks)
    return Reply(
        blocks,
        _parse_stop(response, blocks),
        _parse_usage(response.usage),
        response.model or request.model,
        response.id,
        chunks=chunks,
    )


def _parse_stop(response: wire.ResponsesResponse, blocks: tuple[AnyBlock, ...]) -> StopReason:
    if response.status == "incomplete":
        reason = response.incomplete_details and response.incomplete_details.reason
        return "refusal" if reason == "content_filter" else "length"
    for item in response.output or ():
        if isinstance(item.content, list) and any(part.refusal for part in item.content):
            return "refusal"
    return "tool_use" if any(isinstance(block, ToolCall) for block in blocks) else "stop"


def _parse_usage(usage: wire.ResponsesUsage | None) -> Usage:
    if usage is None:
        return Usage()
    cached, reasoning = usage.input_tokens_details, usage.output_tokens_details
    return Usage(
        usage.input_tokens,
        usage.output_tokens,
        cache_read=(cached and cached.cached_tokens) or 0,
        cache_write=(cached and cached.cache_write_tokens) or 0,
        reasoning=(reasoning and reasoning.reasoning_tokens) or 0,
    )
