"""What an agent sent, block by block, in no provider's words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects.dialect import Wire, introduce
from offbook.exchange.foreign import Verbatim
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Content,
    Foreign,
    Image,
    Text,
    Thinking,
    ToolCall,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

from offbook.exchange.dialects.anthropic import forms
from offbook.exchange.dialects.anthropic.seals import unseal_thought

Place = tuple[str | int, ...]
VERTEX = (":rawPredict", ":streamRawPredict")
"""How a request ends that goes to Anthropic by way of Google's cloud."""

COUNTING = "count-tokens"


def find_messages(body: bytes) -> bytes:
    """The messages of a body, as they stand there."""
    return bytes(forms.outline(body).messages)


def find_model(path: str) -> str:
    """The model that Google's addresses name: `…/models/MODEL:rawPredict`."""
    before, found, verb = path.rpartition(":")
    model = before.rpartition("/")[2]
    return unquote(model) if found and f":{verb}" in VERTEX and model != COUNTING else ""


def read_body(body: bytes) -> tuple[forms.Body, JSON]:
    """The body, and what is beside it; Anthropic's refusal of what it cannot read."""
    try:
        return forms.body(body)
    except msgspec.ValidationError as error:
        raise ModelError(complain(error), status=400) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
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


def read_blocks(content: str | list[forms.Part], seen: Verbatim, place: Place) -> list[AnyBlock]:
    """The neutral blocks of some content."""
    if isinstance(content, str):
        return [Text(content)]
    return [read_block(part, seen, (*place, at)) for at, part in enumerate(content)]


def read_block(part: forms.Part, seen: Verbatim, place: Place) -> AnyBlock:
    """The neutral block; documents and what server tools do are kept as they stand."""
    kind = part.type
    if kind == "text":
        return Text(part.text)
    if kind == "tool_use":
        return ToolCall(part.id, part.name, part.input or {})
    if kind == "thinking":
        signature = part.signature or ""
        return unseal_thought(part.thinking, signature) or Thinking(part.thinking, signature)
    if kind == "redacted_thinking":
        return Thinking("", part.data, redacted=True)
    return _read_picture(part, seen, place)


def _read_picture(part: forms.Part, seen: Verbatim, place: Place) -> Image | Foreign:
    source = part.source
    if part.type == "image" and isinstance(source, forms.Picture) and (source.data or source.url):
        return Image(source.data, source.media_type, source.url)
    return seen.keep(part.type, *place)


def read_content(
    content: str | list[forms.Part] | forms.Part | None, seen: Verbatim, place: Place
) -> tuple[Content, ...]:
    """What a tool answered; tools that it found for later use are told by their names."""
    if isinstance(content, str):
        return (Text(content),) if content else ()
    parts = content if isinstance(content, list) else [content] if content else []
    found: list[Content] = []
    for at, part in enumerate(parts):
        match part.type:
            case "text":
                found.append(Text(part.text))
            case "tool_reference":
                found.append(Text(part.tool_name))
            case _:
                inside = (*place, at) if isinstance(content, list) else place
                found.append(_read_picture(part, seen, inside))
    return tuple(found)


def find_thoughts(blocks: Iterable[AnyBlock]) -> tuple[Thinking, ...]:
    """The thoughts among these blocks."""
    return tuple(block for block in blocks if isinstance(block, Thinking))
