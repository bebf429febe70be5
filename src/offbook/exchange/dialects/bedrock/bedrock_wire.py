"""What a Converse request is made of, as far as it is read here; the rest is left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects.decoding import LenientDecoder
from offbook.exchange.dialects.validation import (
    Violation,
    find_bad_schema,
    find_unpaired_call,
    rejection,
)
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Content,
    Image,
    Message,
    RawBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from offbook.exchange.model import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.exchange.dialects.decoding import RawBody


# --- What a Converse request is made of, as far as it is read here; the rest is left alone.

NAME = "bedrock"


class BedrockToolUse(msgspec.Struct, frozen=True):
    """The model calls a tool."""

    toolUseId: str  # noqa: N815 - Amazon's name, as all of them here
    name: str
    input: JSON | None = None


class BedrockBytes(msgspec.Struct, frozen=True):
    """Where the bytes of an image are."""

    bytes: str = ""


class BedrockImage(msgspec.Struct, frozen=True):
    """An image."""

    format: str = "png"
    source: BedrockBytes = BedrockBytes()


class BedrockResultPart(msgspec.Struct, frozen=True):
    """A piece of what a tool answered."""

    text: str | None = None
    json: msgspec.Raw = msgspec.Raw()
    image: BedrockImage | None = None


class BedrockToolResult(msgspec.Struct, frozen=True):
    """What a tool answered."""

    toolUseId: str  # noqa: N815 - as it stands on the wire
    content: list[BedrockResultPart] = []
    status: str = "success"


class BedrockReasoningText(msgspec.Struct, frozen=True):
    """What the model thought, with its seal."""

    text: str = ""
    signature: str = ""


class BedrockReasoning(msgspec.Struct, frozen=True):
    """A thought that can be read, or one that cannot."""

    reasoningText: BedrockReasoningText | None = None  # noqa: N815 - as it stands on the wire
    redactedContent: str = ""  # noqa: N815 - as it stands on the wire


class BedrockPart(msgspec.Struct, frozen=True):
    """One block of a message: exactly one of these."""

    text: str | None = None
    toolUse: BedrockToolUse | None = None  # noqa: N815 - as it stands on the wire
    toolResult: BedrockToolResult | None = None  # noqa: N815 - as it stands on the wire
    reasoningContent: BedrockReasoning | None = None  # noqa: N815 - as it stands on the wire
    image: BedrockImage | None = None


class BedrockTurn(msgspec.Struct, frozen=True):
    """One message."""

    role: str
    content: list[BedrockPart]


class BedrockSchema(msgspec.Struct, frozen=True):
    """The parameters of a tool."""

    json: JSON = {}


class BedrockToolSpec(msgspec.Struct, frozen=True):
    """A tool."""

    name: str
    description: str = ""
    inputSchema: BedrockSchema = BedrockSchema()  # noqa: N815 - as it stands on the wire


class BedrockTool(msgspec.Struct, frozen=True):
    """A tool that is offered, or a mark in the cache."""

    toolSpec: BedrockToolSpec | None = None  # noqa: N815 - as it stands on the wire


class BedrockToolConfig(msgspec.Struct, frozen=True):
    """The tools that are offered."""

    tools: list[BedrockTool] = []


class BedrockBody(msgspec.Struct, frozen=True):
    """A request."""

    messages: list[BedrockTurn] | None = None
    system: list[BedrockPart] | None = None
    toolConfig: BedrockToolConfig | None = None  # noqa: N815 - as it stands on the wire
    inferenceConfig: JSON | None = None  # noqa: N815 - as it stands on the wire
    additionalModelRequestFields: JSON | None = None  # noqa: N815 - as it stands on the wire
    guardrailConfig: JSON | None = None  # noqa: N815 - as it stands on the wire
    outputConfig: JSON | None = None  # noqa: N815 - as it stands on the wire


_body = LenientDecoder(BedrockBody)


def read_body(data: bytes) -> tuple[BedrockBody, JSON]:
    """The body, and what is beside it; Bedrock's refusal of what it cannot read."""
    try:
        return _body.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"The model returned the following errors: {error}", status=400) from error


