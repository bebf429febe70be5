"""OpenAI's chat completions, with the list of models and the embeddings beside them.

What this dialect cannot say is made uniform on the way: the system messages at the start become
the one `system`; a reply's texts become one, its thoughts come first and its calls last; whether a
tool's result is an error is not told.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, cast

import msgspec

from offbook.determinism.clock import EPOCH
from offbook.errors import ModelError, UsageError
from offbook.exchange import rules, sse
from offbook.exchange.arguments import read_arguments, read_input, write_arguments, write_input
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.dialect import Answer, Wire, introduce
from offbook.exchange.embeddings import embed, pack_floats
from offbook.exchange.history import History, extend_digest
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

NAME = "openai-chat"
MODELS = ("gpt-5", "gpt-5-mini", "gpt-4o", "gpt-4o-mini", "text-embedding-3-small")
DIMENSIONS = {"text-embedding-3-large": 3072}

# The options that are kept as they came: OpenAI's own, then those of servers that imitate it.
OPTIONS = (
    "audio",
    "frequency_penalty",
    "function_call",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "metadata",
    "modalities",
    "moderation",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream_options",
    "temperature",
    "tool_choice",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
    "chat_template_kwargs",
    "extra_body",
    "guided_json",
    "min_p",
    "provider",
    "reasoning",
    "repetition_penalty",
    "thinking",
    "top_k",
    "transforms",
)

FINISH: dict[Stop, bytes] = {
    "stop": b"stop",
    "tool_use": b"tool_calls",
    "length": b"length",
    "stop_sequence": b"stop",
    "refusal": b"stop",
    "error": b"stop",
}
STOPS: dict[str, Stop] = {
    "stop": "stop",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "length",
    "content_filter": "refusal",
}


# What comes off the wire holds no cycles, so the collector need not look at it (`gc=False`).


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _Custom(msgspec.Struct, gc=False):
    name: str | None = None
    input: str | None = None


class _Call(msgspec.Struct, gc=False):
    id: str | None = None
    index: int = 0
    function: _Function | None = None
    custom: _Custom | None = None


class _Address(msgspec.Struct, gc=False):
    url: str = ""


class _Part(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    refusal: str | None = None
    image_url: _Address | None = None


class _Message(msgspec.Struct, gc=False):
    """A message of a request or a reply, or the piece of one that a stream brings."""

    role: str | None = None
    content: str | list[_Part] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Any = None

    @property
    def thoughts(self) -> str:
        return self.reasoning_content or (self.reasoning if isinstance(self.reasoning, str) else "")


class _Offer(msgspec.Struct, gc=False):
    name: str = ""
    description: str | None = None
    parameters: JSON | None = None
    format: JSON | None = None
    strict: bool | None = None


class _Tool(msgspec.Struct, gc=False):
    type: str = "function"
    function: _Offer | None = None
    custom: _Offer | None = None


class _Body(msgspec.Struct, gc=False):
    model: str | None = None
    messages: list[_Message] | None = None
    # the tools come again with every request, byte for byte: each offer is read once
    tools: msgspec.Raw = msgspec.Raw()
    stream: bool | None = None


class _Outline(msgspec.Struct, gc=False):
    messages: msgspec.Raw = msgspec.Raw(b"[]")


class _Read(msgspec.Struct, frozen=True):
    """What was read from the messages so far: the system, the rest, and who is called what."""

    system: tuple[str, ...]
    history: History
    names: dict[str, str]


class _Embedding(msgspec.Struct, gc=False):
    model: str = ""
    input: str | list[str | int | list[int]] = ""
    encoding_format: str = "float"
    dimensions: int | None = None


class _Cached(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _Reasoned(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Cached | None = None
    completion_tokens_details: _Reasoned | None = None


class _Choice(msgspec.Struct, gc=False):
    message: _Message = msgspec.field(default_factory=_Message)
    delta: _Message = msgspec.field(default_factory=_Message)
    finish_reason: str | None = None


class _Completion(msgspec.Struct, gc=False):
    id: str = ""
    model: str = ""
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: JSON | None = None


_Whole = msgspec.defstruct(
    "_Whole", [(name, Any, msgspec.UNSET) for name in OPTIONS], bases=(_Body,), gc=False
)
_options = attrgetter(*OPTIONS)
_body = cast("msgspec.json.Decoder[_Body]", msgspec.json.Decoder(_Whole))
_tools: msgspec.json.Decoder[list[_Tool] | None] = msgspec.json.Decoder(list[_Tool] | None)
_NOTHING = _Read((), History(), {})
_outline = msgspec.json.Decoder(_Outline)
_embedding = msgspec.json.Decoder(_Embedding)
_completion = msgspec.json.Decoder(_Completion)
_encode = msgspec.json.Encoder(enc_hook=repr).encode


class Chat:
    """The dialect of `/v1/chat/completions`."""

    name = NAME

    def __init__(self, refused: frozenset[str] = rules.ALL) -> None:
        self._rules = refused
        self._offer = lru_cache(maxsize=64)(self._read_tools)
        self._memory: Memory[_Read] = Memory(_find_messages)

    def claims(self, wire: Wire) -> bool:
        """Whether this is a completion, an embedding or a question for models."""
        path = wire.path
        if path.endswith(("/chat/completions", "/embeddings")):
            return True
        if path.endswith("/models") or "/models/" in path:
            headers = wire.headers
            return (
                wire.method == "GET"
                and "x-goog-api-key" not in headers
                and "anthropic-version" not in headers
            )
        return False

    def aside(self, wire: Wire, threads: Threads) -> Answer | None:
        """The models, or vectors for texts; None for a completion."""
        del threads
        path = wire.path
        if path.endswith("/chat/completions"):
            return None
        try:
            if path.endswith("/embeddings"):
                return _embed(openai.read_body(_embedding, wire.body))
        except ModelError as error:
            return self.refuse(error)
        if path.endswith("/models"):
            return _answer({"object": "list", "data": [_model(name) for name in MODELS]})
        return _answer(_model(path.rpartition("/models/")[2]))

    # ------------------------------------------------------------------ what the agent sent

    def decode(self, wire: Wire, threads: Threads) -> Request:
        """The neutral request."""
        del threads
        found = self._memory.recall(wire.body)
        if found is not None:
            try:
                return self._decode(wire, found[1], found[0])
            except ModelError:  # read it whole, so that the error names the right place
                pass
        return self._decode(wire, wire.body)

    def _decode(self, wire: Wire, text: bytes, known: Known[_Read] | None = None) -> Request:
        body = openai.read_body(_body, text)
        if "missing_field" in self._rules:
            _require(body, known)
        read = known.state if known else _NOTHING
        if body.messages:
            read = self._read_messages(body.messages, read)
            breach = rules.pair_calls(read.history, self._rules)
            if breach is not None:
                raise _say_breach(breach, len(read.system))
            self._memory.keep(wire.body, text, read, known)
        given = zip(OPTIONS, _options(body), strict=True)
        return Request(
            read.history,
            "\n\n".join(read.system),
            self._offer(bytes(body.tools)) if body.tools else (),
            body.model or "",
            {name: value for name, value in given if value is not msgspec.UNSET},
            introduce(wire, NAME),
            body.stream is True,
        )

    def _read_messages(self, wired: Sequence[_Message], before: _Read) -> _Read:
        system = list(before.system)
        messages: list[Message] = []
        names = dict(before.names)
        begun = len(before.history) > 0
        for at, said in enumerate(wired):
            role = said.role
            if role == "tool":
                id_ = said.tool_call_id or ""
                content = cast("tuple[Content, ...]", _read_content(said.content))
                result = ToolResult(id_, content, name=names.get(id_, ""))
                messages.append(Message("tool", (result,)))
            elif role == "assistant":
                messages.append(Message("assistant", _read_spoken(said, names)))
            elif role == "user":
                messages.append(Message("user", _read_content(said.content)))
            elif role in {"system", "developer"}:
                message = Message("system", _read_content(said.content))
                if messages or begun:
                    messages.append(message)
                else:
                    system.append(message.text)
            elif "unknown_role" in self._rules:
                raise _say_role(role, at)
            else:
                messages.append(Message("user", _read_content(said.content)))
        history = before.history.plus(*messages) if begun else History(messages)
        return _Read(tuple(system), history, names)

    def _read_tools(self, raw: bytes) -> tuple[Tool, ...]:
        wired = openai.read_body(_tools, raw)
        tools = tuple(map(_read_tool, wired or ()))
        breach = rules.find_schema(tools, self._rules)
        if breach is not None:
            given = tools[breach.at].schema.get("type")
            raise rules.reject(
                breach.rule,
                f"Invalid schema for function '{breach.ids[0]}': schema must be a JSON Schema of "
                f"'type: \"object\"', got 'type: {_encode(given).decode()}'.",
                param=f"tools[{breach.at}].function.parameters",
                code="invalid_function_parameters",
            )
        return tools

    # ---------------------------------------------------------------- what the model answers

    def identify(self, reply: Reply, request: Request) -> str:
        """The id of the completion: the reply's own, or one made of what was asked last."""
        if reply.id.startswith("chatcmpl-"):
            return reply.id
        messages = request.messages
        length = len(messages)
        seed = f"{reply.id}\0{request.model}\0{length}\0{reply.step}\0{request.system}"
        return f"chatcmpl-{extend_digest(seed, messages[-1] if length else Message('user'))}"

    def encode(self, reply: Reply, request: Request) -> Answer:
        """The completion, whole or as a stream."""
        id_ = self.identify(reply, request)
        headers = {"content-type": openai.JSON_TYPE, "x-request-id": f"req_{id_[9:]}"}
        if request.stream:
            headers["content-type"] = openai.STREAM_TYPE
            return Answer(200, headers, chunks=tuple(_stream(id_, reply, request)))
        if reply.stop == "error":
            return self.refuse(ModelError(openai.FAILURE, status=500))
        said = _Said(reply)
        body = _COMPLETION % (
            _encode(id_),
            EPOCH,
            _encode(reply.model or request.model),
            _encode(_write_spoken(said, request)),
            said.finish,
            _write_usage(reply.usage),
        )
        return Answer(200, headers, body)

    def refuse(self, error: ModelError, request: Request | None = None) -> Answer:
        """The error, as OpenAI words it."""
        del request
        return openai.refuse(error)

    # ------------------------------------------------------------------- asking for ourselves

    def ask(self, request: Request, base_url: str, key: str) -> Wire:
        """A request to a provider; its base URL ends as the client libraries take it: `…/v1`."""
        body: JSON = {"model": request.model, "messages": _write_messages(request)}
        if request.tools:
            body["tools"] = [_write_tool(tool) for tool in request.tools]
        body.update(request.parameters)
        if request.stream:
            body["stream"] = True  # and with the usage, which would not come else
            body["stream_options"] = {"include_usage": True, **body.get("stream_options", {})}
        headers = {"authorization": f"Bearer {key}", "content-type": openai.JSON_TYPE}
        url = f"{base_url.rstrip('/')}/chat/completions"
        return Wire("POST", url, headers, _encode(body))

    def parse(self, answer: Answer, request: Request) -> Reply:
        """The provider's reply."""
        if answer.status >= 400:  # noqa: PLR2004 - HTTP's own
            raise openai.read_refusal(answer)
        if openai.is_stream(answer):
            return _gather(openai.join_stream(answer), request)
        whole = _read_completion(answer.body)
        choice = whole.choices[0] if whole.choices else _Choice()
        return _read_reply(whole, choice.message, choice.finish_reason, request)


