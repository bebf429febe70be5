"""OpenAI's responses: a conversation is a list of items, and the provider may keep its beginning.

The items that the model gave one after the other are one message of the assistant. What came as
instructions, and as system or developer messages at the start, is the one `system`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar, cast

import msgspec

from offbook.determinism.clock import EPOCH
from offbook.determinism.ids import stable
from offbook.errors import ModelError, UsageError
from offbook.exchange import rules, sse
from offbook.exchange.arguments import read_arguments, read_input, write_arguments, write_input
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.dialect import Answer, Wire, introduce
from offbook.exchange.history import History
from offbook.exchange.memory import Known, Memory
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Content,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from offbook.exchange.pieces import cut_reply, cut_runs, cut_words
from offbook.exchange.reply import Reply, Stop, Usage
from offbook.exchange.request import Request, Tool
from offbook.exchange.threads import Threads

T = TypeVar("T")
NAME = "openai-responses"
SEALED = "reasoning.encrypted_content"

OPTIONS = (
    "background",
    "context_management",
    "conversation",
    "include",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "moderation",
    "parallel_tool_calls",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
)

# What a response repeats of the request, and what it says where that said nothing.
ECHOED: JSON = {
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


# What comes off the wire holds no cycles, so the collector need not look at it (`gc=False`).


class _Address(msgspec.Struct, gc=False):
    url: str = ""


class _Part(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    refusal: str | None = None
    image_url: str | _Address | None = None


class _Item(msgspec.Struct, gc=False):
    """An item of a conversation, of whatever type."""

    type: str | None = None
    role: str | None = None
    id: str | None = None
    content: str | list[_Part] | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Any = None
    input: Any = None
    output: str | list[_Part] | _Part | None = None
    summary: list[_Part] | None = None
    encrypted_content: str | None = None
    tools: list[JSON] | None = None


class _Body(msgspec.Struct, gc=False):
    model: str | None = None
    input: str | list[_Item] | None = None
    instructions: str | list[_Item] | None = None
    previous_response_id: str | None = None
    # the tools come again with every request, byte for byte: each offer is read once
    tools: msgspec.Raw = msgspec.Raw()
    stream: bool | None = None
    generate: bool | None = None
    client_metadata: JSON | None = None


class _Outline(msgspec.Struct, gc=False):
    input: msgspec.Raw = msgspec.Raw(b"[]")


class _Read(msgspec.Struct, frozen=True):
    """What was read from the items so far."""

    system: tuple[str, ...]
    history: History
    names: dict[str, str]
    tools: tuple[Tool, ...]


class _Cached(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Reasoned(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int = 0
    output_tokens: int = 0
    input_tokens_details: _Cached | None = None
    output_tokens_details: _Reasoned | None = None


class _Reason(msgspec.Struct, gc=False):
    reason: str | None = None


class _Failure(msgspec.Struct, gc=False):
    code: str | int | None = None
    message: str | None = None


class _Response(msgspec.Struct, gc=False):
    id: str = ""
    model: str = ""
    status: str | None = None
    output: list[_Item] = []
    usage: _Usage | None = None
    error: _Failure | None = None
    incomplete_details: _Reason | None = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    delta: Any = None
    item: _Item | None = None
    response: _Response | None = None
    error: _Failure | None = None
    message: str | None = None
    code: str | int | None = None
    status: int = 500


_Whole = msgspec.defstruct(
    "_Whole", [(name, Any, msgspec.UNSET) for name in OPTIONS], bases=(_Body,), gc=False
)
_options = attrgetter(*OPTIONS)
_body = cast("msgspec.json.Decoder[_Body]", msgspec.json.Decoder(_Whole))
_tools: msgspec.json.Decoder[list[JSON] | None] = msgspec.json.Decoder(list[JSON] | None)
_NOTHING = _Read((), History(), {}, ())
_outline = msgspec.json.Decoder(_Outline)
_response = msgspec.json.Decoder(_Response)
_event = msgspec.json.Decoder(_Event)
_encode = msgspec.json.Encoder(enc_hook=repr).encode


class Responses:
    """The dialect of `/v1/responses`, over HTTP and over a WebSocket."""

    name = NAME

    def __init__(self, refused: frozenset[str] = rules.ALL) -> None:
        self._rules = refused
        self._offer = lru_cache(maxsize=64)(self._read_offer)
        self._memory: Memory[_Read] = Memory(_find_input)
        self._echo: tuple[tuple[Tool, ...], msgspec.Raw] = ((), msgspec.Raw(b"[]"))

    def claims(self, wire: Wire) -> bool:
        """Whether this is a response asked for, or one asked for again."""
        path = wire.path
        return path.endswith("/responses") or "/responses/" in path

    def aside(self, wire: Wire, threads: Threads) -> Answer | None:
        """An earlier response again, or a count of tokens; None for a new response."""
        id_ = wire.path.rpartition("/responses")[2].strip("/")
        if not id_:
            return None
        if wire.method == "POST" and id_ == "input_tokens":
            count = len(wire.body) // 4 + 1
            return _answer(_encode({"object": "response.input_tokens", "input_tokens": count}))
        found = threads.recall(id_) if wire.method == "GET" else None
        if found is None:
            return self.refuse(
                ModelError(f"Response with id '{id_}' not found.", status=404, details={"code": ""})
            )
        request, reply = found
        return self.encode(reply, msgspec.structs.replace(request, stream=False))

    # ------------------------------------------------------------------ what the agent sent

    def decode(self, wire: Wire, threads: Threads) -> Request:
        """The neutral request, with everything that came before it in the conversation.

        The body may be that of a POST or a `response.create` event of a WebSocket. One that asks
        for no reply has `generate: False` in its metadata.
        """
        found = self._memory.recall(wire.body)
        if found is not None:
            try:
                return self._decode(wire, found[1], threads, found[0])
            except ModelError:  # read it whole, so that the error names the right place
                pass
        return self._decode(wire, wire.body, threads)

    def _decode(
        self, wire: Wire, text: bytes, threads: Threads, known: Known[_Read] | None = None
    ) -> Request:
        body = openai.read_body(_body, text)
        if known is not None and body.previous_response_id:  # its beginning is another
            return self._decode(wire, wire.body, threads)
        if "missing_field" in self._rules:
            _require(body)
        said = _Conversation(self._rules, threads, known.state if known else _NOTHING)
        if body.previous_response_id:
            self._go_on(said, body.previous_response_id, threads)
        wired = body.input
        said.read([_Item(role="user", content=wired)] if isinstance(wired, str) else wired or ())
        read = said.finish()
        messages = read.history
        if wired:
            breach = rules.pair_calls(messages, self._rules, adjacent=False)
            if breach is not None:
                raise _say_breach(breach, messages)
            if said.lasting:
                self._memory.keep(wire.body, text, read, known)
        instructions = _read_instructions(body.instructions)
        given = zip(OPTIONS, _options(body), strict=True)
        tools = self._offer(bytes(body.tools)) if body.tools else ()
        return Request(
            messages,
            "\n\n".join(filter(None, (instructions, *read.system))),
            (*tools, *self._check_tools(read.tools)) if read.tools else tools,
            body.model or "",
            {name: value for name, value in given if value is not msgspec.UNSET},
            _introduce(wire, body, instructions),
            body.stream is True,
        )

    def _go_on(self, said: _Conversation, id_: str, threads: Threads) -> None:
        found = threads.recall(id_)
        if found is not None:
            said.go_on(*found)
        elif "unknown_previous" in self._rules:
            raise rules.reject(
                "unknown_previous",
                f"Previous response with id '{id_}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )

    def _read_offer(self, raw: bytes) -> tuple[Tool, ...]:
        return self._check_tools(_read_tools(openai.read_body(_tools, raw) or ()))

    def _check_tools(self, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        breach = rules.find_schema(tools, self._rules)
        if breach is not None:
            given = tools[breach.at].schema.get("type")
            raise rules.reject(
                breach.rule,
                f"Invalid schema for function '{breach.ids[0]}': schema must be a JSON Schema of "
                f"'type: \"object\"', got 'type: {_encode(given).decode()}'.",
                param=f"tools[{breach.at}].parameters",
                code="invalid_function_parameters",
            )
        return tools

    # ---------------------------------------------------------------- what the model answers

    def identify(self, reply: Reply, request: Request) -> str:
        """The id of the response: the reply's own, or one made of the whole conversation."""
        if reply.id.startswith("resp_"):
            return reply.id
        system, model = request.system, request.model
        return stable("resp_", reply.id, str(reply.step), request.messages.digest(), model, system)

    def encode(self, reply: Reply, request: Request) -> Answer:
        """The response, whole or as a stream."""
        if reply.stop == "error" and not request.stream:
            return self.refuse(ModelError(openai.FAILURE, status=500))
        id_, made = self._make(reply, request)
        if request.stream:
            return Answer(200, _headers(id_, openai.STREAM_TYPE), chunks=tuple(made.stream()))
        return _answer(made.closing, id_)

    def events(self, reply: Reply, request: Request) -> list[JSON]:
        """The events of a response; a WebSocket sends each of them as a frame."""
        return self._make(reply, request)[1].list_events()

    def _make(self, reply: Reply, request: Request) -> tuple[str, _Made]:
        offered, written = self._echo
        if offered is not request.tools:  # an agent offers the same tools time and again
            written = msgspec.Raw(_encode(_write_tools(request.tools)))
            self._echo = (request.tools, written)
        id_ = self.identify(reply, request)
        return id_, _Made(id_, reply, request, written)

    def failure(self, error: ModelError) -> JSON:
        """The event by which a WebSocket is told an error."""
        return {"type": "error", "status": error.status, "error": openai.describe_error(error)}

    def refuse(self, error: ModelError, request: Request | None = None) -> Answer:
        """The error, as OpenAI words it."""
        del request
        return openai.refuse(error)

    # ------------------------------------------------------------------- asking for ourselves

    def ask(self, request: Request, base_url: str, key: str) -> Wire:
        """A request to a provider; its base URL ends as the client libraries take it: `…/v1`."""
        body: JSON = {"model": request.model, "input": _write_input(request.messages)}
        if request.system:
            body["instructions"] = request.system
        if request.tools:
            body["tools"] = _write_tools(request.tools)
        body.update(request.parameters)
        if request.stream:
            body["stream"] = True
        headers = {"authorization": f"Bearer {key}", "content-type": openai.JSON_TYPE}
        return Wire("POST", f"{base_url.rstrip('/')}/responses", headers, _encode(body))

    def parse(self, answer: Answer, request: Request) -> Reply:
        """The provider's reply."""
        if answer.status >= 400:  # noqa: PLR2004 - HTTP's own
            raise openai.read_refusal(answer)
        if openai.is_stream(answer):
            return _gather(openai.join_stream(answer), request)
        return _read_reply(_read_answer(_response, answer.body), (), request)


