"""Conversation integrity: each request is held against what was said before.

An agent sends the whole conversation with every request. What the model said, what the tools
returned and what the user wrote must come back as it was. `compare` returns the differences:

- those that *fail* the run: a call that the model never made, changed arguments, a changed result,
  words that the model never said, another item of a tool of the provider, a rewritten prompt, a
  repeated or reordered message;
- those that are *shown*: messages left out, a summary in their place, messages from elsewhere,
  (`compare_heads`) another system prompt, model, parameters or tools, and (`compare_executions`)
  a tool that did something else than its call and its result say.

What clients render in their own way is not a difference: `conversation_parts.py` has one form.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import Counter
from functools import cached_property
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import ScriptMismatch
from offbook.exchange.messages import (
    RAW_ARGUMENTS,
    RawBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    join_text,
)
from offbook.secrets import excerpt, outgoing
from offbook.trace.conversation_parts import (
    Item,
    Parts,
    call_key,
    is_same_item,
    item_key,
    render_block,
    render_call,
    render_result,
    reply_key,
    result_key,
    text_key,
)
from offbook.trace.events import PERSON, TOOL_START, UNSET, ConversationChange
from offbook.trace.executions import same_result, to_result_content
from offbook.trace.part_index import CallIndex, TextIndex, common_length
from offbook.trace.shortened_results import is_shortened

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from offbook.exchange.messages import AnyBlock, History
    from offbook.exchange.model import Conversation, Reply, Request, Tool
    from offbook.trace.events import ChangeLevel, Event, ToolResultData
    from offbook.trace.executions import Execution, ExecutionReader

SHOWN_LENGTH = 120  # of an expected or actual text in a message
MIN_ANCHOR = 6  # characters: a shorter answer, such as "ok", does not identify a conversation

# What an old result becomes when known clients clear it to save context; another note is read by
# `shortened_results.py`.
CLEARED = re.compile(
    r"\[?(?:old tool result content cleared|cleared|tool result cleared|content (?:removed|omitted)"
    r"|output (?:removed|omitted|truncated)|compacted).{0,80}",
    re.IGNORECASE | re.DOTALL,
)
# The text in place of the rest of a result that a client cut.
CUT = re.compile(
    r"(?:…|\.\.\.)?(?:[\[(<{].{0,40}(?:truncated|omitted|trimmed).{0,120})?",
    re.IGNORECASE | re.DOTALL,
)
MIN_CUT = 100  # characters: what is left of a result that is cut without a remark
# Parameters that change nothing of what the model gets or answers.
UNSEEN_PARAMETERS = {
    "cachedContent",
    "cache_control",
    "client_metadata",
    "include",
    "metadata",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "stream_options",
    "user",
}


# ------------------------------------------------------------------------------- the comparison


class Said:
    """What the model said in all conversations of a run, for parts that move between them.

    Few requests have such parts, so the replies are read when one is looked up.
    """

    def __init__(self, replies: Iterable[Reply]) -> None:
        self._replies = replies

    @cached_property
    def items(self) -> dict[str, RawBlock]:
        """The items of the provider's tools, by their keys."""
        return {item_key(block): block for block in self._blocks if isinstance(block, RawBlock)}

    @cached_property
    def thoughts(self) -> list[str]:
        """The model's thinking."""
        return [block.text for block in self._blocks if isinstance(block, Thinking)]

    def has(self, item: Item) -> bool:
        """Return whether the model said this in any conversation."""
        if item.call is not None:
            call = self._calls.get(item.call.id)
            return call is not None and call_key(call) == item.key
        return item.key in self._texts

    @cached_property
    def _blocks(self) -> list[AnyBlock]:
        return [block for reply in self._replies for block in reply.blocks]

    @cached_property
    def _calls(self) -> dict[str, ToolCall]:
        return {block.id: block for block in self._blocks if isinstance(block, ToolCall)}

    @cached_property
    def _texts(self) -> set[str]:
        return {reply_key(text) for reply in self._replies if (text := reply.text)}