def _find_messages(body: bytes) -> bytes:
    return bytes(_outline.decode(body).messages)


def _require(body: _Body, known: Known[_Read] | None) -> None:
    if not body.model:
        raise rules.reject("missing_field", "you must provide a model parameter", param="model")
    if body.messages is None:
        raise rules.reject(
            "missing_field",
            "Missing required parameter: 'messages'.",
            param="messages",
            code="missing_required_parameter",
        )
    if not body.messages and known is None:
        raise rules.reject(
            "missing_field",
            "Invalid 'messages': empty array. Expected an array with minimum length 1, "
            "but got an empty array instead.",
            param="messages",
            code="empty_array",
        )


def _say_breach(breach: rules.Breach, before: int) -> ModelError:
    at = breach.at + before
    where = f"messages.[{at}].role"
    if breach.rule == "missing_result":
        return rules.reject(
            breach.rule,
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            + ", ".join(breach.ids),
            param=where,
        )
    if breach.rule == "orphan_result":
        return rules.reject(
            breach.rule,
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding "
            "message with 'tool_calls'.",
            param=where,
        )
    return rules.reject(
        breach.rule,
        f"Duplicate value for 'tool_call_id' of '{breach.ids[0]}' in messages[{at}].",
        param=f"messages[{at}]",
        code="invalid_value",
    )