def _headers(id_: str, content_type: str) -> dict[str, str]:
    return {"content-type": content_type, "x-request-id": f"req_{id_.removeprefix('resp_')}"}


def _answer(body: bytes, id_: str = "offbook") -> Answer:
    return Answer(200, _headers(id_, openai.JSON_TYPE), body)


def _find_input(body: bytes) -> bytes:
    return bytes(_outline.decode(body).input)


def _introduce(wire: Wire, body: _Body, instructions: str) -> JSON:
    about = introduce(wire, NAME)
    if instructions:
        about["instructions"] = len(instructions)
    if body.previous_response_id:
        about["previous_response_id"] = body.previous_response_id
    if body.client_metadata:
        about["client_metadata"] = body.client_metadata
    if body.generate is False:
        about["generate"] = False
    return about


def _require(body: _Body) -> None:
    options = cast("Any", body)
    if not body.model and options.prompt is msgspec.UNSET:
        raise rules.reject(
            "missing_field",
            "Missing required parameter: 'model'.",
            param="model",
            code="missing_required_parameter",
        )
    given = (options.prompt, options.conversation)
    if body.input is None and not body.previous_response_id and not any(given):
        raise rules.reject(
            "missing_field",
            "One of 'input' or 'previous_response_id' or 'prompt' or 'conversation' "
            "must be provided.",
            param="input",
            code="missing_required_parameter",
        )