class HistoryComparison:
    """The differences between a known conversation and a request.

    The first `common` messages of both are equal; `request` are the parts of the others. There are
    no `changes` if the request does not continue the conversation (`continues`).
    """

    def __init__(self, known: Conversation, request: Parts, said: Said, common: int = 0) -> None:
        messages = known.request.messages
        self._start = known.start
        self._same = messages[:common]
        self._known = Parts((*messages[common:], known.reply.message), common + 1)
        self._request = request
        self._items = list(request.items)
        self._said = said
        self._common = common
        # The model's latest text may be incomplete: a stream can end early.
        self._partial = known.request.stream or known.reply.fault is not None
        # So may be its calls and their arguments, if a fault broke the response off.
        self._broken = known.reply.fault is not None and known.reply.fault.kind != "slow"
        self._matches: list[int | None] = []  # of each item of the request: that of the known ones
        self._changes: list[ConversationChange] = []
        self._summaries: set[int] = set()  # the known parts after which a summary is
        self._match_items()
        if self.continues:
            self._compare_results()
            self._compare_provided()
            self._compare_thoughts()
            self._compare_systems()
            self._judge_unmatched()
            self._judge_gaps()
        self.changes = sorted(self._changes, key=lambda change: change.message)
        self.failures = sum(change.level == "fails" for change in self.changes)

    @property
    def matched(self) -> int:
        """The number of parts that both have, and of the equal messages before them."""
        return self._common + sum(match is not None for match in self._matches)

    @cached_property
    def continues(self) -> bool:
        """True if the request continues the known conversation, rather than only resembling it.

        What comes before the first prompt, such as examples, many conversations may have; so may
        they have what an agent writes for the model after it.
        """
        if self._common >= self._start:
            return True
        items = [self._known.items[match] for match in self._matches if match is not None]
        items = [
            item
            for item in items
            if item.message > self._start or (item.message == self._start and item.kind == "user")
        ]
        length = sum(len(item.key) for item in items if item.kind == "text")
        return length >= MIN_ANCHOR or any(item.kind != "text" for item in items)

    @property
    def is_complete(self) -> bool:
        """True if the request has the end of the known conversation."""
        return not self._known.items or self._known.items[-1].used

    @cached_property
    def has_reply(self) -> bool:
        """True if the request contains something that the model said."""
        return any(message.role == "assistant" for message in self._same) or any(
            match is not None and item.kind != "user"
            for item, match in zip(self._items, self._matches, strict=True)
        )

    @cached_property
    def _earlier(self) -> Parts:
        """The parts of the equal messages."""
        return Parts(self._same)

    def _add(
        self, what: str, message: int, expected: str, got: str, level: ChangeLevel = "fails"
    ) -> None:
        shown = (_shorten(expected), _shorten(got))
        self._changes.append(ConversationChange(what, *shown, message, level))

    # --- Which part of the request is which part of the known conversation

    def _match_items(self) -> None:
        known, items = self._known.items, self._items
        self._texts = {kind: TextIndex(known, kind) for kind in ("user", "text")}
        self._calls = CallIndex(known)
        self._positions = [item.position for item in known]
        # The next text of the request, which may be a part of the same one.
        following: list[str] = []
        later = {"user": "", "text": ""}
        for item in reversed(items):
            following.append(later.get(item.kind, ""))
            later[item.kind] = item.key
        following.reverse()
        reached, latest_prompt = 0, -1
        for index, item in enumerate(items):
            if item.call is None:
                match = self._find_text(item, following[index], reached)
                if match is None and (rest := self._without_thoughts(item)) is not None:
                    items[index] = rest
                    match = self._find_text(rest, following[index], reached)
            else:
                match = self._find_call(item, item.call, reached)
            self._matches.append(match)
            if match is None:
                continue
            position = known[match].position
            # The parts of a prompt, such as two images, have an order; those of a reply do not.
            moved = item.kind == "user" and match < latest_prompt
            if position < reached or moved:
                self._add("order", item.message, "the order of before", item.shown)
            reached = max(reached, position)
            if item.kind == "user":
                latest_prompt = max(latest_prompt, match)

    def _find_call(self, item: Item, call: ToolCall, reached: int) -> int | None:
        """Return the call of the known conversation that this one is."""
        known, first = self._known.items, bisect_left(self._positions, reached)
        same = self._calls.find(call.id, item.key, first)  # the client may have made another id
        if not same:
            return None
        # A source may use one id again.
        number = min(same, key=lambda n: (n < first, known[n].key != item.key))
        found = known[number]
        self._calls.remove(found, number)
        found.used = True
        if found.key != item.key and not (
            found.call and (_is_repaired(found.call) or _has_defaults(found.call, call))
        ):
            what = "arguments" if found.call and found.call.name == call.name else "call"
            in_reply = found.position == self._positions[-1]
            cut = self._broken and in_reply and what == "arguments"
            self._add(what, item.message, found.shown, item.shown, "shown" if cut else "fails")
        return number

    def _find_text(self, item: Item, following: str, reached: int) -> int | None:
        """Return the text of the known conversation that this one is, or that it is a part of.

        `following` is the next text of the request. Those from `reached` on come first.
        """
        if not item.key:
            return None
        known, texts = self._known.items, self._texts[item.kind]
        first = bisect_left(self._positions, reached)
        if (number := texts.find_equal(item.key, first)) is not None:
            self._use(known[number], number)
            return number
        for number in sorted(texts.find_shorter(item.key), key=lambda n: (n < first, n)):
            if parts := self._join(item, number, first):  # several texts as one
                for part in parts:
                    self._use(known[part], part)
                return number
        numbers = texts.find_longer(item.key + following) if following else []
        last = self._last_text if self._partial and item.kind == "text" else -1
        if last >= 0 and known[last].rest.startswith(item.key):
            numbers.append(last)
        if not numbers:
            return None
        number = min(numbers, key=lambda n: (n < first, n))  # one text as several
        rest = known[number].rest[len(item.key) :] if following else ""
        self._use(known[number], number, rest)
        return number

    def _use(self, item: Item, number: int, rest: str = "") -> None:
        """Mark a known text as found, but for the `rest` of it."""
        index = self._texts[item.kind]
        index.remove(item.rest, number)
        item.use()
        if rest:
            item.rest = rest
            index.add(rest, number)

    def _join(self, item: Item, number: int, first: int) -> list[int]:
        """Return the known texts from this one on that are the text of the item, if joined."""
        known = self._known.items
        later: Iterable[int] = range(number, first)
        if number >= first:
            later = chain(range(number, len(known)), range(first))
        joined, parts = "", list[int]()
        for other in later:
            if known[other].kind == item.kind and (rest := known[other].rest):
                joined += rest
                parts.append(other)
                if not item.key.startswith(joined):
                    return []
                if len(joined) == len(item.key):
                    return parts
        return []

    def _without_thoughts(self, item: Item) -> Item | None:
        """Return a text of the model without its thinking, which some clients write into it.

        None if it has none.
        """
        key = item.key
        for thought, _ in self._known.thoughts if item.kind == "text" else ():
            key = key.removeprefix(text_key(thought))
        if key == item.key:
            return None
        return Item(item.kind, key, item.shown, item.message, item.position)

    @cached_property
    def _last_text(self) -> int:
        texts = [n for n, item in enumerate(self._known.items) if item.kind == "text"]
        return texts[-1] if texts else -1

    # --- What it means

    @cached_property
    def _last_reply(self) -> int:
        """The number of the last message of the model in the request, 0 without one."""
        return max((item.message for item in self._items if item.kind != "user"), default=0)

    def _compare_results(self) -> None:
        known = self._known.results
        own_ids: dict[str, str] = {}  # by the id that the client made of it
        for item, match in zip(self._items, self._matches, strict=True):
            if match is not None and item.call and (call := self._known.items[match].call):
                own_ids[item.call.id] = call.id
        for sent_id, (result, message) in self._request.results.items():
            call_id = own_ids.get(sent_id, sent_id)
            if call_id not in known:
                continue
            older = message < self._last_reply
            if change := compare_results(known[call_id][0], result, older=older):
                self._changes.append(msgspec.structs.replace(change, message=message))

    def _compare_provided(self) -> None:
        """Compare what the tools of the provider did; a client may leave out empty fields."""
        known = {item_key(block): block for block, _ in self._known.provided}
        earlier: set[str] = set()
        if self._request.provided:
            earlier = {item_key(block) for block, _ in self._earlier.provided}
        found: set[str] = set()
        for block, message in self._request.provided:
            item_id = item_key(block)
            own = known.get(item_id) or self._said.items.get(item_id)
            if item_id in found or item_id in earlier:
                self._add("duplicate", message, "it once", render_block(block))
            elif own is None and self.has_reply:
                self._add("item", message, "nothing", render_block(block))
            elif own is not None and not is_same_item(own.data, block.data):
                self._add("item", message, *_differing(render_block(own), render_block(block)))
            found.add(item_id)
        kept = {item.message for item in self._known.items if item.used}
        for block, message in self._known.provided:
            if message in kept and item_key(block) not in found:
                self._add("dropped", message, render_block(block), "", "shown")

    def _compare_thoughts(self) -> None:
        """Note thoughts that the model never had; a client may leave out or join its own."""
        if not self._request.thoughts or not self.has_reply:
            return
        own = (*self._known.thoughts, *self._earlier.thoughts)
        keys = [text_key(text) for text in (*(text for text, _ in own), *self._said.thoughts)]
        known, ends = "".join(keys), {0, *accumulate(map(len, keys))}
        single = set(keys)
        for thought, message in self._request.thoughts:
            if (key := text_key(thought)) in single:
                continue
            whole = (end for end in ends if known.startswith(key, end))
            if not any(self._partial or end + len(key) in ends for end in whole):
                self._add("text", message, "nothing", f"the thought {thought!r}", "shown")

    def _compare_systems(self) -> None:
        """Note system messages between the others: they are a part of the system prompt."""
        known = {text for text, _ in self._known.systems}
        for text, message in self._request.systems:
            if text not in known:
                self._add("system", message, "", text, "shown")

    def _judge_unmatched(self) -> None:
        # The last match before each item of the request, and the first one after it.
        matches, end = self._matches, len(self._known.items)
        befores = list(accumulate((-1 if m is None else m for m in matches), max))
        afters = list(accumulate((end if m is None else m for m in reversed(matches)), min))
        for item, match, before, least in zip(
            self._items, matches, befores, reversed(afters), strict=True
        ):
            if match is None and item.key:
                after = None if least == end else least
                if item.kind == "user":
                    self._judge_prompt(item, before, after)
                else:
                    self._judge_reply(item, before, after)

    def _gap(self, before: int, after: int | None) -> list[Item]:
        """Return the parts that the request lacks between two that it has."""
        return [item for item in self._known.items[before + 1 : after] if not item.used]

    def _judge_prompt(self, item: Item, before: int, after: int | None) -> None:
        if after is None:  # a new prompt
            return
        gap = self._gap(before, after)
        kept = {other.position for other in self._known.items if other.used}
        # A summary replaces whole messages of the model.
        if any(other.kind != "user" and other.position not in kept for other in gap):
            self._add("summary", item.message, "", item.shown, "allowed")
            self._summaries.add(before)
            for other in gap:
                other.use()
        elif prompts := [other for other in gap if other.kind == "user"]:
            replaced = prompts[0]
            replaced.use()
            # A client may add its context to the latest prompt only, or remove it later.
            contained = item.key in replaced.key or replaced.key in item.key
            level = "shown" if contained else "fails"
            self._add("prompt", item.message, replaced.shown, item.shown, level)
        else:
            self._add("inserted", item.message, "", item.shown, "shown")

    def _judge_reply(self, item: Item, before: int, after: int | None) -> None:
        items = self._known.items
        shared = self._common >= self._start or (
            before >= 0 and items[before].message >= self._start
        )
        if not shared and after is None:  # nothing in common
            return
        gap = self._gap(before, after)
        if not shared and item.call is None and (gap or before in self._summaries):
            # A summary may be an exchange: the user asks for it, and the model confirms.
            self._add("summary", item.message, "", item.shown, "allowed")
            return
        is_copy = self._is_repeated(item)
        if not is_copy and self._said.has(item):
            self._add("history", item.message, "", item.shown, "shown")
            return
        if is_copy:
            self._add("duplicate", item.message, "it once", item.shown)
            return
        what, expected = ("text" if item.call is None else "call"), "nothing"
        for other in gap:
            if other.kind == item.kind and (
                item.call is None or (other.call and other.call.name == item.call.name)
            ):
                other.use()
                what = what if item.call is None else "arguments"
                expected = other.shown
                break
        continues = shared or any(
            match is not None and other.kind != "user"
            for other, match in zip(self._items, self._matches, strict=True)
        )
        if continues:
            self._add(what, item.message, expected, item.shown)

    def _is_repeated(self, item: Item) -> bool:
        others = (*self._earlier.items, *self._known.items)
        if item.call is not None:
            return any(k.call is not None and k.call.id == item.call.id for k in others)
        return any(known.kind == "text" and known.key == item.key for known in others)

    def _judge_gaps(self) -> None:
        """Note what is left out, up to the last part that the request has."""
        matched = [match for match in self._matches if match is not None]
        if not matched:
            return
        left_out = [item for item in self._known.items[: max(matched)] if not item.used]
        # A call that is missing from a message of which the rest is there.
        kept = {item.position for item in self._known.items if item.used}
        for item in [item for item in self._known.items if not item.used and item.call]:
            if item.position in kept:
                item.use()
                cut = self._broken and item.position == self._positions[-1]
                level = "shown" if cut else "fails"
                self._add("dropped", item.message, item.shown, "nothing", level)
        left_out = [item for item in left_out if not item.used]
        if left_out:
            first = left_out[0]
            more = f" and {len(left_out) - 1} more" if len(left_out) > 1 else ""
            at_front = not self._common and left_out[-1] in self._known.items[: min(matched)]
            level = "allowed" if at_front else "shown"
            self._add("dropped", first.message, first.shown + more, "", level)
        for item in self._known.items[: max(matched) + 1]:
            if item.used and item.rest and item.kind != "call":
                level = "shown" if self._partial else "fails"
                self._add("text", item.message, item.shown, "a part of it", level)


