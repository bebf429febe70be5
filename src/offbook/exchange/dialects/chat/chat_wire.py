"""OpenAI's chat completions on the wire: structs, and decoding and validation of requests.

Functions, the predecessor of tools, are decoded as tools: at most one call per reply and no ids.
A function call gets the id that it was given in this run, else a number; a function result belongs
to the latest call with its name.
"""

# No `from __future__ import annotations`: msgspec would compile the type of each field anew, and
# the first reply of a server would take 2 ms more.

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import UsageError
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.wire import (
    JsonPath,
    RawBody,
    RequestDecoder,
    Violation,
    raw_block_data,
    rejection,
)
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Content,
    History,
    Message,
    RawBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    join_text,
    parse_arguments,
    parse_custom_input,
    render_arguments,
    render_custom_input,
)
from offbook.exchange.model import Tool

if TYPE_CHECKING:
    from offbook.errors import ModelError
    from offbook.exchange.dialects.dialect import ConversationStore

NAME = "openai-chat"
MEDIA_PATHS = (  # the endpoints of `chat_media.py`, which few agents use
    *("/moderations", "/images/generations", "/images/edits"),
    *("/audio/transcriptions", "/audio/translations", "/audio/speech"),
)
# Those of `chat_stores.py`: a search is a model call, the others are answered by what is kept.
STORE_PATH = r"/(files|vector_stores|batches)(?:/([^/]+))?(?:/(.+))?$"
SEARCH_PATH = r"/vector_stores/[^/]+/search$"


# The options that are kept unchanged: OpenAI's own, then those of compatible servers.
OPTIONS = """
    audio frequency_penalty function_call logit_bias logprobs max_completion_tokens max_tokens
    metadata modalities moderation n parallel_tool_calls prediction presence_penalty
    prompt_cache_key prompt_cache_retention reasoning_effort response_format safety_identifier
    seed service_tier stop store stream_options temperature tool_choice top_logprobs top_p user
    verbosity web_search_options
    chat_template_kwargs extra_body guided_json min_p provider reasoning repetition_penalty
    thinking top_k transforms
"""


EXTRA_FIELDS = "beside"
"""The kind of the raw block with the message fields that have no neutral block.

The value is part of recorded traces and cassettes.
"""

_EXTRA_FIELDS = ("name", "annotations", "audio", "images", "reasoning_details", "thinking_blocks")


# `gc=False`: JSON has no reference cycles, so the garbage collector can skip these structs.
class ChatFunctionCall(msgspec.Struct, gc=False):
    """A call of a function."""

    name: str | None = None
    arguments: str | None = None


class ChatCustomCall(msgspec.Struct, gc=False):
    """A call of a custom tool, which takes text."""

    name: str | None = None
    input: str | None = None


class ChatToolCall(msgspec.Struct, gc=False):
    """A tool call, or the part of one in a stream chunk."""

    id: str | None = None
    index: int | None = None
    function: ChatFunctionCall | None = None
    custom: ChatCustomCall | None = None