def _say_breach(breach: rules.Breach, messages: Sequence[Message]) -> ModelError:
    id_ = breach.ids[0]
    if breach.rule == "missing_result":
        custom = any(call.id == id_ and call.custom for call in messages[breach.at].calls)
        kind = "custom tool call" if custom else "function call"
        message = f"No tool output found for {kind} {id_}."
    elif breach.rule == "orphan_result":
        message = f"No tool call found for function call output with call_id {id_}."
    else:
        message = f"Duplicate item found with call_id {id_}."
    return rules.reject(breach.rule, message, param="input")


def _read_instructions(given: str | list[_Item] | None) -> str:
    if isinstance(given, list):
        return "\n\n".join(Message("system", _read_content(item.content)).text for item in given)
    return given or ""


class _Conversation:
    """Reads items into messages, going on from where an earlier exchange ended."""

    def __init__(self, refused: frozenset[str], threads: Threads, before: _Read) -> None:
        self._rules = refused
        self._threads = threads
        self._history = before.history
        self._names = dict(before.names)
        self._system = list(before.system)
        self._tools = list(before.tools)
        self._messages: list[Message] = []
        self._spoken: list[AnyBlock] = []
        self.lasting = True  # whether the same items will always mean the same

    def go_on(self, request: Request, reply: Reply) -> None:
        """Begin where that exchange ended. Its instructions held for it alone; the rest stays."""
        self.lasting = False
        instructions = cast("int", request.metadata.get("instructions", 0))
        self._system = [request.system[instructions:].removeprefix("\n\n")]
        self._history = request.messages.plus(reply.message) if reply.blocks else request.messages
        for message in self._history:
            self._names.update((call.id, call.name) for call in message.calls)

    def finish(self) -> _Read:
        """The conversation so far."""
        if self._spoken:  # more of the same message may follow
            self.lasting = False
        self._close()
        history = self._history
        history = history.plus(*self._messages) if len(history) else History(self._messages)
        return _Read(tuple(self._system), history, self._names, tuple(self._tools))

    def read(self, items: Sequence[_Item]) -> None:
        """Go through the items, in their order."""
        for at, item in enumerate(items):
            kind = item.type
            if kind is None or kind == "message":
                self._read_message(item, at)
            elif kind == "function_call":
                arguments = item.arguments if isinstance(item.arguments, str) else ""
                self._call(item, read_arguments(arguments))
            elif kind == "reasoning":
                self._spoken.append(_read_thought(item))
            elif kind == "custom_tool_call":
                self._call(item, read_input(cast("str", item.input or "")), custom=True)
            elif kind == "additional_tools":
                self._tools += _read_tools(item.tools or ())
            elif kind == "item_reference":
                self.lasting = False
                self._spoken += self._look_up(item.id or "")
            elif kind.endswith("_output") and item.call_id is not None:
                self._result(item)
            elif kind.endswith("_call") and item.call_id is not None:  # a tool of the provider's
                item.name = item.name or kind.removesuffix("_call")
                given = cast("JSON", item.arguments) if isinstance(item.arguments, dict) else {}
                self._call(item, given)

    def _read_message(self, item: _Item, at: int) -> None:
        role, blocks = item.role, _read_content(item.content)
        if role == "assistant":
            self._spoken += blocks
            return
        self._close()
        if role in {"system", "developer"}:
            if self._messages or len(self._history):
                self._messages.append(Message("system", blocks))
            else:
                self._system.append(Message("system", blocks).text)
        elif role == "user" or "unknown_role" not in self._rules:
            self._messages.append(Message("user", blocks))
        else:
            raise _say_role(role, at)

    def _call(self, item: _Item, arguments: JSON, *, custom: bool = False) -> None:
        id_, name = item.call_id or "", item.name or ""
        self._names[id_] = name
        self._spoken.append(ToolCall(id_, name, arguments, item.namespace or "", custom))

    def _result(self, item: _Item) -> None:
        self._close()
        id_ = item.call_id or ""
        given = [item.output] if isinstance(item.output, _Part) else item.output
        content = cast("tuple[Content, ...]", _read_content(given))
        result = ToolResult(id_, content, name=self._names.get(id_, ""))
        self._messages.append(Message("tool", (result,)))

    def _look_up(self, item_id: str) -> tuple[AnyBlock, ...]:
        """The blocks of an item that was given earlier: its id tells where."""
        core, _, index = item_id.partition("_")[2].rpartition("_")
        found = self._threads.recall(f"resp_{core}")
        groups = _group(found[1].blocks) if found else []
        if index.isdigit() and int(index) < len(groups):
            return groups[int(index)]
        if "unknown_previous" in self._rules:
            raise rules.reject(
                "unknown_previous",
                f"Item with id '{item_id}' not found.",
                status=404,
                param="input",
            )
        return ()

    def _close(self) -> None:
        """What the model gave one after the other is one message."""
        if self._spoken:
            self._messages.append(Message("assistant", tuple(self._spoken)))
            self._spoken = []


