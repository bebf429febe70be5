"""What a replay says when it was asked something that was not recorded.

It is the message that people meet most. So it says what was expected and what came, which
recorded request is nearest and how near, where the two differ and by what, which redaction would
make them equal (tried before it is told), and how to record this one interaction again.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import ReplayMismatch, did_you_mean
from offbook.sources.cassette.normalize import Normalizer, merge_rules, request_as_json
from offbook.sources.cassette.redaction_hints import TOKEN, RedactionHint, suggest_redactions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offbook.sources.cassette.cassette_file import CassetteFile, Entry

SHOWN = 500
WINDOW = 72
COMPARED = 40
ENOUGH = 4000
DIFFERENCES = 3
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class UnmatchedRequest(msgspec.Struct, frozen=True):
    """A request that found no answer: its hash, and all of it as one JSON value."""

    hat: str
    hash: str
    body: dict[str, Any]


def explain_mismatch(
    tape: CassetteFile,
    hashes: list[str],
    taken: set[int],
    normal: Normalizer,
    asking: UnmatchedRequest,
    expected: Entry | None,
    again: str = "",
) -> ReplayMismatch:
    """The error for a request that is not the one that was recorded.

    `again` is the command that records anew; {number} in it is the interaction's.
    """
    near, how = _nearest(tape, hashes, normal, asking, expected)
    lines = [*_opening(tape, asking, expected, hashes)]
    if near is not None:
        lines += [
            "",
            *_tell_near(near, how, taken, expected, asking, hashes[near.number - 1]),
        ]
        lines += _compare(tape, normal, asking, near, same=hashes[near.number - 1] == asking.hash)
    again = again or f"offbook record {tape.path} --only {{number}} -- COMMAND"
    moved = near is not None and hashes[near.number - 1] == asking.hash
    lines.append(_advise(again, None if moved else expected))
    return ReplayMismatch("\n".join(lines))


def _advise(again: str, expected: Entry | None) -> str:
    """How to record anew: one interaction, where no other has to change with it."""
    if expected is not None and "{number}" in again:
        return (
            f"To record only this one again: {again.replace('{number}', str(expected.number), 1)}"
        )
    return f"To record it again: {again.replace('--only {number}', '--replace', 1)}"


def _opening(
    tape: CassetteFile, asking: UnmatchedRequest, expected: Entry | None, hashes: list[str]
) -> Iterator[str]:
    if expected is not None:
        yield f"Replay mismatch at interaction {expected.number} (hat: {asking.hat})"
        yield f"Expected hash: {hashes[expected.number - 1]}"
        yield f"Actual hash:   {asking.hash}"
        return
    hats = {entry.hat for entry in tape.entries}
    if asking.hat not in hats:
        yield f"Replay mismatch: nothing was recorded for the hat {asking.hat!r}"
        yield f"Actual hash:   {asking.hash}"
        yield f"Hats: {did_you_mean(asking.hat, hats)}"
        return
    count = sum(entry.hat == asking.hat for entry in tape.entries)
    yield (
        f"Replay exhausted: all {count} interactions of the hat {asking.hat!r} were given, "
        "and the agent asked again"
    )
    yield f"Actual hash:   {asking.hash}"


def _nearest(
    tape: CassetteFile,
    hashes: list[str],
    normal: Normalizer,
    asking: UnmatchedRequest,
    expected: Entry | None,
) -> tuple[Entry | None, float]:
    for entry in tape.entries:
        if hashes[entry.number - 1] == asking.hash and entry.hat == asking.hat:
            return entry, 1.0
    middle = expected.number if expected else len(tape.entries)
    known = [entry for entry in tape.entries if entry.kept]
    known.sort(key=lambda entry: (entry.hat != asking.hat, abs(entry.number - middle)))
    text = _outline(asking.body)
    best: tuple[Entry | None, float] = (None, 0.0)
    for entry in known[:COMPARED]:
        matcher = SequenceMatcher(
            None, _outline(recorded_body(tape, entry, normal)), text, autojunk=False
        )
        if matcher.quick_ratio() > best[1]:
            ratio = matcher.ratio()
            if ratio > best[1]:
                best = entry, ratio
    return best


def _outline(body: dict[str, Any]) -> str:
    """The end of a request, which is what tells it from others."""
    messages = cast("list[Any]", body.get("messages", [body.get("prompt", "")]))
    text = msgspec.json.encode(messages).decode()
    return text[-ENOUGH // 2 :]


def recorded_body(tape: CassetteFile, entry: Entry, normal: Normalizer) -> dict[str, Any]:
    """A recorded request as one JSON value, normalised by these rules."""
    asked = tape.read(entry).request
    if asked.prompt is not None:
        return {"prompt": normal.tidy(asked.prompt)}
    head = normal.head(
        msgspec.structs.replace(asked, **msgspec.structs.asdict(tape.head(entry, asked)))
    )
    messages = [normal.message(m, at) for at, m in enumerate(tape.messages(entry))]
    return request_as_json(head, messages)


def _tell_near(
    near: Entry,
    how: float,
    taken: set[int],
    expected: Entry | None,
    asking: UnmatchedRequest,
    hash_: str,
) -> Iterator[str]:
    name = f"Interaction {near.number} (hat: {near.hat})"
    same = hash_ == asking.hash
    if same and near.hat != asking.hat:
        yield f"{name} is this very request, under another hat."
    elif same and near.number in taken:
        yield f"{name} is this very request; it was given already."
    elif same:
        yield f"{name} is this very request: the order has changed since the recording."
    else:
        which = (
            "the expected one"
            if near is expected
            else f"interaction {near.number} (hat: {near.hat})"
        )
        yield f"Nearest recorded request: {which}, {_percent(how)} alike"


def _percent(how: float) -> str:
    return f"{min(99.9, how * 100):.1f} %"


def _compare(
    tape: CassetteFile, normal: Normalizer, asking: UnmatchedRequest, near: Entry, *, same: bool
) -> Iterator[str]:
    if same:
        return
    changes = list(find_differences(recorded_body(tape, near, normal), asking.body))
    if not changes:
        yield "The two are equal now: the request was edited, or hashed by other rules."
        yield f"To make the hashes anew: offbook cassette upgrade {tape.path}"
        return
    more = f" and {len(changes) - DIFFERENCES} more" if len(changes) > DIFFERENCES else ""
    yield f"Differs at: {', '.join(map(_place, changes[:DIFFERENCES]))}{more}"
    yield ""
    yield "Prompt diff (first 500 chars):"
    yield from _diffs(changes)
    hint = _find_hint(tape, normal, asking, near, changes)
    if hint is not None:
        written = msgspec.json.format(msgspec.json.encode(hint.rules), indent=0).decode()
        yield f"Hint: Add redaction for {hint.about}: {written}"
        yield "      (tried: with it, this request is the recorded one)"


def _place(change: Difference) -> str:
    gone, new = change.now is None, change.was is None
    return f"{change.path}{' (gone)' if gone else ' (new)' if new else ''}"


def _diffs(changes: list[Difference]) -> Iterator[str]:
    left = SHOWN
    for change in changes[:DIFFERENCES]:
        if len(changes) > 1:
            yield f"  at {change.path}:"
        for line in diff_texts(change.was, change.now):
            if left <= 0:
                yield "…"
                return
            yield line
            left -= len(line)


class Difference(msgspec.Struct, frozen=True):
    """What differs at a path, as texts; None where there is nothing."""

    path: str
    was: str | None
    now: str | None


def find_differences(was: Any, now: Any, path: str = "$") -> Iterator[Difference]:
    """Where two JSON values differ; what was put into a list, or taken out, is one change."""
    if was == now:
        return
    if isinstance(was, dict) and isinstance(now, dict):
        before, after = cast("dict[str, Any]", was), cast("dict[str, Any]", now)
        for name in {**before, **after}:
            inner = f"{path}.{name}" if _PLAIN.fullmatch(name) else f"{path}['{name}']"
            yield from find_differences(before.get(name), after.get(name), inner)
    elif isinstance(was, list) and isinstance(now, list):
        yield from _list_changes(cast("list[Any]", was), cast("list[Any]", now), path)
    else:
        yield Difference(path, _said(was), _said(now))


def _list_changes(was: list[Any], now: list[Any], path: str) -> Iterator[Difference]:
    keys = [[_key(item) for item in items] for items in (was, now)]
    for kind, a, b, c, d in SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        if kind in {"equal", "replace"} and b - a == d - c:
            for at in range(b - a):
                yield from find_differences(was[a + at], now[c + at], f"{path}[{c + at}]")
            continue
        yield from (Difference(f"{path}[{at}]", _said(was[at]), None) for at in range(a, b))
        yield from (Difference(f"{path}[{at}]", None, _said(now[at])) for at in range(c, d))


def _key(item: Any) -> str:
    """By what an item of a list is known to be the same: a tool by its name."""
    fields = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
    if "schema" in fields:
        return _said(fields.get("name")) or ""
    return msgspec.json.encode(item).decode()


def _said(value: Any) -> str | None:
    """A value in words: a message by who says what, a tool by what it is for, all else as JSON."""
    if value is None or isinstance(value, str):
        return value
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    blocks = cast("list[dict[str, Any]]", fields.get("blocks") or ())
    if blocks and all(block.get("type") == "text" for block in blocks):
        return f"{fields['role']}: " + "\n".join(str(block["text"]) for block in blocks)
    if "schema" in fields:
        return f"{fields.get('name')}: {fields.get('description')}"
    return msgspec.json.encode(value).decode()


def diff_texts(recorded: str | None, current: str | None) -> Iterator[str]:
    """The lines that differ, the differing spans of each pair marked below it."""
    old, new = ([] if text is None else text.split("\n") for text in (recorded, current))
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            yield from (f"  {_cut(line)}" for line in old[max(a, b - 1) : b])
            continue
        for at in range(max(b - a, d - c)):
            before = old[a + at] if a + at < b else None
            after = new[c + at] if c + at < d else None
            yield from _pair(before, after)


def _pair(before: str | None, after: str | None) -> Iterator[str]:
    if before is None or after is None:
        yield f"- {_cut(before)}" if before is not None else f"+ {_cut(after or '')}"
        return
    spans = list(_spans(before, after))
    first = 0
    if len(after) > WINDOW or len(before) > WINDOW:
        first = max(0, spans[0][0] - WINDOW // 2)
    lead = "…" if first else ""
    yield f"- {lead}{_cut(before[first:])}"
    yield f"+ {lead}{_cut(after[first:])}"
    marks = ""
    for start, stop in spans:
        if start - first <= WINDOW:
            marks = marks.ljust(start - first) + "^" * max(1, min(stop, first + WINDOW) - start)
    yield " " * (2 + len(lead)) + marks


def _spans(before: str, after: str) -> Iterator[tuple[int, int]]:
    """Where `after` says something else than `before`, word by word."""
    old, new = TOKEN.findall(before), TOKEN.findall(after)
    starts = [0]
    for token in new:
        starts.append(starts[-1] + len(token))
    end = 0
    for kind, _, _, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            start, stop = starts[c], max(starts[d], starts[c] + 1)
            yield max(start, end), stop
            end = stop


def _cut(text: str) -> str:
    return text if len(text) <= WINDOW + 1 else f"{text[:WINDOW]}…"


def _find_hint(
    tape: CassetteFile,
    normal: Normalizer,
    asking: UnmatchedRequest,
    near: Entry,
    changes: list[Difference],
) -> RedactionHint | None:
    """The redaction that makes the two equal, with nothing in it that is not needed."""

    def fits(rules: dict[str, Any]) -> bool:
        tried = Normalizer(merge_rules(normal.rules, rules), roots=normal.roots)
        recorded = recorded_body(tape, near, tried)
        return bool(tried.squeezed(recorded) == tried.squeezed(asking.body))

    pairs = [(one.path, one.was, one.now) for one in changes if one.was and one.now]
    found = next((hint for hint in suggest_redactions(pairs) if fits(hint.rules)), None)
    return found and found.without_needless(fits)