def _say_role(role: str | None, at: int) -> ModelError:
    if role is None:
        return rules.reject(
            "unknown_role",
            f"Missing required parameter: 'messages[{at}].role'.",
            param=f"messages[{at}].role",
            code="missing_required_parameter",
        )
    return rules.reject(
        "unknown_role",
        f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', "
        "'function', 'tool', and 'developer'.",
        param=f"messages[{at}].role",
        code="invalid_value",
    )


def _read_content(content: str | list[_Part] | None) -> tuple[AnyBlock, ...]:
    if isinstance(content, str):
        return (Text(content),) if content else ()
    return tuple(map(_read_part, content)) if content else ()


def _read_part(part: _Part) -> Text | Image:
    if part.image_url is not None:
        return openai.read_image(part.image_url.url)
    if part.text is not None:
        return Text(part.text)
    return Text(part.refusal or f"[{part.type}]")  # what we have no block for, by its name


def _read_spoken(said: _Message, names: dict[str, str]) -> tuple[AnyBlock, ...]:
    """What the model said; the names of the tools that it called are noted down."""
    blocks: list[AnyBlock] = []
    if said.reasoning_content or said.reasoning:
        blocks.append(Thinking(said.thoughts))
    if said.content:
        blocks += _read_content(said.content)
    if said.refusal:
        blocks.append(Text(said.refusal))
    for wired in said.tool_calls or ():
        call = _read_call(wired)
        names[call.id] = call.name
        blocks.append(call)
    return tuple(blocks)


