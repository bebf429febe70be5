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
from collections import Counter
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import ScriptMismatch
from offbook.exchange.messages import (
    RAW_ARGUMENTS,
    History,
    Message,
    RawBlock,
    Thinking,
    ToolCall,
    ToolResult,
    join_text,
)
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
from offbook.trace.events import UNSET, ConversationChange
from offbook.trace.executions import same_result, to_result_content

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from offbook.exchange.model import Conversation, Reply, Request, Tool
    from offbook.trace.events import ChangeLevel, ToolResultData
    from offbook.trace.executions import ExecutionReader

SHOWN_LENGTH = 120  # of an expected or actual text in a message
MIN_ANCHOR = 6  # characters: a shorter answer, such as "ok", does not identify a conversation

# What an old result becomes when a client clears it to save context. To support another client, add
# its text here.
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


class Said(msgspec.Struct):
    """What the model said in all conversations of a run, for parts that move between them."""

    calls: dict[str, ToolCall] = {}
    texts: set[str] = set()
    thoughts: list[str] = []
    items: dict[str, RawBlock] = {}  # of the provider's tools

    def add(self, message: Message) -> None:
        """Note a reply."""
        for block in message.blocks:
            if isinstance(block, RawBlock):
                self.items[item_key(block)] = block
        for call in message.calls:
            self.calls[call.id] = call
        if text := message.text:
            self.texts.add(text)
        self.thoughts += [block.text for block in message.blocks if isinstance(block, Thinking)]

    def has(self, item: Item) -> bool:
        """Return whether the model said this in any conversation."""
        if item.call is not None:
            call = self.calls.get(item.call.id)
            return call is not None and call_key(call) == item.key
        return any(reply_key(text) == item.key for text in self.texts)


