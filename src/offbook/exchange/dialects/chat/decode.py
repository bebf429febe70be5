"""What an agent sent, in no provider's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from offbook.exchange.arguments import read_arguments, read_input
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.chat import forms
from offbook.exchange.dialects.chat.legacy import read_call, read_result
from offbook.exchange.foreign import Verbatim
from offbook.exchange.history import History
from offbook.exchange.messages import (
    AnyBlock,
    Content,
    Foreign,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from offbook.exchange.request import Tool
from offbook.exchange.threads import Threads

Place = tuple[str | int, ...]
ROLES = "'system', 'assistant', 'user', 'tool', and 'developer'"


def find_messages(body: bytes) -> bytes:
    """The messages of a body, as they stand there."""
    return bytes(forms.outline.decode(body).messages)


def read_messages(
    wired: Sequence[forms.Message],
    before: forms.Read,
    refused: frozenset[str],
    seen: Verbatim,
    threads: Threads,
) -> forms.Read:
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
            messages.append(Message("tool", (read_result(said.name or "", content, names),)))
        elif "unknown_role" in refused:
            raise openai.say_role(role, f"messages[{at}]", ROLES)
        else:
            messages.append(Message("user", _read_user(said, seen, place)))
    history = before.history.plus(*messages) if begun else History(messages)
    return forms.Read(tuple(system), history, names, tooled)


def _read_user(said: forms.Message, seen: Verbatim, place: Place) -> tuple[AnyBlock, ...]:
    blocks = _read_content(said, seen, place)
    return (*blocks, *_read_beside(said)) if said.name else blocks


def _read_beside(said: forms.Message) -> tuple[Foreign, ...]:
    beside = said.beside
    return (Foreign(forms.BESIDE, beside, forms.NAME),) if beside else ()


def _read_content(said: forms.Message, seen: Verbatim, place: Place) -> tuple[AnyBlock, ...]:
    content = said.content
    if isinstance(content, str):
        return (Text(content),) if content else ()
    parts = enumerate(content or ())
    return tuple([_read_part(part, seen, (*place, "content", at)) for at, part in parts])


def _read_part(part: forms.Part, seen: Verbatim, place: Place) -> Text | Image | Foreign:
    if part.image_url is not None:
        return openai.read_image(part.image_url.url)
    if part.text is not None:
        return Text(part.text)
    return Text(part.refusal) if part.refusal else seen.keep(part.type, *place)


def read_spoken(
    said: forms.Message, names: dict[str, str], seen: Verbatim, place: Place, threads: Threads
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
        calls.append(read_call(said.function_call, names, threads))
    for call in calls:
        names[call.id] = call.name
        blocks.append(call)
    return tuple(blocks)


def _read_call(call: forms.Call) -> ToolCall:
    function = call.function
    if function is not None:
        name, arguments = function.name or "", read_arguments(function.arguments or "")
        return ToolCall(call.id or "", name, arguments)
    custom = call.custom or forms.Custom()
    return ToolCall(call.id or "", custom.name or "", read_input(custom.input or ""), custom=True)


def read_tools(raw: bytes) -> tuple[Tool, ...]:
    """The tools that are offered."""
    seen = Verbatim(raw, forms.NAME)
    offered = openai.read_body(forms.tools, raw) or ()
    return tuple([_read_tool(tool, seen, at) for at, tool in enumerate(offered)])


def _read_tool(tool: forms.Tool, seen: Verbatim, at: int) -> Tool:
    if tool.custom is not None:
        offer = tool.custom
        return Tool(offer.name, offer.description or "", offer.format or {}, kind="custom")
    if tool.function is None and tool.type != "function":  # one of the provider's own
        rest = {name: value for name, value in seen.keep("", at).data.items() if name != "type"}
        return Tool(tool.type, schema=rest, kind=tool.type)
    offer = tool.function or forms.Offer()
    return Tool(
        offer.name,
        offer.description or "",
        offer.parameters or {},
        kind=tool.type,
        strict=offer.strict is True,
    )