def _say_role(role: str | None, at: int) -> ModelError:
    if role is None:
        return rules.reject(
            "unknown_role",
            f"Missing required parameter: 'input[{at}].role'.",
            param=f"input[{at}].role",
            code="missing_required_parameter",
        )
    return rules.reject(
        "unknown_role",
        f"Invalid value: '{role}'. Supported values are: 'assistant', 'system', 'developer', "
        "and 'user'.",
        param=f"input[{at}].role",
        code="invalid_value",
    )


def _read_content(content: str | list[_Part] | None) -> tuple[AnyBlock, ...]:
    if isinstance(content, str):
        return (Text(content),) if content else ()
    return tuple(map(_read_part, content)) if content else ()


def _read_part(part: _Part) -> Text | Image:
    if part.text is not None:
        return Text(part.text)
    if part.image_url is not None:
        url = part.image_url
        return openai.read_image(url if isinstance(url, str) else url.url)
    return Text(part.refusal or f"[{part.type}]")  # what we have no block for, by its name


def _read_thought(item: _Item) -> Thinking:
    parts = item.summary or (item.content if isinstance(item.content, list) else ()) or ()
    text = "\n\n".join(part.text or "" for part in parts)
    return Thinking(text, item.encrypted_content or "")


def _group(blocks: Sequence[AnyBlock]) -> list[tuple[AnyBlock, ...]]:
    """The blocks that make up each item: texts side by side are one message."""
    groups: list[tuple[AnyBlock, ...]] = []
    for block in blocks:
        if groups and isinstance(block, Text) and isinstance(groups[-1][-1], Text):
            groups[-1] = (*groups[-1], block)
        else:
            groups.append((block,))
    return groups


