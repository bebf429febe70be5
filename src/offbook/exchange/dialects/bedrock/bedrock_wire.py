"""Wire structs of Amazon Bedrock's Converse API, and decoding of its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, UnsetType

from offbook.errors import ModelError
from offbook.exchange.dialects.decoding import (
    JsonPath,
    RawBody,
    RequestDecoder,
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

NAME = "bedrock"

# ruff: noqa: N815 - the field names are Amazon's


class BedrockToolUse(msgspec.Struct, frozen=True):
    """A tool call."""

    toolUseId: str
    name: str
    input: JSON | None = None


class BedrockBytes(msgspec.Struct, frozen=True):
    """The base64 data of an image."""

    bytes: str = ""


class BedrockImage(msgspec.Struct, frozen=True):
    """An image."""

    format: str = "png"
    source: BedrockBytes = BedrockBytes()


class BedrockResultPart(msgspec.Struct, frozen=True):
    """A part of a tool result."""

    text: str | None = None
    json: msgspec.Raw = msgspec.Raw()
    image: BedrockImage | None = None


class BedrockToolResult(msgspec.Struct, frozen=True):
    """A tool result."""

    toolUseId: str
    content: list[BedrockResultPart] = []
    status: str = "success"


class BedrockReasoningText(msgspec.Struct, frozen=True):
    """Thinking and its signature."""

    text: str = ""
    signature: str = ""


class BedrockReasoning(msgspec.Struct, frozen=True):
    """Thinking, readable or redacted."""

    reasoningText: BedrockReasoningText | None = None
    redactedContent: str = ""


class BedrockPart(msgspec.Struct, frozen=True):
    """A content block: exactly one of the fields is set."""

    text: str | None = None
    toolUse: BedrockToolUse | None = None
    toolResult: BedrockToolResult | None = None
    reasoningContent: BedrockReasoning | None = None
    image: BedrockImage | None = None


class BedrockTurn(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    role: str
    content: list[BedrockPart]


class BedrockSchema(msgspec.Struct, frozen=True):
    """The parameters of a tool."""

    json: JSON = {}


class BedrockToolSpec(msgspec.Struct, frozen=True):
    """The name and parameters of a tool."""

    name: str
    description: str = ""
    inputSchema: BedrockSchema = BedrockSchema()


class BedrockTool(msgspec.Struct, frozen=True):
    """An offered tool, or a cache point."""

    toolSpec: BedrockToolSpec | None = None


class BedrockToolConfig(msgspec.Struct, frozen=True):
    """The offered tools."""

    tools: list[BedrockTool] = []


class BedrockBody(msgspec.Struct, frozen=True):
    """A request body."""

    messages: list[BedrockTurn] | None = None
    system: list[BedrockPart] | None = None
    toolConfig: BedrockToolConfig | None = None
    inferenceConfig: JSON | UnsetType | None = UNSET
    additionalModelRequestFields: JSON | UnsetType | None = UNSET
    guardrailConfig: JSON | UnsetType | None = UNSET
    outputConfig: JSON | UnsetType | None = UNSET


_body_decoder = RequestDecoder(
    BedrockBody, "inferenceConfig additionalModelRequestFields guardrailConfig outputConfig"
)


# ---------------------------------------------------------------------------- decoding


def decode_body(body: bytes) -> tuple[BedrockBody, JSON]:
    """Return the body and its options; raise Bedrock's error if it is invalid."""
    try:
        return _body_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"The model returned the following errors: {error}", status=400) from error


def decode_messages(
    turns: Iterable[BedrockTurn], rules: frozenset[str], raw: RawBody
) -> list[Message]:
    """Decode and validate the turns; each tool result becomes a message."""
    messages: list[Message] = []
    tool_names: dict[str, str] = {}
    for number, turn in enumerate(turns, 1):
        if turn.role not in {"user", "assistant"} and "unknown_role" in rules:
            raise rejection(
                "unknown_role",
                f"1 validation error detected: Value '{turn.role}' at"
                f" 'messages.{number}.member.role' failed to satisfy constraint: Member must"
                " satisfy enum value set: [user, assistant]",
            )
        blocks: list[AnyBlock] = []
        results: list[Message] = []
        for index, part in enumerate(turn.content):
            path = ("messages", number - 1, "content", index)
            if part.toolResult is not None:
                result = _decode_result(
                    part.toolResult, tool_names, raw, (*path, "toolResult", "content")
                )
                results.append(Message("tool", (result,)))
            else:
                block = decode_block(part, raw, path)
                blocks.append(block)
                if isinstance(block, ToolCall):
                    tool_names[block.id] = block.name
        messages += results
        if blocks or not results:
            role = "assistant" if turn.role == "assistant" else "user"
            messages.append(Message(role, tuple(blocks)))
    violation = find_unpaired_call(messages, rules)
    if violation is not None:
        raise _pairing_error(violation)
    return messages


def decode_block(part: BedrockPart, raw: RawBody, path: JsonPath) -> AnyBlock:
    """Decode a block; one without a neutral form is kept raw."""
    if part.text is not None:
        return Text(part.text)
    if part.toolUse is not None:
        return ToolCall(part.toolUse.toolUseId, part.toolUse.name, part.toolUse.input or {})
    if part.reasoningContent is not None:
        thinking = part.reasoningContent.reasoningText
        if thinking is None:
            return Thinking("", part.reasoningContent.redactedContent, redacted=True)
        return Thinking(thinking.text, thinking.signature)
    return _decode_image(part.image, raw, path)


def _decode_image(image: BedrockImage | None, raw: RawBody, path: JsonPath) -> Image | RawBlock:
    if image is not None and image.source.bytes:
        return Image(image.source.bytes, f"image/{image.format}")
    block = raw.block("", path)
    return msgspec.structs.replace(block, kind=next(iter(block.data), "block"))


def _decode_result(
    result: BedrockToolResult, tool_names: dict[str, str], raw: RawBody, path: JsonPath
) -> ToolResult:
    content: list[Content] = []
    for index, part in enumerate(result.content):
        if part.text is not None:
            content.append(Text(part.text))
        elif part.json:
            content.append(Text(bytes(part.json).decode()))
        else:
            content.append(_decode_image(part.image, raw, (*path, index)))
    name = tool_names.get(result.toolUseId, "")
    return ToolResult(result.toolUseId, tuple(content), result.status == "error", name)


def _pairing_error(violation: Violation) -> ModelError:
    ids, path = ", ".join(violation.ids), f"messages.{violation.index}.content"
    messages = {
        "missing_result": f"Expected toolResult blocks at {path} for the following Ids: {ids}",
        "orphan_result": f"The number of toolResult blocks at {path} exceeds the number of toolUse"
        " blocks of previous turn.",
        "duplicate_id": f"The toolUse blocks at {path} contain duplicate Ids: {ids}",
    }
    return rejection(violation.rule, messages[violation.rule])


def decode_tools(config: BedrockToolConfig | None, rules: frozenset[str]) -> tuple[Tool, ...]:
    """Decode and validate the offered tools."""
    specs = [tool.toolSpec for tool in config.tools if tool.toolSpec] if config else []
    tools = tuple(Tool(spec.name, spec.description, spec.inputSchema.json) for spec in specs)
    violation = find_bad_schema(tools, rules)
    if violation is not None:
        raise rejection(
            violation.rule,
            f"The value at toolConfig.tools.{violation.index}.toolSpec.inputSchema.json.type must"
            " be one of the following: object.",
        )
    return tools