def compare_results(
    known: ToolResult, result: ToolResult, *, older: bool = False
) -> ConversationChange | None:
    """Return the difference between a result and the same one of an earlier request.

    After an `older` one, the model has said something.
    """
    expected, got = result_key(known), result_key(result)
    is_same_name = not known.name or not result.name or known.name == result.name
    is_same_outcome = known.failed is None or result.failed is None or known.failed == result.failed
    if expected == got and is_same_name and is_same_outcome:
        return None
    texts = _differing(render_result(known), render_result(result))
    if not is_same_name:
        sides = (f"{known.name}: {texts[0]}", f"{result.name}: {texts[1]}")
        return ConversationChange("result", *sides, level="fails")
    if expected == got:
        words = {True: " (an error)", False: " (no error)"}
        sides = (texts[0] + words[known.failed is True], texts[1] + words[result.failed is True])
        return ConversationChange("result", *sides, level="fails")
    if CLEARED.fullmatch(result.text.strip()):
        return ConversationChange("dropped", *texts)
    common = common_length(expected, got)
    # The beginning of a result, and a remark that it was cut, or enough to be a limit of a client.
    remark = got[common:]
    if 0 < common < len(expected) and (remark or common >= MIN_CUT) and CUT.fullmatch(remark):
        return ConversationChange("dropped", *texts)
    if is_shortened(known.text, result.text, older=older) and not _has_others(result):
        return ConversationChange("dropped", *texts)
    return ConversationChange("result", *texts, level="fails")