def _read_call(call: _Call) -> ToolCall:
    function = call.function
    if function is not None:
        name, arguments = function.name or "", read_arguments(function.arguments or "")
        return ToolCall(call.id or "", name, arguments)
    custom = call.custom or _Custom()
    return ToolCall(call.id or "", custom.name or "", read_input(custom.input or ""), custom=True)


def _read_tool(tool: _Tool) -> Tool:
    if tool.custom is not None:
        offer = tool.custom
        return Tool(offer.name, offer.description or "", offer.format or {}, kind="custom")
    offer = tool.function or _Offer()
    return Tool(
        offer.name,
        offer.description or "",
        offer.parameters or {},
        kind=tool.type,
        strict=offer.strict is True,
    )


def _write_messages(request: Request) -> list[JSON]:
    wired: list[JSON] = []
    if request.system:
        wired.append({"role": "system", "content": request.system})
    for message in request.messages:
        if message.role == "tool":
            wired += (
                {
                    "role": "tool",
                    "tool_call_id": result.call_id,
                    "content": _write_content(result.content),
                }
                for result in message.results
            )
        elif message.role == "assistant":
            wired.append(_write_assistant(message))
        else:
            wired.append({"role": message.role, "content": _write_content(message.blocks)})
    return wired


def _write_assistant(message: Message) -> JSON:
    texts = tuple(block for block in message.blocks if isinstance(block, Text))
    wired: JSON = {"role": "assistant", "content": _write_content(texts) if texts else None}
    thoughts = _join_thoughts(message.blocks)
    if thoughts:
        wired["reasoning_content"] = thoughts
    if message.calls:
        wired["tool_calls"] = [_write_call(call, custom=call.custom) for call in message.calls]
    return wired


