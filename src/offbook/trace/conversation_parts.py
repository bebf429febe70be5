"""The parts of a conversation, in a form that clients do not change.

Clients render a conversation in their own way, so these differences are none: white space and the
order of keys, thinking that is left out, empty texts, other call ids, the texts of a message split
or joined, parallel calls as several messages, a remark that a message has no words, reminders that
a client injects (`strip_injected`), calls as a text (smolagents).
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.exchange.messages import (
    Image,
    RawBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    render_arguments,
    strip_injected,
    to_sorted_json,
)
from offbook.exchange.model import TEXT_CALLS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.exchange.messages import Message

# What a client writes where the model called tools and said no words, for providers that refuse an
# empty text: litellm, Claude Code.
NO_WORDS = re.compile(r"\[System: Empty message content sanitised[^\]]*\]|\(no content\)")
_THOUGHTS = re.compile(r"<(think|thinking|reasoning)>(.*?)</\1>", re.DOTALL)


class Item:
    """A prompt, a text of the model or a call, in a form that clients do not change.

    `position` is the number of its message; consecutive messages of the model have one. `rest` is
    what no text of the other conversation has matched yet.
    """

    __slots__ = ("call", "key", "kind", "message", "position", "rest", "shown", "used")

    def __init__(self, kind: str, key: str, shown: str, message: int, position: int) -> None:
        self.kind = kind  # user, text or call
        self.key = self.rest = key
        self.shown = shown
        self.message = message
        self.position = position
        self.call: ToolCall | None = None
        self.used = False

    def use(self) -> None:
        """Mark it as found."""
        self.used, self.rest = True, ""


class Parts:
    """The items of a conversation in order, and its results by call id."""

    def __init__(self, messages: Iterable[Message], first: int = 1) -> None:
        self.items: list[Item] = []
        self.results: dict[str, tuple[ToolResult, int]] = {}
        self.thoughts: list[tuple[str, int]] = []  # of the model, with the number of its message
        self.provided: list[tuple[RawBlock, int]] = []  # likewise: what the provider's tools did
        self.systems: list[tuple[str, int]] = []  # system messages after the first prompt
        self._previous = ""
        self._position = first
        for number, message in enumerate(messages, first):
            self._add(message, number)

    def _add(self, message: Message, number: int) -> None:
        role = message.role
        for result in message.results:
            self.results[result.call_id] = (result, number)
        if role == "system":
            self.systems.append((message.text, number))
        elif role == "assistant":
            # The text of a reply and its calls may be several messages, in any order.
            if self._previous != "assistant":
                self._position = number
            self._add_reply(message, number)
        else:
            for block in message.blocks:
                key = shown = ""
                if isinstance(block, Text):
                    shown = strip_injected(block.text)
                    key = text_key(shown)
                elif isinstance(block, (Image, RawBlock)):
                    shown = render_block(block)
                    key = to_sorted_json(block).decode()
                if key:
                    self.items.append(Item("user", key, shown, number, number))
        if role != "system":
            self._previous = role

    def _add_reply(self, message: Message, number: int) -> None:
        text, calls = message.text, list(message.calls)
        blocks = (block for block in message.blocks if isinstance(block, RawBlock))
        self.provided += [(block, number) for block in blocks if item_key(block)]
        # Some clients write them into the text.
        thoughts = [b.text for b in message.blocks if isinstance(b, Thinking)]
        thoughts += [found[2] for found in _THOUGHTS.finditer(text)]
        self.thoughts += [(thought, number) for thought in thoughts]
        if TEXT_CALLS in text:
            before, _, listed = text.rpartition(TEXT_CALLS)
            if (parsed := parse_text_calls(listed, before)) is not None:
                text, calls = before, [*calls, *parsed]
        if NO_WORDS.fullmatch(text.strip()):
            text = ""
        if key := reply_key(text):
            self.items.append(Item("text", key, text, number, self._position))
        for call in calls:
            item = Item("call", call_key(call), render_call(call), number, self._position)
            item.call = call
            self.items.append(item)


def text_key(text: str) -> str:
    """Return a text without what clients change: white space and the form of JSON.

    Quotes are equal: LlamaIndex writes the JSON in a text of its model as Python.
    """
    stripped = text.strip()
    if stripped[:1] in {"{", "["} and stripped[-1:] in {"}", "]"}:
        # A text may only look like JSON.
        with suppress(msgspec.MsgspecError, RecursionError, ValueError):
            text = to_sorted_json(_whole_numbers(msgspec.json.decode(stripped))).decode()
    return "".join(text.split()).replace('"', "'")


def reply_key(text: str) -> str:
    """Return a text of the model in one form, without the thoughts that clients write into it."""
    return text_key(_THOUGHTS.sub("", text) if "</" in text else text)


def call_key(call: ToolCall) -> str:
    """Return the name and the arguments of a call in one form."""
    return f"{call.name} {to_sorted_json(_whole_numbers(call.arguments)).decode()}"


def result_key(result: ToolResult) -> str:
    """Return the content of a result in one form."""
    others = [block for block in result.content if not isinstance(block, Text)]
    return text_key(result.text) + (to_sorted_json(others).decode() if others else "")


def _whole_numbers(value: Any) -> Any:
    """Return a JSON value in which 7.0 is 7, as languages without integers write it."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: _whole_numbers(field) for name, field in fields.items()}
    if isinstance(value, (list, tuple)):
        return [_whole_numbers(item) for item in cast("list[Any]", value)]
    return value


