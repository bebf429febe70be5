"""Decoding of chat messages and tools, and their validation.

Functions, the predecessor of tools, are decoded as tools: at most one call per reply and no ids.
A function call gets the id that it was given in this run, else a number; a function result belongs
to the latest call with its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from offbook.exchange.dialects import openai
from offbook.exchange.dialects.chat import chat_wire as wire
from offbook.exchange.dialects.decoding import JsonPath, RawBody
from offbook.exchange.dialects.validation import Violation, rejection
from offbook.exchange.messages import (
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
    parse_custom_input,
)
from offbook.exchange.model import Tool

if TYPE_CHECKING:
    from offbook.errors import ModelError
    from offbook.exchange.dialects.conversations import ConversationStore

ROLES = "'system', 'assistant', 'user', 'tool', and 'developer'"
FUNCTION_MARK = {"legacy": True}  # in `Tool.more` of a tool that was offered as a function


# ---------------------------------------------------------------------------- messages


def decode_messages(
    messages: Sequence[wire.ChatMessage],
    before: wire.ChatState,
    rules: frozenset[str],
    raw: RawBody,
    conversations: ConversationStore,
) -> wire.ChatState:
    """Decode the messages that follow on the state `before`."""
    system = list(before.system)
    decoded: list[Message] = []
    tool_names = dict(before.tool_names)
    is_continuation = len(before.history) > 0
    has_tools, is_cacheable = before.has_tools, before.is_cacheable
    for index, message in enumerate(messages):
        role = message.role
        path = ("messages", index)
        if role == "tool":
            has_tools = True
            call_id = message.tool_call_id or ""
            content = cast("tuple[Content, ...]", _decode_content(message, raw, path))
            result = ToolResult(call_id, content, None, tool_names.get(call_id, ""))
            decoded.append(Message("tool", (result,)))
        elif role == "assistant":
            has_tools = has_tools or bool(message.tool_calls)
            is_cacheable = is_cacheable and message.function_call is None
            blocks = decode_assistant(message, tool_names, raw, path, conversations)
            decoded.append(Message("assistant", blocks))
        elif role in {"system", "developer"}:
            content = Message("system", _decode_content(message, raw, path))
            # At the start they are the system prompt; later ones are messages.
            if decoded or is_continuation:
                decoded.append(content)
            else:
                system.append(content.text)
        elif role == "function":
            content = cast("tuple[Content, ...]", _decode_content(message, raw, path))
            name = message.name or ""
            # The name is the only link between a function result and its call.
            call_id = next((id_ for id_ in reversed(tool_names) if tool_names[id_] == name), "")
            decoded.append(Message("tool", (ToolResult(call_id, content, None, name),)))
        elif role == "user" or "unknown_role" not in rules:
            blocks = _decode_content(message, raw, path)
            if message.name:
                blocks += _extra_fields(message)
            decoded.append(Message("user", blocks))
        else:
            raise openai.unknown_role(role, f"messages[{index}]", ROLES)
    history = before.history.plus(*decoded) if is_continuation else History(decoded)
    return wire.ChatState(tuple(system), history, tool_names, has_tools, is_cacheable)


def decode_assistant(
    message: wire.ChatMessage,
    tool_names: dict[str, str],
    raw: RawBody,
    path: JsonPath,
    conversations: ConversationStore,
) -> tuple[AnyBlock, ...]:
    """Decode a message of the model, and add the names of its calls to `tool_names`."""
    blocks: list[AnyBlock] = []
    # The format has one field per kind of block; this order of the blocks is fixed.
    if message.reasoning_content or message.reasoning:
        blocks.append(Thinking(message.thinking))
    if message.content:
        blocks += _decode_content(message, raw, path)
    if message.refusal:
        blocks.append(Text(message.refusal))
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


def _decode_call(call: wire.ChatToolCall) -> ToolCall:
    function = call.function
    if function is not None:
        arguments = parse_arguments(function.arguments or "")
        return ToolCall(call.id or "", function.name or "", arguments)
    custom = call.custom or wire.ChatCustomCall()
    arguments = parse_custom_input(custom.input or "")
    return ToolCall(call.id or "", custom.name or "", arguments, custom=True)


def _extra_fields(message: wire.ChatMessage) -> tuple[RawBlock, ...]:
    fields = message.extra_fields
    return (RawBlock(wire.EXTRA_FIELDS, fields, wire.NAME),) if fields else ()


def _decode_content(
    message: wire.ChatMessage, raw: RawBody, path: JsonPath
) -> tuple[AnyBlock, ...]:
    content = message.content
    if isinstance(content, str):
        return (Text(content),) if content else ()
    blocks: list[Text | Image | RawBlock] = []
    for index, part in enumerate(content or ()):
        if part.image_url is not None:
            blocks.append(openai.parse_image_url(part.image_url.url))
        elif part.text is not None:
            blocks.append(Text(part.text))
        elif part.refusal:
            blocks.append(Text(part.refusal))
        else:
            # Audio or a file, for example.
            blocks.append(raw.block(part.type, (*path, "content", index)))
    return tuple(blocks)


# ------------------------------------------------------------------------------- tools


def decode_tools(raw_tools: bytes) -> tuple[Tool, ...]:
    """Decode the offered tools."""
    tools: list[Tool] = []
    raw = RawBody(raw_tools, wire.NAME)
    for index, tool in enumerate(openai.decode_body(wire.tools_decoder, raw_tools) or ()):
        if (spec := tool.custom) is not None:
            tools.append(Tool(spec.name, spec.description or "", spec.format or {}, kind="custom"))
        elif tool.function is None and tool.type != "function":  # a tool of the provider
            fields = raw.block("", (index,)).data.items()
            options = {name: value for name, value in fields if name != "type"}
            tools.append(Tool(tool.type, schema=options, kind=tool.type))
        else:
            spec = tool.function or wire.ChatToolSpec()
            description, parameters = spec.description or "", spec.parameters or {}
            strict = spec.strict is True
            tools.append(Tool(spec.name, description, parameters, kind=tool.type, strict=strict))
    return tuple(tools)


def decode_functions(functions: Iterable[wire.ChatToolSpec]) -> tuple[Tool, ...]:
    """Decode the offered functions as tools."""
    return tuple(
        Tool(spec.name, spec.description or "", spec.parameters or {}, more=FUNCTION_MARK)
        for spec in functions
    )


def uses_functions(tools: Iterable[Tool]) -> bool:
    """Return whether the tools were offered as functions."""
    return any(tool.more == FUNCTION_MARK for tool in tools)


# -------------------------------------------------------------------------- validation


def require_fields(body: wire.ChatBody, *, is_continuation: bool) -> None:
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


def pairing_error(violation: Violation, offset: int) -> ModelError:
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