class ChatPart(msgspec.Struct, gc=False):
    """A content part of any type."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    image_url: openai.OpenAIImageUrl | None = None


class ChatMessage(msgspec.Struct, gc=False):
    """A message of a request or response, or the delta of one in a stream chunk."""

    role: str | None = None
    content: str | list[ChatPart] | None = None
    tool_calls: list[ChatToolCall] | None = None
    function_call: ChatFunctionCall | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    # Fields without a neutral block, kept unchanged.
    name: Any = None
    annotations: Any = None
    audio: Any = None
    images: Any = None
    reasoning_details: Any = None
    thinking_blocks: Any = None

    @property
    def extra_fields(self) -> JSON:
        """The fields without a neutral block."""
        if not (self.name or self.annotations or self.audio or self.images) and not (
            self.reasoning_details or self.thinking_blocks
        ):  # the usual case
            return {}
        fields = ((name, getattr(self, name)) for name in _EXTRA_FIELDS)
        return {name: value for name, value in fields if value}

    @property
    def thinking(self) -> str:
        """The reasoning, under the name that DeepSeek uses or the one of OpenRouter."""
        return self.reasoning_content or (self.reasoning if isinstance(self.reasoning, str) else "")


class ChatToolSpec(msgspec.Struct, gc=False):
    """The name and parameters of an offered tool."""

    name: str = ""
    description: str | None = None
    parameters: JSON | None = None
    format: JSON | None = None
    strict: bool | None = None


class ChatTool(msgspec.Struct, gc=False):
    """An offered tool."""

    type: str = "function"
    function: ChatToolSpec | None = None
    custom: ChatToolSpec | None = None


class ChatBody(msgspec.Struct, gc=False):
    """A request body; `modalities` is an option that is validated."""

    model: str | None = None
    messages: list[ChatMessage] | None = None
    # Agents send the same tools with every request: as raw bytes they are the key of a cache.
    tools: msgspec.Raw = msgspec.Raw()
    stream: bool | None = None
    functions: list[ChatToolSpec] | None = None
    modalities: list[Any] | msgspec.UnsetType | None = msgspec.UNSET


class ChatState(msgspec.Struct, frozen=True):
    """The decoded messages of a conversation, as the prefix cache keeps them.

    `tool_names` has the tool name of every call by its id; `has_tools` is whether there are calls
    or results to be paired. A conversation with function calls is not cacheable: their ids belong
    to one run.
    """

    system: tuple[str, ...] = ()
    history: History = msgspec.field(default_factory=History)
    tool_names: dict[str, str] = {}
    has_tools: bool = False
    is_cacheable: bool = True


EMPTY_STATE = ChatState()  # shared: a history is immutable


def shorten_state(state: ChatState, count: int) -> tuple[ChatState, int]:
    """Return the state after at most this number of messages of a body, and their number.

    They end where every call has its result.
    """
    history, skipped = state.history, len(state.system)  # the system prompt is before the history
    length = count - skipped
    while length > 0 and (history[length - 1].role == "tool" or history[length - 1].calls):
        length -= 1
    if length <= 0:
        return EMPTY_STATE, 0
    first = history.first(length)
    blocks = [b for message in first if message.role == "assistant" for b in message.blocks]
    names = {block.id: block.name for block in blocks if isinstance(block, ToolCall)}
    shorter = msgspec.structs.replace(state, history=first, tool_names=names)
    return shorter, length + skipped


body_decoder = RequestDecoder(ChatBody, OPTIONS)
messages_decoder = msgspec.json.Decoder(list[ChatMessage])
tools_decoder: msgspec.json.Decoder[list[ChatTool] | None] = msgspec.json.Decoder(
    list[ChatTool] | None
)


# ----------------------------------------------------------------------------- messages

ROLES = "'system', 'assistant', 'user', 'tool', and 'developer'"
FUNCTION_MARK = {"legacy": True}  # in `Tool.more` of a tool that was offered as a function


def decode_messages(
    messages: Sequence[ChatMessage],
    before: ChatState,
    rules: frozenset[str],
    raw: RawBody,
    conversations: "ConversationStore",
) -> ChatState:
    """Decode the messages that follow on the state `before`."""
    system = list(before.system)
    decoded: list[Message] = []
    tool_names = dict(before.tool_names)
    is_continuation = before is not EMPTY_STATE and len(before.history) > 0
    has_tools, is_cacheable = before.has_tools, before.is_cacheable
    for index, message in enumerate(messages):
        role = message.role
        path = (*raw.messages, index)
        if role == "assistant":
            has_tools = has_tools or bool(message.tool_calls)
            is_cacheable = is_cacheable and message.function_call is None
            blocks = decode_assistant(message, tool_names, raw, path, conversations)
            decoded.append(Message("assistant", blocks))
            continue
        content = _decode_content(message.content, raw, path)
        if role == "tool":
            has_tools = True
            call_id = message.tool_call_id or ""
            name = message.name or ""  # clients also write the name of an agent here
            if not name or name not in tool_names.values():
                name = tool_names.get(call_id, "")
            result = ToolResult(call_id, content, None, name)
            decoded.append(Message("tool", (result,)))
        elif role in {"system", "developer"}:
            # At the start they are the system prompt; later ones are messages.
            if decoded or is_continuation:
                decoded.append(Message("system", content))
            else:
                system.append(join_text(content))
        elif role == "function":
            name = message.name or ""
            call_id = _find_function(name, tool_names)
            decoded.append(Message("tool", (ToolResult(call_id, content, None, name),)))
        elif role == "user" or "unknown_role" not in rules:
            named = _extra_fields(message) if message.name else ()
            decoded.append(Message("user", content + named))
        else:
            raise openai.unknown_role(role, f"messages[{index}]", ROLES)
    history = before.history.plus(*decoded) if is_continuation else History.of(decoded)
    return ChatState(tuple(system), history, tool_names, has_tools, is_cacheable)


def _find_function(name: str, tool_names: dict[str, str]) -> str:
    """Return the id of the latest call: its name is the only link between it and its result."""
    return next((id_ for id_ in reversed(tool_names) if tool_names[id_] == name), "")


def decode_assistant(
    message: ChatMessage,
    tool_names: dict[str, str],
    raw: RawBody,
    path: JsonPath,
    conversations: "ConversationStore",
) -> tuple[AnyBlock, ...]:
    """Decode a message of the model, and add the names of its calls to `tool_names`."""
    blocks: list[AnyBlock] = []
    # The format has one field per kind of block; this order of the blocks is fixed.
    if message.reasoning_content or message.reasoning:
        blocks.append(Thinking(message.thinking))
    if message.content:
        blocks += _decode_content(message.content, raw, path)
    if message.refusal:
        blocks.append(Text(message.refusal))
    if message.audio:
        from offbook.exchange.dialects.chat.chat_choices import find_transcript

        if transcript := find_transcript(message.audio):
            blocks.append(Text(transcript))
            message.audio = None
    blocks += _extra_fields(message)
    calls = [_decode_call(call) for call in message.tool_calls or ()]
    if (function := message.function_call) is not None:
        name, arguments = function.name or "", parse_arguments(function.arguments or "")
        found = conversations.find_call_id(name, arguments, tool_names)
        calls.append(ToolCall(found or f"function-{len(tool_names) + 1}", name, arguments))
    for call in calls:
        tool_names[call.id] = call.name
        blocks.append(call)
    return tuple(blocks)


def _decode_call(call: ChatToolCall) -> ToolCall:
    function = call.function
    if function is not None:
        arguments = parse_arguments(function.arguments or "")
        return ToolCall(call.id or "", function.name or "", arguments)
    custom = call.custom or ChatCustomCall()
    arguments = parse_custom_input(custom.input or "")
    return ToolCall(call.id or "", custom.name or "", arguments, custom=True)


def _extra_fields(message: ChatMessage) -> tuple[RawBlock, ...]:
    fields = message.extra_fields
    return (RawBlock(EXTRA_FIELDS, fields, NAME),) if fields else ()


def _decode_content(
    content: str | list[ChatPart] | None, raw: RawBody, path: JsonPath
) -> tuple[Content, ...]:
    if isinstance(content, str):
        return (Text(content),) if content else ()
    blocks: list[Content] = []
    for index, part in enumerate(content or ()):
        if part.image_url is not None:
            blocks.append(openai.parse_image_url(part.image_url.url))
        elif part.text is not None:
            blocks.append(Text(part.text))
        elif part.refusal:
            blocks.append(Text(part.refusal))
        else:
            # Audio or a file, for example.
            block = raw.block(part.type, (*path, "content", index))
            if part.type == "input_audio":
                from offbook.exchange.dialects.chat.chat_choices import read_audio

                block = read_audio(block)
            blocks.append(block)
    return tuple(blocks)


# ------------------------------------------------------------------------------- tools


def decode_tools(raw_tools: bytes) -> tuple[Tool, ...]:
    """Decode the offered tools."""
    tools: list[Tool] = []
    raw = RawBody(raw_tools, NAME)
    for index, tool in enumerate(openai.decode_body(tools_decoder, raw_tools) or ()):
        if (spec := tool.custom) is not None:
            tools.append(Tool(spec.name, spec.description or "", spec.format or {}, kind="custom"))
        elif tool.function is None and tool.type != "function":  # a tool of the provider
            fields = raw.block("", (index,)).data.items()
            options = {name: value for name, value in fields if name != "type"}
            tools.append(Tool(tool.type, schema=options, kind=tool.type))
        else:
            spec = tool.function or ChatToolSpec()
            description, parameters = spec.description or "", spec.parameters or {}
            strict = spec.strict is True
            tools.append(Tool(spec.name, description, parameters, kind=tool.type, strict=strict))
    return tuple(tools)


def decode_functions(functions: Iterable[ChatToolSpec]) -> tuple[Tool, ...]:
    """Decode the offered functions as tools."""
    return tuple(
        Tool(spec.name, spec.description or "", spec.parameters or {}, more=FUNCTION_MARK)
        for spec in functions
    )


def uses_functions(tools: Iterable[Tool]) -> bool:
    """Return whether the tools were offered as functions."""
    return any(tool.more == FUNCTION_MARK for tool in tools)


# -------------------------------------------------------------------------- validation


def require_fields(body: ChatBody, *, is_continuation: bool) -> None:
    """Raise OpenAI's error if a required field is missing."""
    if not body.model:
        raise rejection("missing_field", "you must provide a model parameter", param="model")
    if body.messages is None:
        raise openai.missing_parameter("messages")
    if not body.messages and not is_continuation:
        raise rejection(
            "missing_field",
            "Invalid 'messages': empty array. Expected an array with minimum length 1, "
            "but got an empty array instead.",
            param="messages",
            code="empty_array",
        )