def _has_others(result: ToolResult) -> bool:
    """Return whether a result has more than text, such as an image."""
    return any(not isinstance(block, Text) for block in result.content)


def compare_known_results(
    messages: History,
    known: int,
    results: Mapping[str, ToolResult | None],
    unread: Container[str],
) -> list[ConversationChange]:
    """Return the differences of results that the model got before; none fails if it was `unread`.

    Compared are those after the first `known` messages.
    """
    changes: list[ConversationChange] = []
    backwards = range(len(messages), known, -1)
    last_reply = next((n for n in backwards if messages[n - 1].role == "assistant"), 0)
    for number, message in enumerate(messages[known:], known + 1):
        older = number < last_reply
        for result in message.results:
            sent = results.get(result.call_id)
            if sent is not None and (change := compare_results(sent, result, older=older)):
                level = "shown" if result.call_id in unread else change.level
                changes.append(msgspec.structs.replace(change, message=number, level=level))
    return changes


def compare_heads(known: Request, request: Request) -> list[ConversationChange]:
    """Return the differences between the system prompts, models, parameters and tools."""
    changes: list[ConversationChange] = []
    if known.system != request.system:
        changes.append(ConversationChange("system", *_differing(known.system, request.system)))
    if known.model != request.model:
        changes.append(ConversationChange("model", known.model, request.model))
    names = sorted({*known.parameters, *request.parameters} - UNSEEN_PARAMETERS)
    if changed := [n for n in names if known.parameters.get(n) != request.parameters.get(n)]:
        expected, got = (
            ", ".join(f"{name}={parameters.get(name)!r}" for name in changed)
            for parameters in (known.parameters, request.parameters)
        )
        changes.append(ConversationChange("parameters", _shorten(expected), _shorten(got)))
    if known.tools != request.tools:
        expected, got = _differing_tools(known.tools, request.tools)
        changes.append(ConversationChange("tools", expected, got))
    return changes


