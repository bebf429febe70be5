"""Where the emitters of spans put what was said to a model, and what it said.

`gen_ai.output.messages` is today's name of the GenAI conventions. Before, messages were attributes
of their own (`gen_ai.completion.0.content`, still so in OpenLLMetry and, as `llm.output_messages`,
in OpenInference) or events. Logfire has events in an attribute, or the provider's own answer; the
AI SDK for JavaScript has names of its own.
"""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from offbook.exchange.messages import AnyBlock, Text, Thinking, ToolCall
from offbook.sources.importers.importer import as_fields, as_items, as_object, as_text

Attributes = dict[str, Any]
Messages = list[dict[str, Any]]
ASKED = ("gen_ai.input.messages", "gen_ai.prompt", "ai.prompt.messages")
ANSWERED = ("gen_ai.output.messages", "gen_ai.completion")
INDEXED = (
    ("gen_ai.prompt", "gen_ai.completion"),
    ("llm.input_messages", "llm.output_messages"),
    ("llm.prompts", "llm.completions"),
)
SAID_BY = re.compile(r"gen_ai\.(user|system|tool|assistant)\.message")
DETAILS = "gen_ai.client.inference.operation.details"
CALLS = {"tool_call", "tool-call", "tool_use", "function", "function_call", "server_tool_call"}
THOUGHTS = {"reasoning", "thinking"}


def find_messages(
    about: Attributes, events: list[tuple[str, Attributes]]
) -> tuple[Messages, Messages]:
    """What was said to the model, and what it said, wherever these attributes or events have it."""
    found = (_plain(about), *(_numbered(about, *names) for names in INDEXED))
    for asked, answered in (
        *found,
        _javascript(about),
        _logfire(about),
        _events(events),
        _raw(about),
    ):
        if answered:
            return asked or found[0][0], answered
    nothing: Messages = []
    return next((asked for asked, _ in found if asked), nothing), nothing


def _plain(about: Attributes) -> tuple[Messages, Messages]:
    asked, answered = (
        next((about[name] for name in names if name in about), None) for names in (ASKED, ANSWERED)
    )
    return listed(asked), listed(answered)


def listed(value: Any) -> Messages:
    """Messages, or one, or a text that has them in JSON, or that is all there is."""
    value = _decoded(value)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return as_items(fields["messages"]) if "messages" in fields else [fields]
    if isinstance(value, list):
        return [one for item in cast("list[Any]", value) for one in _single(item)]
    return [{"role": "user", "content": as_text(value)}] if value is not None else []


def _decoded(value: Any) -> Any:
    """What a text has in JSON, or as it is."""
    try:
        return msgspec.json.decode(value) if isinstance(value, str) else value
    except msgspec.DecodeError:
        return value


def _single(item: Any) -> Messages:
    if isinstance(item, dict):
        return [cast("dict[str, Any]", item)]
    return listed(item) if isinstance(item, str) else []


def _numbered(about: Attributes, asked: str, answered: str) -> tuple[Messages, Messages]:
    return _indexed(about, asked), _indexed(about, answered)


def _indexed(about: Attributes, prefix: str) -> Messages:
    """Messages whose fields are attributes of their own: `gen_ai.prompt.0.content`."""
    found: dict[int, dict[str, Any]] = {}
    pattern = re.compile(rf"{re.escape(prefix)}\.(\d+)\.(?:(?:message|completion|prompt)\.)?(.+)")
    for name, value in about.items():
        match = pattern.fullmatch(name)
        if match:
            _put(found.setdefault(int(match[1]), {}), match[2], value)
    return [found[number] for number in sorted(found)]


def _put(message: dict[str, Any], name: str, value: Any) -> None:
    within = re.fullmatch(r"(tool_calls|contents)\.(\d+)\.(?:\w+\.)*(\w+)", name)
    if within is None:
        message[name] = value
        return
    items = cast("dict[int, dict[str, Any]]", message.setdefault(within[1], {}))
    items.setdefault(int(within[2]), {})[within[3]] = value


def _javascript(about: Attributes) -> tuple[Messages, Messages]:
    """The AI SDK: a text, and calls in JSON."""
    parts: list[dict[str, Any]] = []
    for name, kind in (("reasoning", "reasoning"), ("text", "text"), ("object", "text")):
        if said := about.get(f"ai.response.{name}"):
            parts.append({"type": kind, "text": as_text(said)})
    if calls := about.get("ai.response.toolCalls"):
        parts += [{"type": "tool_call", **call} for call in listed(calls)]
    return listed(about.get("ai.prompt.messages")), [{"parts": parts}] if parts else []


