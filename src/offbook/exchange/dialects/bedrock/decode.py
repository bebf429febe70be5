"""The turns and tools of a request, in no provider's words, held to the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

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
from offbook.exchange.rules import Breach, find_schema, pair_calls, reject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.errors import ModelError
    from offbook.exchange.dialects.bedrock import forms
    from offbook.exchange.foreign import Verbatim

Place = tuple[str | int, ...]


def read_messages(
    turns: Iterable[forms.Turn], rules: frozenset[str], seen: Verbatim
) -> list[Message]:
    """The messages; results stand in messages of their own."""
    messages: list[Message] = []
    names: dict[str, str] = {}
    for at, turn in enumerate(turns, 1):
        if turn.role not in {"user", "assistant"} and "unknown_role" in rules:
            raise reject(
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
    breach = pair_calls(messages, rules)
    if breach is not None:
        raise _refuse(breach)
    return messages


def read_block(part: forms.Part, seen: Verbatim, place: Place) -> AnyBlock:
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


def _read_picture(picture: forms.Picture | None, seen: Verbatim, place: Place) -> Image | Foreign:
    if picture is not None and picture.source.bytes:
        return Image(picture.source.bytes, f"image/{picture.format}")
    kept = seen.keep("", *place)
    return msgspec.structs.replace(kept, kind=next(iter(kept.data), "block"))


def _read_result(
    result: forms.Result, names: dict[str, str], seen: Verbatim, place: Place
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


def _refuse(breach: Breach) -> ModelError:
    ids, where = ", ".join(breach.ids), f"messages.{breach.at}.content"
    told = {
        "missing_result": f"Expected toolResult blocks at {where} for the following Ids: {ids}",
        "orphan_result": f"The number of toolResult blocks at {where} exceeds the number of toolUse"
        " blocks of previous turn.",
        "duplicate_id": f"The toolUse blocks at {where} contain duplicate Ids: {ids}",
    }
    return reject(breach.rule, told[breach.rule])


def read_tools(config: forms.Config | None, rules: frozenset[str]) -> tuple[Tool, ...]:
    """The tools that a request offers."""
    specs = [offer.toolSpec for offer in config.tools if offer.toolSpec] if config else []
    tools = tuple(Tool(spec.name, spec.description, spec.inputSchema.json) for spec in specs)
    breach = find_schema(tools, rules)
    if breach is not None:
        raise reject(
            breach.rule,
            f"The value at toolConfig.tools.{breach.at}.toolSpec.inputSchema.json.type must be one"
            " of the following: object.",
        )
    return tools