def _differing_tools(known: tuple[Tool, ...], tools: tuple[Tool, ...]) -> tuple[str, str]:
    expected, got = {tool.name: tool for tool in known}, {tool.name: tool for tool in tools}
    if set(expected) != set(got):
        removed = [f"without {name}" for name in expected if name not in got]
        added = [f"with {name}" for name in got if name not in expected]
        return _shorten(", ".join(expected)), _shorten(", ".join((*removed, *added)))
    changed = [name for name in expected if expected[name] != got[name]]
    if changed:
        return "the same description and schema", _shorten(f"another one of {', '.join(changed)}")
    return _shorten(", ".join(expected)), _shorten(", ".join(got))


def _differing(expected: str, got: str) -> tuple[str, str]:
    """Return two texts, from the place where they differ if they are long."""
    if max(len(expected), len(got)) > SHOWN_LENGTH:
        expected, got = outgoing(expected), outgoing(got)  # half a secret is not recognised
        start = max(0, common_length(expected, got) - 20)
        expected, got = expected[start:], got[start:]
    return _shorten(expected), _shorten(got)


def _is_repaired(call: ToolCall) -> bool:
    """Return whether the model wrote JSON that clients refuse: they send something else back."""
    if RAW_ARGUMENTS in call.arguments:
        return True
    try:
        msgspec.json.encode(call.arguments, enc_hook=repr)
    except UnicodeEncodeError:  # half a character, which strict parsers do not read
        return True
    return False


