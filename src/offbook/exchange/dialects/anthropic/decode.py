"""What an agent sent, block by block, in no provider's words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects.dialect import Wire, introduce
from offbook.exchange.messages import JSON, AnyBlock, Content, Image, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable

from offbook.exchange.dialects.anthropic import forms
from offbook.exchange.dialects.anthropic.seals import unseal_thought


def find_messages(body: bytes) -> bytes:
    """The messages of a body, as they stand there."""
    return bytes(forms.outline(body).messages)


def read_body(body: bytes) -> forms.Body:
    """The body; Anthropic's refusal of what it cannot read."""
    try:
        return forms.body(body)
    except msgspec.ValidationError as error:
        raise ModelError(complain(error), status=400) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = f"The request body is not valid JSON: {error}"
        raise ModelError(what, status=400) from error


def complain(error: msgspec.ValidationError) -> str:
    """What is wrong with a field, and where, as the provider says it."""
    text, _, path = str(error).partition(" - at `$")
    place = path.rstrip("`").replace("[", ".").replace("]", "").lstrip(".")
    missing = re.fullmatch(r"Object missing required field `(.+)`", text)
    if missing:
        return f"{place}.{missing[1]}: Field required".lstrip(".")
    return f"{place}: {text}" if place else text


def introduce_asker(wire: Wire) -> JSON:
    """What is known about the asker, and the betas it asked for."""
    about = introduce(wire, forms.NAME)
    beta = wire.headers.get("anthropic-beta")
    if beta:
        about["anthropic-beta"] = beta
    return about


def read_system(system: str | list[forms.Part] | None) -> str:
    """The system prompt as one text."""
    if system is None or isinstance(system, str):
        return system or ""
    return "\n".join(part.text for part in system)


def read_blocks(content: str | list[forms.Part]) -> list[AnyBlock]:
    """The neutral blocks of some content."""
    if isinstance(content, str):
        return [Text(content)]
    return [block for part in content if (block := read_block(part)) is not None]


def read_block(part: forms.Part) -> AnyBlock | None:
    """The neutral block; documents and what server tools do have none."""
    kind = part.type
    if kind == "text":
        return Text(part.text)
    if kind == "tool_use":
        return ToolCall(part.id, part.name, part.input or {})
    if kind == "image":
        return _read_image(part.source)
    if kind == "thinking":
        signature = part.signature or ""
        return unseal_thought(part.thinking, signature) or Thinking(part.thinking, signature)
    return Thinking("", part.data, redacted=True) if kind == "redacted_thinking" else None


def _read_image(source: forms.Picture | str | None) -> Image:
    if isinstance(source, forms.Picture):
        return Image(source.data, source.media_type, source.url)
    return Image()


def read_content(content: str | list[forms.Part] | forms.Part | None) -> tuple[Content, ...]:
    """What a tool answered; tools that it found for later use are told by their names."""
    if isinstance(content, str):
        return (Text(content),) if content else ()
    found: list[Content] = []
    for part in content if isinstance(content, list) else ():
        match part.type:
            case "text":
                found.append(Text(part.text))
            case "image":
                found.append(_read_image(part.source))
            case "tool_reference":
                found.append(Text(part.tool_name))
            case _:
                pass
    return tuple(found)


def find_thoughts(blocks: Iterable[AnyBlock]) -> tuple[Thinking, ...]:
    """The thoughts among these blocks."""
    return tuple(block for block in blocks if isinstance(block, Thinking))
