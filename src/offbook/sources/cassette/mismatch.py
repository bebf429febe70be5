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

from offbook.errors import ReplayMismatch, nearest
from offbook.sources.cassette.normal import Normal, merge_rules, view
from offbook.sources.cassette.volatile import Hint, suggest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offbook.sources.cassette.index import Entry
    from offbook.sources.cassette.tape import Tape

SHOWN = 500
WINDOW = 72
COMPARED = 40
ENOUGH = 4000
DIFFERENCES = 3
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"[A-Za-z0-9_./:@~-]")
Leaves = dict[str, Any]


class Asking(msgspec.Struct, frozen=True):
    """A request that found no answer: its hash, and all of it as one JSON value."""

    hat: str
    hash: str
    body: dict[str, Any]


def explain(
    tape: Tape,
    hashes: list[str],
    taken: set[int],
    normal: Normal,
    asking: Asking,
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
            *_tell_near(near, how, taken, expected, same=hashes[near.number - 1] == asking.hash),
        ]
        lines += _compare(tape, normal, asking, near, same=hashes[near.number - 1] == asking.hash)
    at = expected or near
    if at is not None:
        again = again or f"offbook record {tape.path} --only {{number}} -- COMMAND"
        only = "only this one" if "{number}" in again else "it"
        lines.append(f"To record {only} again: {again.replace('{number}', str(at.number), 1)}")
    return ReplayMismatch("\n".join(lines))


def _opening(
    tape: Tape, asking: Asking, expected: Entry | None, hashes: list[str]
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
        yield f"Hats: {nearest(asking.hat, hats)}"
        return
    count = sum(entry.hat == asking.hat for entry in tape.entries)
    yield (
        f"Replay exhausted: all {count} interactions of the hat {asking.hat!r} were given, "
        "and the agent asked again"
    )
    yield f"Actual hash:   {asking.hash}"


def _nearest(
    tape: Tape, hashes: list[str], normal: Normal, asking: Asking, expected: Entry | None
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


def recorded_body(tape: Tape, entry: Entry, normal: Normal) -> dict[str, Any]:
    """A recorded request as one JSON value, normalised by these rules."""
    asked = tape.read(entry).request
    if asked.prompt is not None:
        return {"prompt": normal.tidy(asked.prompt)}
    head = normal.head(
        msgspec.structs.replace(asked, **msgspec.structs.asdict(tape.head(entry, asked)))
    )
    messages = [normal.message(m, at) for at, m in enumerate(tape.messages(entry))]
    return view(head, messages)


def _tell_near(
    near: Entry, how: float, taken: set[int], expected: Entry | None, *, same: bool
) -> Iterator[str]:
    name = f"Interaction {near.number} (hat: {near.hat})"
    if same and near.number in taken:
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
    tape: Tape, normal: Normal, asking: Asking, near: Entry, *, same: bool
) -> Iterator[str]:
    if same:
        return
    recorded = flatten(recorded_body(tape, near, normal))
    current = flatten(asking.body)
    paths = [path for path in {**recorded, **current} if recorded.get(path) != current.get(path)]
    if not paths:
        yield "The two are equal now: the request was edited, or hashed by other rules."
        yield f"To make the hashes anew: offbook cassette upgrade {tape.path}"
        return
    more = f" and {len(paths) - DIFFERENCES} more" if len(paths) > DIFFERENCES else ""
    yield f"Differs at: {', '.join(paths[:DIFFERENCES])}{more}"
    yield ""
    yield "Prompt diff (first 500 chars):"
    yield from _diffs(paths, recorded, current)
    hint = _find_hint(tape, normal, asking, near, paths, recorded, current)
    if hint is not None:
        written = msgspec.json.format(msgspec.json.encode(hint.rules), indent=0).decode()
        yield f"Hint: Add redaction for {hint.about}: {written}"
        yield "      (tried: with it, this request is the recorded one)"


def _diffs(paths: list[str], recorded: Leaves, current: Leaves) -> Iterator[str]:
    left = SHOWN
    for path in paths[:DIFFERENCES]:
        for line in diff_texts(_said(recorded.get(path)), _said(current.get(path))):
            if left <= 0:
                yield "…"
                return
            yield line
            left -= len(line)


def _said(value: Any) -> str:
    return (
        value
        if isinstance(value, str)
        else ""
        if value is None
        else msgspec.json.encode(value).decode()
    )


def flatten(value: Any, path: str = "$") -> Leaves:
    """Each text, number and so on of a JSON value, by its path."""
    if isinstance(value, dict) and value:
        fields = cast("dict[str, Any]", value)
        parts = (
            (f"{path}.{k}" if _PLAIN.fullmatch(k) else f"{path}['{k}']", v)
            for k, v in fields.items()
        )
    elif isinstance(value, (list, tuple)) and value:
        parts = ((f"{path}[{at}]", item) for at, item in enumerate(cast("list[Any]", value)))
    else:
        return {path: value}
    return {name: leaf for place, held in parts for name, leaf in flatten(held, place).items()}


def diff_texts(recorded: str, current: str) -> Iterator[str]:
    """The lines that differ, the differing span of each pair marked below it."""
    old, new = recorded.split("\n"), current.split("\n")
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
    start, stop = _span(before, after)
    first = max(0, start - WINDOW // 2) if len(after) > WINDOW or len(before) > WINDOW else 0
    lead = "…" if first else ""
    yield f"- {lead}{_cut(before[first:])}"
    yield f"+ {lead}{_cut(after[first:])}"
    width = max(1, min(stop, first + WINDOW) - start)
    yield " " * (2 + len(lead) + start - first) + "^" * width


def _span(before: str, after: str) -> tuple[int, int]:
    """Where `after` differs from `before`, widened to whole words."""
    shortest = min(len(before), len(after))
    start = next((i for i in range(shortest) if before[i] != after[i]), shortest)
    same = 0
    while same < shortest - start and before[-1 - same] == after[-1 - same]:
        same += 1
    stop = len(after) - same
    while start and _WORD.match(after[start - 1]):
        start -= 1
    while stop < len(after) and _WORD.match(after[stop]):
        stop += 1
    while stop - start > 1 and stop > len(after) - same and after[stop - 1] in ".:/-":
        stop -= 1
    while start < stop - 1 and after[start].isspace():
        start += 1
    return start, max(stop, start + 1)


def _cut(text: str) -> str:
    return text if len(text) <= WINDOW + 1 else f"{text[:WINDOW]}…"


def _find_hint(
    tape: Tape,
    normal: Normal,
    asking: Asking,
    near: Entry,
    paths: list[str],
    recorded: Leaves,
    current: Leaves,
) -> Hint | None:
    pairs = [(path, _said(recorded.get(path)), _said(current.get(path))) for path in paths]
    if any(path not in recorded or path not in current for path in paths):
        pairs = [pair for pair in pairs if pair[0] in recorded and pair[0] in current]
    for hint in suggest(pairs):
        rules = merge_rules(normal.rules, hint.rules)
        tried = Normal(rules, roots=normal.roots)
        if _squeezed(tried, recorded_body(tape, near, tried)) == _squeezed(tried, asking.body):
            return hint
    return None


def _squeezed(normal: Normal, body: dict[str, Any]) -> Any:
    return normal.squeezed(body)