def _has_defaults(known: ToolCall, call: ToolCall) -> bool:
    """Return whether a call has more arguments only that are off: Claude Code fills in defaults."""
    given = {name: call.arguments[name] for name in known.arguments if name in call.arguments}
    added = [value for name, value in call.arguments.items() if name not in known.arguments]
    same = call_key(known) == call_key(msgspec.structs.replace(call, arguments=given))
    return same and all(value is None or value is False for value in added)


def _shorten(text: str) -> str:
    return excerpt(" ".join(text.split()), SHOWN_LENGTH)


# -------------------------------------------------------------------------- the tools that ran


def compare_executions(reader: ExecutionReader) -> list[ConversationChange]:
    """Return the differences between the calls and results of a conversation and what ran."""
    changes: list[ConversationChange] = []
    calls = reader.calls
    for run in reader.executions:
        if run.seen and not _is_of_call(run):
            ran = render_call(ToolCall("", run.tool, run.input))
            changes.append(ConversationChange("unasked", "", ran))
    # smolagents sends the results of all calls of a reply as one text.
    texts = Counter((call.reply, call.result and _text_of(call.result)) for call in calls)
    for call in calls:
        asked = ToolCall(call.data.call_id, call.data.tool, call.data.input)
        seen = [run for run in call.executions if run.seen and _is_of_call(run)]
        for run in seen:
            if not _is_same_input(asked.arguments, run.input):
                ran = msgspec.structs.replace(asked, arguments=run.input)
                changes.append(ConversationChange("input", render_call(asked), render_call(ran)))
        if any(run.failed is False for run in seen[:-1]):
            times = f"{asked.name}: {len(seen)} times"
            changes.append(ConversationChange("again", f"{asked.name}: once", times))
        result = call.result
        if result is None:
            continue
        sent = to_result_content(result.content)
        shown = _shorten(f"{asked.name}: {join_text(sent)}")
        if not seen:
            if call.executed is False and not (call.blocked or call.refused or result.is_error):
                text = f"{asked.name}: it did not run"
                changes.append(ConversationChange("unexecuted", text, shown))
        elif (end := seen[-1].end) is not None and end.content is not UNSET and not end.is_error:
            own = to_result_content(end.content)
            joined = texts[call.reply, _text_of(result)] > 1 and join_text(own) in join_text(sent)
            if not joined and not same_result(own, sent):
                text = _shorten(f"{asked.name}: {join_text(own)}")
                changes.append(ConversationChange("returned", text, shown))
    return changes