def _logfire(about: Attributes) -> tuple[Messages, Messages]:
    """Events in an attribute, or what was sent to the provider and what came back."""
    events = [(as_text(one.get("event.name")), one) for one in listed(about.get("events"))]
    asked, answered = _events(events)
    if answered:
        return asked, answered
    given, taken = (
        as_fields(_decoded(about.get(name))) for name in ("request_data", "response_data")
    )
    message = taken.get("message") or taken.get("combined_chunk_content")
    said = listed(message) if message else as_items(taken.get("output"))
    return as_items(given.get("messages") or given.get("input")), said


def _events(events: list[tuple[str, Attributes]]) -> tuple[Messages, Messages]:
    asked: Messages = []
    answered: Messages = []
    for name, about in events:
        by = SAID_BY.fullmatch(name)
        if name == DETAILS:
            asked += listed(about.get("gen_ai.input.messages"))
            answered += listed(about.get("gen_ai.output.messages"))
        elif name == "gen_ai.content.prompt":
            asked += listed(about.get("gen_ai.prompt"))
        elif name == "gen_ai.content.completion":
            answered += listed(about.get("gen_ai.completion"))
        elif name == "gen_ai.choice":
            reason = {"finish_reason": about["finish_reason"]} if "finish_reason" in about else {}
            answered += [{**reason, **message} for message in listed(about.get("message", about))]
        elif by is not None:
            asked.append({"role": by[1], **about})
    return asked, answered


def _raw(about: Attributes) -> tuple[Messages, Messages]:
    """What any span may say of what went in and came out, where it says nothing better."""
    given, taken = (about.get(f"{side}.value") for side in ("input", "output"))
    if taken is None:
        given, taken = (about.get(f"langfuse.observation.{side}") for side in ("input", "output"))
    answers = listed(taken)
    chosen = as_items(answers[0].get("choices")) if answers else []
    messages = [as_fields(one.get("message")) for one in chosen] or answers
    return listed(given), [message for message in messages if find_blocks(message)]


def find_prompt(messages: Messages) -> str | None:
    """The latest thing that the user said."""
    for message in reversed(messages):
        if as_text(message.get("role")) in {"user", "human"}:
            texts = [block.text for block in find_blocks(message) if isinstance(block, Text)]
            if texts:
                return "\n".join(texts)
    return None


def find_blocks(message: dict[str, Any], left: list[str] | None = None) -> list[AnyBlock]:
    """What a message says; the kinds of what is no text, thought or call go `left`."""
    parts = message.get("parts", message.get("content"))
    if isinstance(parts, str):
        parts = [{"type": "text", "content": parts}] if parts else []
    found = [
        *as_items(parts),
        *_sorted(message.get("contents")),
        *_sorted(message.get("tool_calls")),
    ]
    call = message.get("function_call")
    found += [{"type": "function", **as_fields(call)}] if call else []
    blocks: list[AnyBlock] = []
    for part in found:
        block = _block(part)
        if block is not None:
            blocks.append(block)
        elif left is not None and as_text(part.get("type")) not in {"text", ""}:
            left.append(as_text(part.get("type")))
    return blocks


def _sorted(items: Any) -> list[dict[str, Any]]:
    """A list, or what has its places for names."""
    if isinstance(items, dict):
        placed = cast("dict[int, dict[str, Any]]", items)
        return [placed[at] for at in sorted(placed)]
    return as_items(items)


def _block(part: dict[str, Any]) -> AnyBlock | None:
    kind = as_text(part.get("type"))
    part = {**part, **as_fields(part.get("function"))}
    name = part.get("name", part.get("toolName"))
    if kind in CALLS or (not kind and name is not None):
        arguments = next((part[one] for one in ("arguments", "input", "args") if one in part), None)
        identity = part.get("id", part.get("toolCallId", part.get("call_id")))
        return ToolCall(as_text(identity), as_text(name), as_object(arguments))
    text = as_text(part.get("content", part.get("text", part.get("thinking"))))
    if kind in THOUGHTS:
        return Thinking(text)
    return Text(text) if kind in {"text", "output_text", "input_text", ""} and text else None