def parse_text_calls(listed: str, before: str) -> list[ToolCall] | None:
    """Return the calls that smolagents writes as a text, or None if it is another text.

    `before` is the text in front of them. A CodeAgent lists the code in it as a call.
    """
    from ast import literal_eval  # for one client only

    calls: list[ToolCall] = []
    try:
        for entry in literal_eval(listed.strip()):
            name, arguments = entry["function"]["name"], entry["function"]["arguments"]
            if isinstance(arguments, dict):
                calls.append(ToolCall(entry["id"], name, cast("dict[str, Any]", arguments)))
            elif text_key(str(arguments)) not in text_key(before):
                calls.append(ToolCall(entry["id"], name, {"input": arguments}))
    except (ValueError, SyntaxError, TypeError, KeyError):
        return None
    return calls


def render_call(call: ToolCall) -> str:
    """Return a call as `refund({"number": 7})`."""
    # A tool may get another value than an object.
    is_object = isinstance(cast("object", call.arguments), dict)
    arguments = call.arguments
    text = render_arguments(arguments) if is_object else to_sorted_json(arguments).decode()
    return f"{call.name}({text})"


def render_block(block: Image | RawBlock) -> str:
    """Return an image, or a block that only one provider has, as a short text."""
    if isinstance(block, RawBlock):
        return f"{block.kind} {to_sorted_json(block.data).decode()}"
    return f"an image {block.url or f'{block.media_type} {block.data[-40:]}'}"


def render_result(result: ToolResult) -> str:
    """Return the content of a result as a text."""
    blocks = (b.text if isinstance(b, Text) else render_block(b) for b in result.content)
    return "\n".join(blocks)


def item_key(block: RawBlock) -> str:
    """Return the id of an item of a provider's tool, of its call or its result, or ""."""
    item_id = block.data.get("id") or block.data.get("tool_use_id")
    return f"{block.kind} {item_id}" if item_id else ""


def is_same_item(known: Any, sent: Any) -> bool:
    """Return whether two JSON values are equal but for fields left out, and empty ones added."""
    if isinstance(known, dict) and isinstance(sent, dict):
        fields = cast("dict[str, Any]", known)
        return all(
            is_same_item(fields.get(name), value)
            for name, value in cast("dict[str, Any]", sent).items()
        )
    if isinstance(known, list) and isinstance(sent, list):
        items, others = cast("list[Any]", known), cast("list[Any]", sent)
        return len(items) == len(others) and all(map(is_same_item, items, others))
    return not sent if known is None else _whole_numbers(known) == _whole_numbers(sent)