def find_denied(events: Iterable[Event]) -> dict[str, Any]:
    """Return the start of a tool that ran as a person had denied it; it is empty if none did.

    The events are those of persons and of tools that started and ended. A tool that asks the person
    first has an end that says it did not run.
    """
    events = [*events]
    asked_first = {_execution_of(event) for event in events if event.data.get("ran") is False}
    denied: list[tuple[Any, Any]] = []
    for event in events:
        key = (event.data.get("tool"), event.data.get("input"))
        if event.event == TOOL_START:
            if key in denied and _execution_of(event) not in asked_first:
                return event.data
        elif event.data.get("answer") == "deny":
            denied.append(key)
        elif event.event == PERSON and key in denied:
            denied.remove(key)
    return {}


def _execution_of(event: Event) -> tuple[Any, Any]:
    return event.data.get("call_id"), event.data.get("number", 1)


def _text_of(result: ToolResultData) -> str:
    return join_text(to_result_content(result.content))


def _is_of_call(run: Execution) -> bool:
    """Return whether the tool of a call ran, not another one that it ran; names may be prefixed."""
    return run.call is not None and run.call.data.tool.endswith(run.tool)


def _is_same_input(asked: Any, given: Any) -> bool:
    """Return whether a tool got what the model asked for; a framework fills in and converts."""
    if not isinstance(asked, dict) or not isinstance(given, dict):
        return given is None or asked == given
    arguments, values = cast("dict[str, Any]", asked), cast("dict[str, Any]", given)
    if not arguments.keys() & values.keys():
        return True  # a framework may make one object of all arguments
    return all(
        name in values and (values[name] == value or str(values[name]) == str(value))
        for name, value in arguments.items()
    )


# -------------------------------------------------------------------- the conversations of a run

MAX_CANDIDATES = 8  # conversations that a request is compared with


def find_changes(
    request: Request,
    known: dict[str, Conversation],
    replies: Iterable[Reply],
    beginnings: Container[str],
) -> tuple[list[ConversationChange], str]:
    """Compare a request with the conversation that it continues.

    Return the changes, and the key of this conversation if the request has the end of it.
    `beginnings` has the digests of all beginnings of the known conversations, and the ids of their
    last calls.
    """
    said = Said(replies)
    new: dict[int, NewParts] = {}  # by the number of messages before them
    best: tuple[str, HistoryComparison] | None = None
    for common, key in _find_candidates(request.messages, known, beginnings):
        other = known[key]
        if common not in new:
            new[common] = NewParts(request.messages[common:], common + 1)
        if common < other.start and not new[common].may_continue(other, common):
            continue
        comparison = HistoryComparison(other, new[common], said, common)
        if comparison.continues and (
            best is None
            or (comparison.failures, -comparison.matched) < (best[1].failures, -best[1].matched)
        ):
            best = (key, comparison)
    if best is None:
        count = [message.role for message in request.messages].count("assistant")
        if not count:
            return [], ""
        text = f"{count} message{'s' * (count != 1)} of the model"
        return [ConversationChange("history", "none", text, level="allowed")], ""
    key, comparison = best
    changes = comparison.changes
    if comparison.has_reply:
        changes += compare_heads(known[key].request, request)
    return changes, key if comparison.is_complete else ""


