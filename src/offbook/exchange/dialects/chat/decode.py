"""What an agent sent, in no provider's words."""

from __future__ import annotations

from offbook.exchange.arguments import read_arguments, read_input
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.chat import forms
from offbook.exchange.messages import AnyBlock, Image, Text, Thinking, ToolCall
from offbook.exchange.request import Tool


def find_messages(body: bytes) -> bytes:
    """The messages of a body, as they stand there."""
    return bytes(forms.outline.decode(body).messages)


def read_content(content: str | list[forms.Part] | None) -> tuple[AnyBlock, ...]:
    """The neutral blocks of some content."""
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
        blocks += read_content(said.content)
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