class HistoryComparison:
    """The differences between a known conversation and a request.

    The first `common` messages of both are equal; the first request of the conversation had
    `start`. With `partial`, the model's latest text may be incomplete: its stream can end early.
    """

    def __init__(
        self,
        known: Sequence[Message],
        request: Sequence[Message],
        said: Said,
        *,
        common: int = 0,
        start: int = 1,
        partial: bool = False,
    ) -> None:
        self._start = start
        self._earlier = known[:common]
        self._known = Parts(known[common:], common + 1)
        self._request = Parts(request[common:], common + 1)
        self._said = said
        self._common = common
        self._partial = partial
        self._matches: list[int | None] = []  # of each item of the request: that of the known ones
        self._changes: list[ConversationChange] = []
        self._summaries: set[int] = set()  # the known parts after which a summary is
        self._match_items()
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

    @property
    def continues(self) -> bool:
        """True if the request continues the known conversation, rather than only resembling it.

        What comes before the first prompt, such as examples, many conversations may have.
        """
        if self._common >= self._start:
            return True
        items = [self._known.items[match] for match in self._matches if match is not None]
        items = [item for item in items if item.message >= self._start]
        length = sum(len(item.key) for item in items if item.kind == "text")
        return length >= MIN_ANCHOR or any(item.kind != "text" for item in items)

    @property
    def is_complete(self) -> bool:
        """True if the request has the end of the known conversation."""
        return not self._known.items or self._known.items[-1].used

    @property
    def has_reply(self) -> bool:
        """True if the request contains something that the model said."""
        return any(message.role == "assistant" for message in self._earlier) or any(
            match is not None and item.kind != "user"
            for item, match in zip(self._request.items, self._matches, strict=True)
        )

    def _add(
        self, what: str, message: int, expected: str, got: str, level: ChangeLevel = "fails"
    ) -> None:
        shown = (_shorten(expected), _shorten(got))
        self._changes.append(ConversationChange(what, *shown, message, level))

    # --- Which part of the request is which part of the known conversation

    def _match_items(self) -> None:
        known = self._known.items
        reached, latest_prompt = 0, -1
        for item in self._request.items:
            if item.call is None:
                match = self._find_text(item, reached)
                if match is None and item.kind == "text" and self._remove_thoughts(item):
                    match = self._find_text(item, reached) if item.key else None
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
        calls = [(n, k) for n, k in enumerate(self._known.items) if k.call and not k.used]
        same = [(n, k) for n, k in calls if k.call and k.call.id == call.id]
        if not same:  # the client made another id
            same = [(n, k) for n, k in calls if k.key == item.key and k.position >= reached]
        # A source may use one id again.
        same.sort(key=lambda entry: (entry[1].position < reached, entry[1].key != item.key))
        for number, known in same[:1]:
            known.used = True
            if known.key != item.key and not (
                known.call and (_is_repaired(known.call) or _has_defaults(known.call, call))
            ):
                what = "arguments" if known.call and known.call.name == call.name else "call"
                self._add(what, item.message, known.shown, item.shown)
            return number
        return None

    def _find_text(self, item: Item, reached: int) -> int | None:
        """Return the text of the known conversation that this one is, or that it is a part of."""
        texts = [(n, k) for n, k in enumerate(self._known.items) if k.kind == item.kind and k.rest]
        texts.sort(key=lambda entry: entry[1].position < reached)
        for number, known in texts:
            if known.rest == item.key:
                known.use()
                return number
        for index, (number, known) in enumerate(texts):
            if item.key.startswith(known.rest):  # several texts as one
                end, joined = index, known.rest
                while len(joined) < len(item.key) and end + 1 < len(texts):
                    end += 1
                    joined += texts[end][1].rest
                if joined == item.key:
                    for _, part in texts[index : end + 1]:
                        part.use()
                    return number
        for number, known in texts:
            following = self._following_texts(item)
            continued = following and known.rest.startswith(item.key + following)
            if known.rest.startswith(item.key) and (  # one text as several
                continued or self._is_partial(item, number)
            ):
                known.rest = known.rest[len(item.key) :] if following else ""
                known.used = True
                return number
        return None

    def _remove_thoughts(self, item: Item) -> bool:
        """Remove the model's thinking from a text: some clients send it back as a part of it."""
        whole = item.key
        for thought, _ in self._known.thoughts:
            item.key = item.key.removeprefix(text_key(thought))
        return item.key != whole

    def _following_texts(self, item: Item) -> str:
        """Return the next text of the request, if it may be a part of the same one."""
        later = iter(self._request.items)
        for other in later:
            if other is item:
                break
        return next((other.key for other in later if other.kind == item.kind), "")

    def _is_partial(self, item: Item, number: int) -> bool:
        return self._partial and item.kind == "text" and number == self._last_text()

    def _last_text(self) -> int:
        texts = [n for n, item in enumerate(self._known.items) if item.kind == "text"]
        return texts[-1] if texts else -1

    # --- What it means

    def _compare_results(self) -> None:
        known = self._known.results
        own_ids: dict[str, str] = {}  # by the id that the client made of it
        for item, match in zip(self._request.items, self._matches, strict=True):
            if match is not None and item.call and (call := self._known.items[match].call):
                own_ids[item.call.id] = call.id
        for sent_id, (result, message) in self._request.results.items():
            call_id = own_ids.get(sent_id, sent_id)
            if call_id in known and (change := compare_results(known[call_id][0], result)):
                self._changes.append(msgspec.structs.replace(change, message=message))

    def _compare_provided(self) -> None:
        """Compare what the tools of the provider did; a client may leave out empty fields."""
        known = {item_key(block): block for block, _ in self._known.provided}
        earlier = {item_key(block) for block, _ in Parts(self._earlier).provided}
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
        if not self.has_reply:
            return
        own = (*self._known.thoughts, *Parts(self._earlier).thoughts)
        known, ends = "", {0}
        for text in (*(text for text, _ in own), *self._said.thoughts):
            known += text_key(text)
            ends.add(len(known))
        for thought, message in self._request.thoughts:
            key = text_key(thought)
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
        items = self._request.items
        for index, item in enumerate(items):
            if self._matches[index] is None and item.key:
                before = max((m for m in self._matches[:index] if m is not None), default=-1)
                after = min((m for m in self._matches[index:] if m is not None), default=None)
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
        gap = self._gap(before, after)
        if not shared and after is None:  # nothing in common
            return
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
            for other, match in zip(self._request.items, self._matches, strict=True)
        )
        if continues:
            self._add(what, item.message, expected, item.shown)

    def _is_repeated(self, item: Item) -> bool:
        others = (*Parts(self._earlier).items, *self._known.items)
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
                self._add("dropped", item.message, item.shown, "nothing")
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


def compare_results(known: ToolResult, result: ToolResult) -> ConversationChange | None:
    """Return the difference between a result and the same one of an earlier request."""
    expected, got = result_key(known), result_key(result)
    texts = _differing(render_result(known), render_result(result))
    if known.name != result.name and known.name and result.name:
        sides = (f"{known.name}: {texts[0]}", f"{result.name}: {texts[1]}")
        return ConversationChange("result", *sides, level="fails")
    if expected == got:
        if known.failed is None or result.failed is None or known.failed == result.failed:
            return None
        words = {True: " (an error)", False: " (no error)"}
        sides = (texts[0] + words[known.failed], texts[1] + words[result.failed])
        return ConversationChange("result", *sides, level="fails")
    if CLEARED.fullmatch(result.text.strip()):
        return ConversationChange("dropped", *texts)
    common = next(
        (n for n, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b),
        min(len(expected), len(got)),
    )
    # The beginning of a result, and a remark that it was cut, or enough to be a limit of a client.
    remark = got[common:]
    if 0 < common < len(expected) and (remark or common >= MIN_CUT) and CUT.fullmatch(remark):
        return ConversationChange("dropped", *texts)
    return ConversationChange("result", *texts, level="fails")


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
    start = next(
        (n for n, pair in enumerate(zip(expected, got, strict=False)) if pair[0] != pair[1]),
        min(len(expected), len(got)),
    )
    is_long = max(len(expected), len(got)) > SHOWN_LENGTH
    start = max(0, start - 20) if is_long else 0
    return _shorten(expected[start:]), _shorten(got[start:])