# --- The turns and tools of a request, in no provider's words, held to the rules.

Place = tuple[str | int, ...]


def read_messages(
    turns: Iterable[BedrockTurn], rules: frozenset[str], seen: RawBody
) -> list[Message]:
    """The messages; results stand in messages of their own."""
    messages: list[Message] = []
    names: dict[str, str] = {}
    for at, turn in enumerate(turns, 1):
        if turn.role not in {"user", "assistant"} and "unknown_role" in rules:
            raise rejection(
                "unknown_role",
                f"1 validation error detected: Value '{turn.role}' at 'messages.{at}.member.role'"
                " failed to satisfy constraint: Member must satisfy enum value set:"
                " [user, assistant]",
            )
        blocks: list[AnyBlock] = []
        results: list[ToolResult] = []
        for number, part in enumerate(turn.content):
            place = ("messages", at - 1, "content", number)
            if part.toolResult is not None:
                inside = (*place, "toolResult", "content")
                results.append(_read_result(part.toolResult, names, seen, inside))
            else:
                block = read_block(part, seen, place)
                blocks.append(block)
                if isinstance(block, ToolCall):
                    names[block.id] = block.name
        messages += [Message("tool", (result,)) for result in results]
        if blocks or not results:
            role = "assistant" if turn.role == "assistant" else "user"
            messages.append(Message(role, tuple(blocks)))
    breach = find_unpaired_call(messages, rules)
    if breach is not None:
        raise _refuse(breach)
    return messages


def read_block(part: BedrockPart, seen: RawBody, place: Place) -> AnyBlock:
    """The neutral block; what has none is kept as it stands."""
    if part.text is not None:
        return Text(part.text)
    if part.toolUse is not None:
        return ToolCall(part.toolUse.toolUseId, part.toolUse.name, part.toolUse.input or {})
    if part.reasoningContent is not None:
        thought = part.reasoningContent.reasoningText
        if thought is None:
            return Thinking("", part.reasoningContent.redactedContent, redacted=True)
        return Thinking(thought.text, thought.signature)
    return _read_picture(part.image, seen, place)


def _read_picture(picture: BedrockImage | None, seen: RawBody, place: Place) -> Image | RawBlock:
    if picture is not None and picture.source.bytes:
        return Image(picture.source.bytes, f"image/{picture.format}")
    kept = seen.keep("", *place)
    return msgspec.structs.replace(kept, kind=next(iter(kept.data), "block"))


def _read_result(
    result: BedrockToolResult, names: dict[str, str], seen: RawBody, place: Place
) -> ToolResult:
    content: list[Content] = []
    for at, said in enumerate(result.content):
        if said.text is not None:
            content.append(Text(said.text))
        elif said.json:
            content.append(Text(bytes(said.json).decode()))
        else:
            content.append(_read_picture(said.image, seen, (*place, at)))
    name = names.get(result.toolUseId, "")
    return ToolResult(result.toolUseId, tuple(content), result.status == "error", name)


def _refuse(breach: Violation) -> ModelError:
    ids, where = ", ".join(breach.ids), f"messages.{breach.at}.content"
    told = {
        "missing_result": f"Expected toolResult blocks at {where} for the following Ids: {ids}",
        "orphan_result": f"The number of toolResult blocks at {where} exceeds the number of toolUse"
        " blocks of previous turn.",
        "duplicate_id": f"The toolUse blocks at {where} contain duplicate Ids: {ids}",
    }
    return rejection(breach.rule, told[breach.rule])


def read_tools(config: BedrockToolConfig | None, rules: frozenset[str]) -> tuple[Tool, ...]:
    """The tools that a request offers."""
    specs = [offer.toolSpec for offer in config.tools if offer.toolSpec] if config else []
    tools = tuple(Tool(spec.name, spec.description, spec.inputSchema.json) for spec in specs)
    breach = find_bad_schema(tools, rules)
    if breach is not None:
        raise rejection(
            breach.rule,
            f"The value at toolConfig.tools.{breach.at}.toolSpec.inputSchema.json.type must be one"
            " of the following: object.",
        )
    return tools
