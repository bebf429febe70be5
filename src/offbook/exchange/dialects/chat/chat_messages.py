"""Functions, which came before tools: at most one call in a reply, and no ids.

A call gets the id that it was given in this run, else the number of its place; a result answers
the latest call of its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from offbook.errors import ModelError, UsageError
from offbook.exchange.dialects import openai, validation
from offbook.exchange.dialects.chat import chat_wire
from offbook.exchange.dialects.conversations import ConversationStore
from offbook.exchange.dialects.decoding import RawBody
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
    parse_custom_input,
    render_arguments,
)
from offbook.exchange.model import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.exchange.dialects.conversations import CachedPrefix


# --- Functions, which came before tools: at most one call in a reply, and no ids.

MARK = {"legacy": True}


def read_functions(offers: Iterable[chat_wire.ChatToolSpec]) -> tuple[Tool, ...]:
    """The functions that are offered, as tools."""
    return tuple(
        Tool(offer.name, offer.description or "", offer.parameters or {}, more=MARK)
        for offer in offers
    )


def is_legacy(tools: Iterable[Tool]) -> bool:
    """Whether these were offered as functions."""
    return any(tool.more == MARK for tool in tools)


def read_function_call(
    call: chat_wire.ChatFunctionCall, names: dict[str, str], threads: ConversationStore
) -> ToolCall:
    """A call of a function."""
    name, arguments = call.name or "", parse_arguments(call.arguments or "")
    id_ = threads.find_call(name, arguments, names) or f"function-{len(names) + 1}"
    return ToolCall(id_, name, arguments)


def read_function_result(
    name: str, content: tuple[Content, ...], names: dict[str, str]
) -> ToolResult:
    """What a function answered."""
    id_ = next((id_ for id_ in reversed(names) if names[id_] == name), "")
    return ToolResult(id_, content, name=name)


def write_function_call(calls: Sequence[ToolCall]) -> JSON:
    """The one call of a reply."""
    if len(calls) > 1:
        raise UsageError(
            f"the agent offers functions, and a reply calls {len(calls)} of them at once",
            hint="script one call after the other, or offer them as tools",
        )
    return {"name": calls[0].name, "arguments": render_arguments(calls[0].arguments)}


# --- What an agent sent, in no provider's words.

Place = tuple[str | int, ...]
ROLES = "'system', 'assistant', 'user', 'tool', and 'developer'"


def find_messages(body: bytes) -> bytes:
    """The messages of a body, as they stand there."""
    return bytes(chat_wire.outline.decode(body).messages)


def read_messages(
    wired: Sequence[chat_wire.ChatMessage],
    before: chat_wire.ChatState,
    refused: frozenset[str],
    seen: RawBody,
    threads: ConversationStore,
) -> chat_wire.ChatState:
    """The conversation, behind what was read of it before."""
    system = list(before.system)
    messages: list[Message] = []
    names = dict(before.names)
    begun, tooled = len(before.history) > 0, before.tooled
    for at, said in enumerate(wired):
        role = said.role
        place = ("messages", at)
        if role == "tool":
            tooled = True
            id_ = said.tool_call_id or ""
            content = cast("tuple[Content, ...]", _read_content(said, seen, place))
            result = ToolResult(id_, content, name=names.get(id_, ""))
            messages.append(Message("tool", (result,)))
        elif role == "assistant":
            tooled = tooled or bool(said.tool_calls)
            messages.append(Message("assistant", read_spoken(said, names, seen, place, threads)))
        elif role == "user":
            messages.append(Message("user", _read_user(said, seen, place)))
        elif role in {"system", "developer"}:
            message = Message("system", _read_content(said, seen, place))
            if messages or begun:
                messages.append(message)
            else:
                system.append(message.text)
        elif role == "function":
            content = cast("tuple[Content, ...]", _read_content(said, seen, place))
            messages.append(
                Message("tool", (read_function_result(said.name or "", content, names),))
            )
        elif "unknown_role" in refused:
            raise openai.say_role(role, f"messages[{at}]", ROLES)
        else:
            messages.append(Message("user", _read_user(said, seen, place)))
    history = before.history.plus(*messages) if begun else History(messages)
    return chat_wire.ChatState(tuple(system), history, names, tooled)


def _read_user(said: chat_wire.ChatMessage, seen: RawBody, place: Place) -> tuple[AnyBlock, ...]:
    blocks = _read_content(said, seen, place)
    return (*blocks, *_read_beside(said)) if said.name else blocks


def _read_beside(said: chat_wire.ChatMessage) -> tuple[RawBlock, ...]:
    beside = said.beside
    return (RawBlock(chat_wire.BESIDE, beside, chat_wire.NAME),) if beside else ()


def _read_content(said: chat_wire.ChatMessage, seen: RawBody, place: Place) -> tuple[AnyBlock, ...]:
    content = said.content
    if isinstance(content, str):
        return (Text(content),) if content else ()
    parts = enumerate(content or ())
    return tuple([_read_part(part, seen, (*place, "content", at)) for at, part in parts])


def _read_part(part: chat_wire.ChatPart, seen: RawBody, place: Place) -> Text | Image | RawBlock:
    if part.image_url is not None:
        return openai.read_image(part.image_url.url)
    if part.text is not None:
        return Text(part.text)
    return Text(part.refusal) if part.refusal else seen.keep(part.type, *place)


def read_spoken(
    said: chat_wire.ChatMessage,
    names: dict[str, str],
    seen: RawBody,
    place: Place,
    threads: ConversationStore,
) -> tuple[AnyBlock, ...]:
    """What the model said; the names of the tools that it called are noted down."""
    blocks: list[AnyBlock] = []
    if said.reasoning_content or said.reasoning:
        blocks.append(Thinking(said.thoughts))
    if said.content:
        blocks += _read_content(said, seen, place)
    if said.refusal:
        blocks.append(Text(said.refusal))
    blocks += _read_beside(said)
    calls = [_read_call(wired) for wired in said.tool_calls or ()]
    if said.function_call is not None:
        calls.append(read_function_call(said.function_call, names, threads))
    for call in calls:
        names[call.id] = call.name
        blocks.append(call)
    return tuple(blocks)


def _read_call(call: chat_wire.ChatToolCall) -> ToolCall:
    function = call.function
    if function is not None:
        name, arguments = function.name or "", parse_arguments(function.arguments or "")
        return ToolCall(call.id or "", name, arguments)
    custom = call.custom or chat_wire.ChatCustomCall()
    return ToolCall(
        call.id or "", custom.name or "", parse_custom_input(custom.input or ""), custom=True
    )


def read_tools(raw: bytes) -> tuple[Tool, ...]:
    """The tools that are offered."""
    seen = RawBody(raw, chat_wire.NAME)
    offered = openai.read_body(chat_wire.tools, raw) or ()
    return tuple([_read_tool(tool, seen, at) for at, tool in enumerate(offered)])


def _read_tool(tool: chat_wire.ChatTool, seen: RawBody, at: int) -> Tool:
    if tool.custom is not None:
        offer = tool.custom
        return Tool(offer.name, offer.description or "", offer.format or {}, kind="custom")
    if tool.function is None and tool.type != "function":  # one of the provider's own
        rest = {name: value for name, value in seen.keep("", at).data.items() if name != "type"}
        return Tool(tool.type, schema=rest, kind=tool.type)
    offer = tool.function or chat_wire.ChatToolSpec()
    return Tool(
        offer.name,
        offer.description or "",
        offer.parameters or {},
        kind=tool.type,
        strict=offer.strict is True,
    )


# --- What OpenAI would refuse of a chat completion, in its words.


def require(body: chat_wire.ChatBody, known: CachedPrefix[chat_wire.ChatState] | None) -> None:
    """Refuse a body that lacks what it must have."""
    if not body.model:
        raise validation.rejection(
            "missing_field", "you must provide a model parameter", param="model"
        )
    if body.messages is None:
        raise validation.rejection(
            "missing_field",
            "Missing required parameter: 'messages'.",
            param="messages",
            code="missing_required_parameter",
        )
    if not body.messages and known is None:
        raise validation.rejection(
            "missing_field",
            "Invalid 'messages': empty array. Expected an array with minimum length 1, "
            "but got an empty array instead.",
            param="messages",
            code="empty_array",
        )


def say_breach(breach: validation.Violation, before: int) -> ModelError:
    """The refusal of calls and results that do not belong together."""
    at = breach.at + before
    where = f"messages.[{at}].role"
    if breach.rule == "missing_result":
        return validation.rejection(
            breach.rule,
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            + ", ".join(breach.ids),
            param=where,
        )
    if breach.rule == "orphan_result":
        return validation.rejection(
            breach.rule,
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding "
            "message with 'tool_calls'.",
            param=where,
        )
    return validation.rejection(
        breach.rule,
        f"Duplicate value for 'tool_call_id' of '{breach.ids[0]}' in messages[{at}].",
        param=f"messages[{at}]",
        code="invalid_value",
    )