def _read_tools(wired: Sequence[JSON], namespace: str = "") -> tuple[Tool, ...]:
    tools: list[Tool] = []
    for tool in wired:
        kind = str(tool.get("type", "function"))
        if kind == "namespace":
            tools += _read_tools(tool.get("tools") or (), str(tool.get("name", "")))
        elif kind in {"function", "custom"}:
            schema = tool.get("parameters" if kind == "function" else "format")
            name, told = str(tool.get("name", "")), str(tool.get("description") or "")
            strict = tool.get("strict") is True
            tools.append(Tool(name, told, schema or {}, namespace, kind, strict))
        else:
            rest = {key: value for key, value in tool.items() if key != "type"}
            tools.append(Tool(kind, schema=rest, namespace=namespace, kind=kind))
    return tuple(tools)


def _write_tools(tools: Sequence[Tool]) -> list[JSON]:
    wired: list[JSON] = []
    spaces: dict[str, list[JSON]] = {}
    for tool in tools:
        if tool.namespace and tool.namespace not in spaces:
            inside: list[JSON] = []
            spaces[tool.namespace] = inside
            wired.append(
                {
                    "type": "namespace",
                    "name": tool.namespace,
                    "description": "",
                    "tools": inside,
                }
            )
        spaces.get(tool.namespace, wired).append(_write_tool(tool))
    return wired


def _write_tool(tool: Tool) -> JSON:
    told: JSON = {"type": tool.kind, "name": tool.name, "description": tool.description}
    if tool.kind == "function":
        return {**told, "parameters": tool.schema, "strict": tool.strict}
    if tool.kind == "custom":
        return {**told, "format": tool.schema} if tool.schema else told
    return {"type": tool.kind, **tool.schema}


