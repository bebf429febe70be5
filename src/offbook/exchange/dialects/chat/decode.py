"""What an agent sent, in no provider's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from offbook.exchange.arguments import read_arguments, read_input
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.chat import forms
from offbook.exchange.dialects.chat.refusals import say_outdated
from offbook.exchange.history import History
from offbook.exchange.messages import (
    AnyBlock,
    Content,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from offbook.exchange.request import Tool

ROLES = "'system', 'assistant', 'user', 'tool', and 'developer'"


def find_messages(body: bytes) -> bytes:
    """The messages of a body, as they stand there."""
    return bytes(forms.outline.decode(body).messages)


def read_messages(
    wired: Sequence[forms.Message], before: forms.Read, refused: frozenset[str]
) -> forms.Read:
    """The conversation, behind what was read of it before."""
    system = list(before.system)
    messages: list[Message] = []
    names = dict(before.names)
    begun, tooled = len(before.history) > 0, before.tooled
    for at, said in enumerate(wired):
        role = said.role
        if role == "tool":
            tooled = True
            id_ = said.tool_call_id or ""
            content = cast("tuple[Content, ...]", _read_content(said.content))
            result = ToolResult(id_, content, name=names.get(id_, ""))
            messages.append(Message("tool", (result,)))
        elif role == "assistant":
            messages.append(Message("assistant", read_spoken(said, names)))
        elif role == "user":
            messages.append(Message("user", _read_content(said.content)))
        elif role in {"system", "developer"}:
            message = Message("system", _read_content(said.content))
            if messages or begun:
                messages.append(message)
            else:
                system.append(message.text)
        elif role == "function":
            raise say_outdated(f"messages[{at}].role")
        elif "unknown_role" in refused:
            raise openai.say_role(role, f"messages[{at}]", ROLES)
        else:
            messages.append(Message("user", _read_content(said.content)))
    history = before.history.plus(*messages) if begun else History(messages)
    return forms.Read(tuple(system), history, names, tooled or bool(names))


def _read_content(content: str | list[forms.Part] | None) -> tuple[AnyBlock, ...]:
    if isinstance(content, str):
        return (Text(content),) if content else ()
    return tuple(map(_read_part, content)) if content else ()


def _read_part(part: forms.Part) -> Text | Image:
    if part.image_url is not None:
        return openai.read_image(part.image_url.url)
    if part.text is not None:
        return Text(part.text)
    return Text(part.refusal or f"[{part.type}]")  # what we have no block for, by its name


def read_spoken(said: forms.Message, names: dict[str, str]) -> tuple[AnyBlock, ...]:
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


def _read_call(call: forms.Call) -> ToolCall:
    function = call.function
    if function is not None:
        name, arguments = function.name or "", read_arguments(function.arguments or "")
        return ToolCall(call.id or "", name, arguments)
    custom = call.custom or forms.Custom()
    return ToolCall(call.id or "", custom.name or "", read_input(custom.input or ""), custom=True)


def read_tool(tool: forms.Tool) -> Tool:
    """A tool that is offered."""
    if tool.custom is not None:
        offer = tool.custom
        return Tool(offer.name, offer.description or "", offer.format or {}, kind="custom")
    offer = tool.function or forms.Offer()
    return Tool(
        offer.name,
        offer.description or "",
        offer.parameters or {},
        kind=tool.type,
        strict=offer.strict is True,
    )