def _is_repaired(call: ToolCall) -> bool:
    """Return whether the model wrote invalid JSON: clients send something else back."""
    return RAW_ARGUMENTS in call.arguments


def _has_defaults(known: ToolCall, call: ToolCall) -> bool:
    """Return whether a call has more arguments only that are off: Claude Code fills in defaults."""
    given = {name: call.arguments[name] for name in known.arguments if name in call.arguments}
    added = [value for name, value in call.arguments.items() if name not in known.arguments]
    same = call_key(known) == call_key(msgspec.structs.replace(call, arguments=given))
    return same and all(value is None or value is False for value in added)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_LENGTH else f"{line[: SHOWN_LENGTH - 1]}…"


# -------------------------------------------------------------------------- the tools that ran


def compare_executions(reader: ExecutionReader) -> list[ConversationChange]:
    """Return the differences between the calls and results of a conversation and what ran."""
    changes: list[ConversationChange] = []
    calls = reader.calls
    for run in reader.executions:
        if run.call is None and run.seen:
            ran = render_call(ToolCall("", run.tool, run.input))
            changes.append(ConversationChange("unasked", "", ran))
    # smolagents sends the results of all calls of a reply as one text.
    texts = Counter((call.reply, call.result and _text_of(call.result)) for call in calls)
    for call in calls:
        asked = ToolCall(call.data.call_id, call.data.tool, call.data.input)
        seen = [execution for execution in call.executions if execution.seen]
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


def _text_of(result: ToolResultData) -> str:
    return join_text(to_result_content(result.content))


def _is_same_input(asked: Any, given: Any) -> bool:
    """Return whether a tool got what the model asked for; a framework fills in and converts."""
    if not isinstance(asked, dict) or not isinstance(given, dict):
        return given is None or asked == given
    values = cast("dict[str, Any]", given)
    return all(
        name not in values or values[name] == value or str(values[name]) == str(value)
        for name, value in cast("dict[str, Any]", asked).items()
    )


# -------------------------------------------------------------------- the conversations of a run

MAX_CANDIDATES = 8  # conversations that a request is compared with


def find_changes(
    request: Request, known: Mapping[str, Conversation], replies: Iterable[Reply]
) -> tuple[list[ConversationChange], str]:
    """Compare a request with the conversation that it continues.

    Return the changes, and the key of this conversation if the request has the end of it.
    """
    said = Said({}, set(), [], {})
    for reply in replies:
        said.add(reply.message)
    best: tuple[str, HistoryComparison] | None = None
    messages = request.messages[:]
    for common, key in _find_candidates(request.messages, known):
        other = known[key]
        comparison = HistoryComparison(
            (*other.request.messages, other.reply.message),
            messages,
            said,
            common=common,
            start=other.start,
            # a stream can end early
            partial=other.request.stream or other.reply.fault is not None,
        )
        if comparison.continues and (
            best is None
            or (comparison.failures, -comparison.matched) < (best[1].failures, -best[1].matched)
        ):
            best = (key, comparison)
    if best is None:
        count = sum(message.role == "assistant" for message in messages)
        if not count:
            return [], ""
        text = f"{count} message{'s' * (count != 1)} of the model"
        return [ConversationChange("history", "none", text, level="allowed")], ""
    key, comparison = best
    changes = comparison.changes
    if comparison.has_reply:
        changes += compare_heads(known[key].request, request)
    return changes, key if comparison.is_complete else ""


def _find_candidates(request: History, known: Mapping[str, Conversation]) -> list[tuple[int, str]]:
    """Return the conversations that the request may continue, with their equal first messages."""
    ids = {call.id for message in request for call in message.calls}
    found: list[tuple[bool, int, int, str]] = []
    for age, (key, other) in enumerate(known.items()):
        shares_call = any(call.id in ids for call in other.reply.calls)
        found.append((shares_call, _count_common(request, other.request.messages), age, key))
    found.sort(reverse=True)
    return [(common, key) for _, common, _, key in found[:MAX_CANDIDATES]]


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