def _write_input(messages: Sequence[Message]) -> list[JSON]:
    items: list[JSON] = []
    for at, message in enumerate(messages):
        if message.role == "tool":
            items += (_write_result(result, messages) for result in message.results)
        elif message.role == "assistant":
            parts = _group(message.blocks)
            items += (_write_item(part, f"in{at}_{n}", "stop") for n, part in enumerate(parts))
        else:
            content = [_write_part(block) for block in message.blocks]
            items.append({"type": "message", "role": message.role, "content": content})
    return items


def _write_result(result: ToolResult, messages: Sequence[Message]) -> JSON:
    content = result.content
    custom = any(c.custom for m in messages for c in m.calls if c.id == result.call_id)
    plain = len(content) == 1 and isinstance(content[0], Text)
    return {
        "type": "custom_tool_call_output" if custom else "function_call_output",
        "call_id": result.call_id,
        "output": result.text if plain or not content else [_write_part(b) for b in content],
    }


def _write_part(block: AnyBlock) -> JSON:
    match block:
        case Text(text):
            return {"type": "input_text", "text": text}
        case Image():
            return {"type": "input_image", "image_url": openai.write_image(block)}
        case _:
            raise _cannot_say(block)


def _cannot_say(block: AnyBlock) -> UsageError:
    return UsageError(
        f"{NAME} has no words for a {type(block).__name__} here",
        hint="it carries texts, images from the user, thoughts, tool calls and their results",
    )


def _write_item(blocks: tuple[AnyBlock, ...], core: str, stop: Stop) -> JSON:
    """What the model gave, as the item with this core of an id."""
    first = blocks[0]
    match first:
        case Text():
            parts = [_write_spoken(cast("Text", block).text, stop) for block in blocks]
            return {
                "id": f"msg_{core}",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": parts,
            }
        case Thinking(text, signature):
            return {
                "id": f"rs_{core}",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": text}] if text else [],
                "encrypted_content": signature or None,
            }
        case ToolCall():
            return _write_call(first, core)
        case _:
            raise _cannot_say(first)


def _write_spoken(text: str, stop: Stop) -> JSON:
    if stop == "refusal":
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _write_call(call: ToolCall, core: str) -> JSON:
    custom = call.custom
    item: JSON = {
        "id": f"{'ctc' if custom else 'fc'}_{core}",
        "type": "custom_tool_call" if custom else "function_call",
        "status": "completed",
        "call_id": call.id,
        "name": call.name,
    }
    if call.namespace:
        item["namespace"] = call.namespace
    if custom:
        item["input"] = write_input(call.arguments)
    else:
        item["arguments"] = write_arguments(call.arguments)
    return item


class _Run(msgspec.Struct, frozen=True, gc=False):
    """Events that differ in their `delta` only."""

    type: str
    at: JSON
    pieces: Sequence[str]
    more: JSON = {}