def _write_content(blocks: Sequence[AnyBlock]) -> str | list[JSON]:
    if not blocks:
        return ""
    if len(blocks) == 1 and isinstance(blocks[0], Text):
        return blocks[0].text
    return [_write_part(block) for block in blocks]


def _write_part(block: AnyBlock) -> JSON:
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case Image():
            return {"type": "image_url", "image_url": {"url": openai.write_image(block)}}
        case _:
            raise _cannot_say(block)


def _cannot_say(block: AnyBlock) -> UsageError:
    return UsageError(
        f"{NAME} has no words for a {type(block).__name__} here",
        hint="it carries texts, images from the user, thoughts, tool calls and their results",
    )


def _write_call(call: ToolCall, *, custom: bool) -> JSON:
    if custom:
        said = {"name": call.name, "input": write_input(call.arguments)}
        return {"id": call.id, "type": "custom", "custom": said}
    said = {"name": call.name, "arguments": write_arguments(call.arguments)}
    return {"id": call.id, "type": "function", "function": said}


def _write_tool(tool: Tool) -> JSON:
    if tool.kind == "custom":
        offer: JSON = {"name": tool.name, "description": tool.description}
        if tool.schema:
            offer["format"] = tool.schema
        return {"type": "custom", "custom": offer}
    offer = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    if tool.strict:
        offer["strict"] = True
    return {"type": tool.kind, "function": offer}


def _join_thoughts(blocks: Sequence[AnyBlock]) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, Thinking))


class _Said:
    """A reply in the order of the wire: its thoughts, its text, its calls, why it ended."""

    __slots__ = ("calls", "finish", "refused", "text", "thoughts")

    def __init__(self, reply: Reply) -> None:
        thoughts: list[str] = []
        texts: list[str] = []
        self.calls: list[ToolCall] = []
        for block in reply.blocks:
            if isinstance(block, Text):
                texts.append(block.text)
            elif isinstance(block, ToolCall):
                self.calls.append(block)
            elif isinstance(block, Thinking):
                thoughts.append(block.text)
            else:
                raise _cannot_say(block)
        self.thoughts = "\n".join(thoughts)
        self.text = "\n".join(texts)
        self.refused = reply.stop == "refusal" and bool(self.text)
        self.finish = FINISH[reply.stop]
        if self.calls and reply.stop == "stop":
            self.finish = b"tool_calls"
        elif reply.stop == "refusal" and not self.text:
            self.finish = b"content_filter"


def _is_custom(call: ToolCall, request: Request) -> bool:
    return call.custom or any(
        tool.kind == "custom" and tool.name == call.name for tool in request.tools
    )


def _write_spoken(said: _Said, request: Request) -> JSON:
    text, calls = said.text, said.calls
    message: JSON = {
        "role": "assistant",
        "content": None if said.refused or (calls and not text) else text,
        "refusal": text if said.refused else None,
        "annotations": [],
    }
    if said.thoughts:
        message["reasoning_content"] = said.thoughts
    if calls:
        message["tool_calls"] = [_write_call(c, custom=_is_custom(c, request)) for c in calls]
    return message


def _write_usage(usage: Usage) -> bytes:
    total = usage.input + usage.output
    return _USAGE % (usage.input, usage.output, total, usage.cache_read, usage.reasoning)