class NewParts(Parts):
    """The parts of a request after the messages that it has in common with a conversation.

    Most requests have no part of most conversations, which is found here without a comparison.
    """

    @cached_property
    def _call_keys(self) -> set[str]:
        calls = [item for item in self.items if item.call is not None]
        return {item.key for item in calls} | {item.call.id for item in calls if item.call}

    @cached_property
    def _texts(self) -> dict[str, TextIndex]:
        return {kind: TextIndex(self.items, kind) for kind in ("user", "text")}

    def may_continue(self, known: Conversation, common: int) -> bool:
        """Return whether they may contain a part of this conversation since its first prompt."""
        messages = known.request.messages[max(common, known.start - 1) :]
        if any(item.kind != "user" for item in self.items):
            messages += (known.reply.message,)
        own = Parts(messages)
        # A client may write the thoughts into the texts.
        return bool(own.thoughts) or any(self._may_have(item) for item in own.items)

    def _may_have(self, known: Item) -> bool:
        if known.call is not None:
            return not self._call_keys.isdisjoint((known.key, known.call.id))
        texts = self._texts[known.kind]
        return bool(texts.find_shorter(known.key) or texts.find_longer(known.key))


def _find_candidates(
    request: History, known: dict[str, Conversation], beginnings: Container[str]
) -> list[tuple[int, str]]:
    """Return the conversations that the request may continue, with their equal first messages.

    First those whose last calls the request has, then by the number of equal messages; the latest
    first.
    """
    blocks = [b for message in request if message.role == "assistant" for b in message.blocks]
    call_ids = {b.id for b in blocks if isinstance(b, ToolCall) and b.id in beginnings}
    calling: list[tuple[int, str]] = []
    others: list[tuple[int, str]] = []
    least, digest = 0, ""  # the equal messages that one more needs to be among the others
    for key, other in reversed(known.items()):
        messages = other.request.messages
        if call_ids and not other.calls.isdisjoint(call_ids):
            insort(calling, (_count_common(request, messages), key), key=_descending)
        elif not least or messages.has_prefix(least, digest):
            insort(others, (_count_common(request, messages), key), key=_descending)
            if len(others) >= MAX_CANDIDATES:
                del others[MAX_CANDIDATES:]
                least = others[-1][0] + 1
                digest = request.digest(least) if least <= len(request) else ""
        if least and not call_ids and digest not in beginnings:
            break  # no earlier one has more in common
    return [*calling, *others][:MAX_CANDIDATES]


def _descending(candidate: tuple[int, str]) -> int:
    return -candidate[0]


def _count_common(one: History, other: History) -> int:
    """Return the number of equal messages at the beginning of two conversations."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one.digest(middle) == other.digest(middle):
            low = middle
        else:
            high = middle - 1
    return low


# --------------------------------------------------------------------------------------- the error


def history_error(changes: Sequence[ConversationChange], exchange: str) -> ScriptMismatch:
    """Return the error for changes that fail a run."""
    first, *others = changes
    lines = [
        f"  where: message {first.message} of request {exchange}",
        f"  expected: {first.expected}",
        f"  got: {first.got}",
        *(f"  also: {change.fact}: {change.got}" for change in others[:5]),
        "  fix: send the conversation as it was; if the agent is meant to change it, add",
        '    lenient=["history"] (--lenient history)',
    ]
    return ScriptMismatch(
        f"the agent changed the conversation: {first.fact}", hint="\n".join(lines)
    )