class _Made:
    """A response in the making: its items, and the events that bring them.

    The response itself stands in three events, with all that the request said. It is written
    once, as bytes, and completed by its state.
    """

    def __init__(self, id_: str, reply: Reply, request: Request, tools: msgspec.Raw) -> None:
        self._reply = reply
        core = id_.removeprefix("resp_")
        options = request.parameters
        sealed = SEALED in (options.get("include") or ())
        blocks = [_fit(block, request, sealed=sealed) for block in reply.blocks]
        self._items = [
            _write_item(part, f"{core}_{at}", reply.stop) for at, part in enumerate(_group(blocks))
        ]
        base: JSON = {
            "id": id_,
            "object": "response",
            "created_at": EPOCH,
            "model": reply.model or request.model,
            **ECHOED,
            "tools": tools,
        }
        base.update((key, options[key]) for key in options.keys() & ECHOED.keys())
        count = cast("int", request.metadata.get("instructions", 0))
        base["instructions"] = request.system[:count] or None
        base["previous_response_id"] = request.metadata.get("previous_response_id")
        self._base = _encode(base)[:-1]

    @property
    def closing(self) -> bytes:
        """The whole response, as it stands at the end."""
        usage = self._reply.usage
        return _CLOSING % (
            self._base,
            self._status.encode(),
            _encode(_BROKEN if self._status == "failed" else None),
            _encode({"reason": "max_output_tokens"} if self._status == "incomplete" else None),
            _encode(self._items),
            usage.input,
            usage.cache_read,
            usage.cache_write,
            usage.output,
            usage.reasoning,
            usage.input + usage.output,
        )

    @property
    def _status(self) -> str:
        stop = self._reply.stop
        return {"error": "failed", "length": "incomplete"}.get(stop, "completed")

    def list_events(self) -> list[JSON]:
        """The events as objects."""
        events: list[JSON] = []
        for event in self._events():
            if isinstance(event, _Run):
                run = {"type": event.type, **event.at, "delta": "", **event.more}
                events += ({**run, "delta": piece} for piece in event.pieces)
            elif "response" in event:
                events.append({**event, "response": msgspec.json.decode(event["response"])})
            else:
                events.append(event)
        return [{**event, "sequence_number": number} for number, event in enumerate(events)]

    def stream(self) -> list[bytes]:
        """The events as bytes."""
        events: list[bytes] = []
        for event in self._events():
            if isinstance(event, _Run):
                fixed = _encode({"type": event.type, **event.at, **event.more})[:-1]
                head = b"event: %b\ndata: %b," % (event.type.encode(), fixed)
                first = len(events)
                events += [
                    b'%b"delta":%b,"sequence_number":%d}\n\n' % (head, _encode(piece), number)
                    for number, piece in enumerate(event.pieces, first)
                ]
            else:
                event["sequence_number"] = len(events)
                events.append(sse.frame(_encode(event), event["type"]))
        return events

    def _events(self) -> Iterator[JSON | _Run]:
        opened = msgspec.Raw(self._base + _OPENED)
        yield {"type": "response.created", "response": opened}
        yield {"type": "response.in_progress", "response": opened}
        for index, item in enumerate(self._items):
            yield from self._bring(index, item)
        yield {"type": f"response.{self._status}", "response": msgspec.Raw(self.closing)}

    def _bring(self, index: int, item: JSON) -> Iterator[JSON | _Run]:
        at: JSON = {"item_id": item["id"], "output_index": index}
        kind = item["type"]
        started = {**item, **_EMPTY[kind]}
        yield {"type": "response.output_item.added", "output_index": index, "item": started}
        if kind == "message":
            for number, part in enumerate(item["content"]):
                yield from self._speak({**at, "content_index": number}, part)
        elif kind == "reasoning":
            for number, part in enumerate(item["summary"]):
                yield from _think({**at, "summary_index": number}, part)
        elif kind == "function_call":
            name = "response.function_call_arguments"
            said = item["arguments"]
            yield _Run(f"{name}.delta", at, cut_runs(said))
            yield {"type": f"{name}.done", **at, "name": item["name"], "arguments": said}
        else:
            name = "response.custom_tool_call_input"
            yield _Run(f"{name}.delta", at, cut_runs(item["input"]))
            yield {"type": f"{name}.done", **at, "input": item["input"]}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}

    def _speak(self, at: JSON, part: JSON) -> Iterator[JSON | _Run]:
        kind = part["type"]
        field = "refusal" if kind == "refusal" else "text"
        more: JSON = {} if kind == "refusal" else {"logprobs": []}
        said = part[field]
        yield {"type": "response.content_part.added", **at, "part": {**part, field: ""}}
        yield _Run(f"response.{kind}.delta", at, cut_reply(self._reply, said), more)
        yield {"type": f"response.{kind}.done", **at, field: said, **more}
        yield {"type": "response.content_part.done", **at, "part": part}


def _think(at: JSON, part: JSON) -> Iterator[JSON | _Run]:
    name = "response.reasoning_summary"
    yield {"type": f"{name}_part.added", **at, "part": {**part, "text": ""}}
    yield _Run(f"{name}_text.delta", at, cut_words(part["text"]))
    yield {"type": f"{name}_text.done", **at, "text": part["text"]}
    yield {"type": f"{name}_part.done", **at, "part": part}