# The parts of every answer that never change are bytes already: most of an answer is such parts.
_COMPLETION = (
    b'{"id":%b,"object":"chat.completion","created":%d,"model":%b,"choices":[{"index":0,'
    b'"message":%b,"logprobs":null,"finish_reason":"%b"}],"usage":%b,"service_tier":"default",'
    b'"system_fingerprint":"fp_offbook"}'
)
_CHUNK = (
    b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,'
    b'"service_tier":"default","system_fingerprint":"fp_offbook","choices":['
)
_USAGE = (
    b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,'
    b'"prompt_tokens_details":{"cached_tokens":%d,"audio_tokens":0},'
    b'"completion_tokens_details":{"reasoning_tokens":%d,"audio_tokens":0,'
    b'"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}'
)


def _stream(id_: str, reply: Reply, request: Request) -> list[bytes]:
    """The events of a reply."""
    options = request.parameters.get("stream_options")
    counted = isinstance(options, dict) and bool(cast("JSON", options).get("include_usage"))
    said = _Said(reply)
    start = _CHUNK % (_encode(id_), EPOCH, _encode(reply.model or request.model))
    head = start + b'{"index":0,"delta":'
    end = b',"usage":null}\n\n' if counted else b"}\n\n"
    tail = b',"logprobs":null,"finish_reason":null}]' + end
    events = [head + _encode(_open(said, request)) + tail]
    for field, pieces in _runs(said, reply, request):
        before, after = head + field[0], field[1] + tail
        events += [before + _encode(piece) + after for piece in pieces]
    if reply.stop == "error":
        error = openai.describe_error(ModelError(openai.FAILURE, status=500))
        return [*events, sse.frame(_encode({"error": error}))]
    events.append(head + b'{},"logprobs":null,"finish_reason":"' + said.finish + b'"}]' + end)
    if counted:
        events.append(start + b'],"usage":' + _write_usage(reply.usage) + b"}\n\n")
    events.append(b"data: [DONE]\n\n")
    return events


def _open(said: _Said, request: Request) -> JSON:
    """The first delta: the role, and the first call with it where nothing comes before that."""
    first: JSON = {"role": "assistant", "content": None if said.refused else "", "refusal": None}
    if _calls_first(said):
        first["content"] = None
        first["tool_calls"] = [_open_call(said.calls[0], 0, request)]
    return first


def _calls_first(said: _Said) -> bool:
    return bool(said.calls) and not said.text and not said.thoughts


def _runs(
    said: _Said, reply: Reply, request: Request
) -> Iterator[tuple[tuple[bytes, bytes], Sequence[object]]]:
    """Runs of deltas that differ in one value: what stands before and after it, and the values."""
    if said.thoughts:
        yield (b'{"reasoning_content":', b"}"), cut_words(said.thoughts)
    if said.text:
        field = b'{"refusal":' if said.refused else b'{"content":'
        yield (field, b"}"), cut_reply(reply, said.text)
    for index, call in enumerate(said.calls):
        if index or not _calls_first(said):
            yield (b'{"tool_calls":[', b"]}"), [_open_call(call, index, request)]
        custom = _is_custom(call, request)
        inside = b'"custom":{"input":' if custom else b'"function":{"arguments":'
        written = write_input(call.arguments) if custom else write_arguments(call.arguments)
        head = b'{"tool_calls":[{"index":%d,%b' % (index, inside)
        yield (head, b"}}]}"), cut_runs(written)


def _open_call(call: ToolCall, index: int, request: Request) -> JSON:
    opened = _write_call(call, custom=_is_custom(call, request))
    kind = opened["type"]
    opened[kind] = {"name": call.name, ("input" if kind == "custom" else "arguments"): ""}
    return {"index": index, **opened}


def _read_completion(data: bytes | str) -> _Completion:
    try:
        return _completion.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"the provider's answer cannot be read: {error}", status=502) from error