def pairing_error(violation: Violation, offset: int) -> "ModelError":
    """Return OpenAI's error for calls and results that do not match.

    `offset` is the number of messages before the first of the history: the system messages.
    """
    index = violation.index + offset
    if violation.rule == "missing_result":
        return rejection(
            violation.rule,
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            + ", ".join(violation.ids),
            param=f"messages.[{index}].role",
        )
    if violation.rule == "orphan_result":
        return rejection(
            violation.rule,
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding "
            "message with 'tool_calls'.",
            param=f"messages.[{index}].role",
        )
    return rejection(
        violation.rule,
        f"Duplicate value for 'tool_call_id' of '{violation.ids[0]}' in messages[{index}].",
        param=f"messages[{index}]",
        code="invalid_value",
    )


def encode_call(call: ToolCall, *, custom: bool) -> JSON:
    """Encode a tool call of an assistant message."""
    if custom:
        fields = {"name": call.name, "input": render_custom_input(call.arguments)}
        return {"id": call.id, "type": "custom", "custom": fields}
    fields = {"name": call.name, "arguments": render_arguments(call.arguments)}
    return {"id": call.id, "type": "function", "function": fields}


def encode_function_call(calls: Sequence[ToolCall]) -> JSON:
    """Encode the call of a reply to an agent that offers functions."""
    if len(calls) > 1:
        raise UsageError(
            f"the agent offers functions, which allow one call per reply, got {len(calls)} calls",
            hint="script one call after the other, or offer tools",
        )
    return {"name": calls[0].name, "arguments": render_arguments(calls[0].arguments)}


def split_extra_fields(blocks: Sequence[AnyBlock]) -> tuple[Sequence[AnyBlock], JSON]:
    """Return the blocks of the content, and the other fields of their message."""
    for block in blocks:
        if isinstance(block, RawBlock) and block.kind == EXTRA_FIELDS:
            rest = tuple(other for other in blocks if other is not block)
            return rest, raw_block_data(block, NAME)
    return blocks, {}