# what an item lacks when it is announced
_EMPTY: dict[str, JSON] = {
    "message": {"status": "in_progress", "content": []},
    "reasoning": {"summary": [], "encrypted_content": None},
    "function_call": {"status": "in_progress", "arguments": ""},
    "custom_tool_call": {"status": "in_progress", "input": ""},
}
_BROKEN = {"code": "server_error", "message": openai.FAILURE}
_OPENED = (
    b',"status":"in_progress","error":null,"incomplete_details":null,"output":[],"usage":null}'
)
_CLOSING = (
    b'%b,"status":"%b","error":%b,"incomplete_details":%b,"output":%b,'
    b'"usage":{"input_tokens":%d,'
    b'"input_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d},'
    b'"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}}'
)


def _fit(block: AnyBlock, request: Request, *, sealed: bool) -> AnyBlock:
    """The block as this request wants it: a call as its tool was offered, a thought sealed."""
    if isinstance(block, Thinking) and sealed and not block.signature:
        return Thinking(block.text, stable("gAAAA", block.text, length=40))
    if not isinstance(block, ToolCall) or block.custom or block.namespace:
        return block
    offers = [tool for tool in request.tools if tool.name == block.name]
    if not offers or any(tool.kind == "function" and not tool.namespace for tool in offers):
        return block
    offer = min(offers, key=lambda tool: bool(tool.namespace))
    return msgspec.structs.replace(block, namespace=offer.namespace, custom=offer.kind == "custom")


def _read_usage(usage: _Usage | None) -> Usage:
    if usage is None:
        return Usage()
    cached, reasoned = usage.input_tokens_details, usage.output_tokens_details
    return Usage(
        usage.input_tokens,
        usage.output_tokens,
        cache_read=(cached and cached.cached_tokens) or 0,
        cache_write=(cached and cached.cache_write_tokens) or 0,
        reasoning=(reasoned and reasoned.reasoning_tokens) or 0,
    )


def _read_answer(decoder: msgspec.json.Decoder[T], data: bytes | str) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"the provider's answer cannot be read: {error}", status=502) from error


def _gather(stream: bytes, request: Request) -> Reply:
    """The reply that a stream brought event by event."""
    items: list[_Item] = []
    pieces: list[str] = []
    for said in sse.read(stream):
        if said.data == "[DONE]":
            break
        event = _read_answer(_event, said.data)
        if event.type in {"response.output_text.delta", "response.refusal.delta"}:
            pieces.append(str(event.delta))
        elif event.type == "response.output_item.done" and event.item is not None:
            items.append(event.item)
        elif event.type == "error":
            error = event.error or _Failure(event.code, event.message)
            raise openai.as_error(error.message or "", error.code, event.status)
        elif event.response is not None and event.type in _ENDS:
            response = event.response
            response.output = response.output or items
            return _read_reply(response, tuple(pieces), request)
    raise ModelError("the stream broke off before its end", status=502)


_ENDS = {"response.completed", "response.incomplete", "response.failed"}


def _read_reply(response: _Response, chunks: tuple[str, ...], request: Request) -> Reply:
    if response.error is not None or response.status == "failed":
        error = response.error or _Failure()
        raise openai.as_error(error.message or openai.FAILURE, error.code, 500)
    said = _Conversation(frozenset(), Threads(), _NOTHING)
    said.read(response.output)
    blocks = tuple(block for message in said.finish().history for block in message.blocks)
    return Reply(
        blocks,
        _read_stop(response, blocks),
        _read_usage(response.usage),
        response.model or request.model,
        response.id,
        chunks=chunks,
    )


def _read_stop(response: _Response, blocks: tuple[AnyBlock, ...]) -> Stop:
    if response.status == "incomplete":
        reason = response.incomplete_details and response.incomplete_details.reason
        return "refusal" if reason == "content_filter" else "length"
    parts = [p for item in response.output if isinstance(item.content, list) for p in item.content]
    if any(part.refusal for part in parts):
        return "refusal"
    return "tool_use" if any(isinstance(block, ToolCall) for block in blocks) else "stop"