def _read_reply(whole: _Completion, said: _Message, finish: str | None, request: Request) -> Reply:
    blocks = _read_spoken(said, {})
    stop: Stop = "refusal" if said.refusal else STOPS.get(finish or "stop", "stop")
    if stop == "stop" and said.tool_calls:
        stop = "tool_use"
    return Reply(blocks, stop, _read_usage(whole.usage), whole.model or request.model, whole.id)


def _read_usage(usage: _Usage | None) -> Usage:
    if usage is None:
        return Usage()
    cached, reasoned = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        usage.prompt_tokens,
        usage.completion_tokens,
        cache_read=(cached and cached.cached_tokens) or 0,
        reasoning=(reasoned and reasoned.reasoning_tokens) or 0,
    )


def _gather(stream: bytes, request: Request) -> Reply:
    """The reply that a stream brought piece by piece."""
    whole, said = _Completion(), _Message()
    calls: dict[int, _Call] = {}
    pieces: list[str] = []
    thoughts: list[str] = []
    refusal: list[str] = []
    finish = None
    for event in sse.read(stream):
        if event.data == "[DONE]":
            break
        chunk = _read_completion(event.data)
        if chunk.error is not None:
            raise openai.as_error(str(chunk.error.get("message")), chunk.error.get("code"), 500)
        whole.id, whole.model = chunk.id or whole.id, chunk.model or whole.model
        whole.usage = chunk.usage or whole.usage
        for choice in chunk.choices[:1]:
            delta = choice.delta
            finish = choice.finish_reason or finish
            if isinstance(delta.content, str) and delta.content:
                pieces.append(delta.content)
            if delta.refusal:
                refusal.append(delta.refusal)
            thoughts.append(delta.thoughts)
            for piece in delta.tool_calls or ():
                _add_call(calls.setdefault(piece.index, _Call()), piece)
    if finish is None:
        raise ModelError("the stream broke off before its end", status=502)
    said.content, said.refusal = "".join(pieces), "".join(refusal)
    said.reasoning_content = "".join(thoughts)
    said.tool_calls = [calls[index] for index in sorted(calls)]
    reply = _read_reply(whole, said, finish, request)
    return msgspec.structs.replace(reply, chunks=tuple(pieces or refusal))


def _add_call(call: _Call, piece: _Call) -> None:
    call.id = call.id or piece.id
    if piece.function is not None:
        function = call.function = call.function or _Function()
        function.name = function.name or piece.function.name
        function.arguments = (function.arguments or "") + (piece.function.arguments or "")
    if piece.custom is not None:
        custom = call.custom = call.custom or _Custom()
        custom.name = custom.name or piece.custom.name
        custom.input = (custom.input or "") + (piece.custom.input or "")


def _answer(body: JSON) -> Answer:
    data = _encode(body)
    return Answer(200, {"content-type": openai.JSON_TYPE, "x-request-id": "req_offbook"}, data)


def _model(name: str) -> JSON:
    return {"id": name, "object": "model", "created": EPOCH, "owned_by": "offbook"}


def _embed(asked: _Embedding) -> Answer:
    given = asked.input
    texts = cast("list[str | list[int]]", given if _is_many(given) else [given])
    size = asked.dimensions or DIMENSIONS.get(asked.model, 1536)
    if size < 1:
        raise ModelError("Invalid 'dimensions': expected a value >= 1.", status=400)
    tokens = sum(len(text) // 4 + 1 if isinstance(text, str) else len(text) for text in texts)
    packed = asked.encoding_format == "base64"
    vectors = (embed(text, size) for text in texts)
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": b64encode(pack_floats(vector)).decode() if packed else vector,
        }
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return _answer({"object": "list", "data": data, "model": asked.model, "usage": usage})


def _is_many(given: str | list[str | int | list[int]]) -> bool:
    return isinstance(given, list) and not (given and isinstance(given[0], int))
