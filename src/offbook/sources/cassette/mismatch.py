"""The message of a replay that received a request which was not recorded.

It is the message that people meet most. First comes what differs, from the nearest recorded
request, then a redaction that would make the two equal (tested before it is suggested) and the
command that records again. Every command works when pasted.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import ReplayMismatch, did_you_mean
from offbook.secrets import MASK, excerpt, outgoing
from offbook.sources.cassette.format import Normalizer, merge_rules, preview, request_as_json
from offbook.trace.matching import align_runs, similarity, split_words
from offbook.trace.redaction import RedactionHint, suggest_redactions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offbook.sources.cassette.cassette_file import CassetteFile, Entry

DIFF_LENGTH = 500
LINE_WIDTH = 72
MAX_CANDIDATES = 40  # recorded requests that are compared with the new one
COMPARED_LENGTH = 2000
MAX_DIFFERENCES = 3
SHORT_HASH = len("sha256:") + 12
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class UnmatchedRequest(msgspec.Struct, frozen=True):
    """A request without a recorded reply: its hash, and its stored form as one JSON value.

    `prompt` is the latest one that a person wrote, if the body contains more than that.
    """

    hat: str
    hash: str
    body: dict[str, Any]
    prompt: str = ""


class Difference(msgspec.Struct, frozen=True):
    """A difference at a path, as texts; None if there is no value on that side."""

    path: str
    recorded: str | None
    current: str | None


def explain_mismatch(
    file: CassetteFile,
    hashes: list[str],
    used: set[int],
    normalizer: Normalizer,
    request: UnmatchedRequest,
    expected: Entry | None,
    record_command: str = "",
) -> ReplayMismatch:
    """Return the error for a request that does not match the recording.

    `expected` is the next interaction of this hat, if there is one. `record_command` records
    again; `--only {number}` in it is replaced by the option that is needed.
    """
    # 1. The fact: another request, an unknown hat, or one request too many.
    lines: list[str] = []
    hats = {entry.hat for entry in file.entries}
    if expected is not None:
        lines.append(f"Replay mismatch at interaction {expected.number} (hat: {request.hat})")
    elif request.hat not in hats:
        lines.append(f"Replay mismatch: nothing was recorded for the hat {request.hat!r}")
        lines.append(f"Hats: {did_you_mean(request.hat, hats)}")
    else:
        count = sum(entry.hat == request.hat for entry in file.entries)
        lines.append(
            f"Replay exhausted: all {count} interactions of the hat {request.hat!r} were "
            "replayed, and the agent sent another request"
        )

    # 2. The nearest recorded request: the same one elsewhere, or a similar one and the difference.
    nearest, similarity = _find_nearest(file, hashes, normalizer, request, expected)
    moved = nearest is not None and hashes[nearest.number - 1] == request.hash
    outdated: list[int] = []
    prompt = request.prompt
    facts, lines = lines, []
    if nearest is not None:
        name = f"interaction {nearest.number} (hat: {nearest.hat})"
        if not moved:
            recorded = recorded_body(file, nearest, normalizer)
            which = "the expected one" if nearest is expected else name
            alike = f"{min(99.9, similarity * 100):.1f} % similar"  # 100.0 would read as equal
            if recorded.get("messages", 0) == request.body.get("messages"):
                alike = "with the same messages"
            lines.append(f"Nearest recorded request: {which}, {alike}")
            differences = list(find_differences(recorded, request.body))
            for value in _values_hidden_by_recording(differences):
                prompt = prompt.replace(value, MASK)
            lines += _compare(file, normalizer, request, nearest, differences)
            if nearest is expected:
                outdated = _outdated(file, nearest, differences)
        elif nearest.hat != request.hat:
            lines.append(f"The same request is {name}, recorded under another hat.")
        elif nearest.number in used:
            lines.append(f"The same request is {name}, which was already replayed.")
        else:
            lines.append(f"The same request is {name}: the order has changed since the recording.")

    if prompt:
        facts.append(f'Prompt: "{preview(" ".join(prompt.split()))}"')
    lines = [*facts, *lines]

    # 3. The command that records again: the one interaction, what is missing, or everything.
    if expected is None and request.hat in hats and not moved:
        option = "--append"
    elif expected is None or moved or outdated:
        option = "--replace"
    else:
        option = f"--only {expected.number}"
    command = record_again(file, option, record_command)
    if outdated:
        numbers = format_numbers(outdated, separator=", ")
        lines.append(f"Recorded with the old request, and outdated, too: {numbers}")
    lines.append(f"Fix, if the change is intended: {command}")

    # 4. The hashes, for those who look for them in the file.
    if expected is not None:
        lines.append(f"Expected hash: {_short_hash(hashes[expected.number - 1])}")
    lines.append(f"Actual hash:   {_short_hash(request.hash)}")
    return ReplayMismatch("\n".join(lines))


def _short_hash(hash_: str) -> str:
    return hash_ if len(hash_) <= SHORT_HASH else f"{hash_[:SHORT_HASH]}..."


def record_again(file: CassetteFile, option: str, record_command: str = "") -> str:
    """Return what records a cassette again: the given or the recorded command, or Python."""
    if record_command:
        return record_command.replace("--only {number}", option, 1)
    command = file.header.metadata.get("command")
    argv: Any = cast("dict[str, Any]", command).get("argv") if isinstance(command, dict) else None
    if argv:
        path = shlex.quote(str(file.path))
        return f"offbook record {path} {option} -- {shlex.join(map(str, argv))}"
    argument = "append" if option == "--append" else "replace"
    return f"Recording(Live(), {str(file.path)!r}, {argument}=True)"


def _outdated(file: CassetteFile, changed: Entry, differences: list[Difference]) -> list[int]:
    """Return the other interactions whose replies answer the old version of a request.

    These are all of them if the model, the system prompt, the tools or the options have changed,
    otherwise the rest of the conversation.
    """
    if any(not d.path.startswith(("$.messages", "$.prompt")) for d in differences):
        return [entry.number for entry in file.entries if entry.number != changed.number]
    return file.continuations(changed)


def format_numbers(numbers: list[int], separator: str = ",") -> str:
    """Return interaction numbers as `cassette edit --trim` reads them: 1,4-6."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        start = ranges.pop()[0] if ranges and ranges[-1][1] == number - 1 else number
        ranges.append((start, number))
    return separator.join(f"{a}-{b}" if a < b else f"{a}" for a, b in ranges)


def _find_nearest(
    file: CassetteFile,
    hashes: list[str],
    normalizer: Normalizer,
    request: UnmatchedRequest,
    expected: Entry | None,
) -> tuple[Entry | None, float]:
    """Return the most similar recorded request, and how similar it is from 0 to 1."""
    for entry in file.entries:
        if hashes[entry.number - 1] == request.hash and entry.hat == request.hat:
            return entry, 1.0
    # The comparison is quadratic, so only some are tried: the same hat and the neighbours first.
    position = expected.number if expected else len(file.entries)
    candidates = [entry for entry in file.entries if entry.has_request]
    candidates.sort(key=lambda entry: (entry.hat != request.hat, abs(entry.number - position)))
    text = _comparable_text(request.body)
    best: tuple[Entry | None, float] = (None, 0.0)
    for entry in candidates[:MAX_CANDIDATES]:
        recorded = _comparable_text(recorded_body(file, entry, normalizer))
        if (ratio := similarity(recorded, text, above=best[1])) > best[1]:
            best = entry, ratio
    return best


def _comparable_text(body: dict[str, Any]) -> str:
    """Return the end of a request: its beginning is the same in most requests of a run."""
    messages = cast("list[Any]", body.get("messages", [body.get("prompt", "")]))
    return msgspec.json.encode(messages).decode()[-COMPARED_LENGTH:]


def recorded_body(file: CassetteFile, entry: Entry, normalizer: Normalizer) -> dict[str, Any]:
    """Return a recorded request as one JSON value, normalized by these rules."""
    request = file.read(entry).request
    if request.prompt is not None:
        return {"prompt": normalizer.clean_text(request.prompt)}
    stored = msgspec.structs.asdict(file.settings(entry, request))
    settings = normalizer.settings(msgspec.structs.replace(request, **stored))
    messages = [normalizer.clean_message(m, i) for i, m in enumerate(file.messages(entry))]
    return request_as_json(settings, messages)


def _compare(
    file: CassetteFile,
    normalizer: Normalizer,
    request: UnmatchedRequest,
    nearest: Entry,
    differences: list[Difference],
) -> Iterator[str]:
    """Yield the lines about the differences to the nearest recorded request."""
    path = shlex.quote(str(file.path))
    if not differences:
        yield "The two are equal: the cassette was edited, or hashed by other rules."
        yield f"Fix: offbook cassette edit {path} --upgrade"
        return
    hidden = list(_values_hidden_by_recording(differences))
    if hidden:
        differences = [_hide_values(difference, hidden) for difference in differences]
    shown = differences[:MAX_DIFFERENCES]
    paths = [
        f"{d.path}{' (gone)' if d.current is None else ' (new)' if d.recorded is None else ''}"
        for d in shown
    ]
    more = len(differences) - MAX_DIFFERENCES
    yield f"Differs at: {', '.join(paths)}{f' and {more} more' if more > 0 else ''}"
    yield ""
    yield f"Prompt diff (first {DIFF_LENGTH} chars):"
    yield from _diff_lines(shown, titled=len(differences) > 1)
    if hidden:
        yield f"{MASK} was a secret in the recording: set the variable that holds it, as then."
    hint = _find_redaction(file, normalizer, request, nearest, differences)
    if hint is not None:
        rules = msgspec.json.format(msgspec.json.encode(hint.rules), indent=0).decode()
        yield f"Hint: Add redaction for {hint.description} (tested: with it, the two match):"
        yield f"  offbook cassette edit {path} --redact {shlex.quote(rules)}"


def describe_differences(differences: list[Difference]) -> Iterator[str]:
    """Yield where two values differ, and the diff of the first differences."""
    yield f"Differs at: {', '.join(d.path for d in differences[:MAX_DIFFERENCES])}"
    yield from _diff_lines(differences[:MAX_DIFFERENCES], titled=len(differences) > 1)


def describe_track_mismatch(
    track: str,
    fact: str,
    recorded: str,
    got: str,
    differences: list[str],
    *,
    number: int | None,
    fix: str = "record the tape again",
) -> str:
    """Return the message of a replay about another track than the model."""
    place = "" if number is None else f" at interaction {number}"
    lines = [
        f"Replay mismatch{place} (track: {track}): {fact}",
        f"Recorded: {recorded}",
        f"Got:      {got}",
        *differences,
        f"Fix, if the change is intended: {fix}",
    ]
    return "\n".join(lines)


def _values_hidden_by_recording(differences: list[Difference]) -> Iterator[str]:
    """Yield the texts of the request where the recording has a mask.

    A value is known as a secret as long as its environment variable is set, which may have been
    at the time of the recording only.
    """
    mark = "\ue000"  # one token, unlike the mask
    for difference in differences:
        if MASK not in (difference.recorded or "") or difference.current is None:
            continue
        old = split_words((difference.recorded or "").replace(MASK, mark))
        new = split_words(difference.current)
        for equal, a, b, c, d in align_runs(old, new):
            if not equal and c < d and mark in "".join(old[a:b]):
                yield "".join(new[c:d])


def _hide_values(difference: Difference, values: list[str]) -> Difference:
    current = difference.current
    for value in values:
        current = current and current.replace(value, MASK)
    return msgspec.structs.replace(difference, current=current)


def _find_redaction(
    file: CassetteFile,
    normalizer: Normalizer,
    request: UnmatchedRequest,
    nearest: Entry,
    differences: list[Difference],
) -> RedactionHint | None:
    """Return the smallest redaction that makes the two requests equal."""

    def matches(rules: dict[str, Any]) -> bool:
        tried = Normalizer(merge_rules(normalizer.rules, rules), roots=normalizer.roots)
        recorded = recorded_body(file, nearest, tried)
        return bool(tried.comparable(recorded) == tried.comparable(request.body))

    pairs = [(d.path, d.recorded, d.current) for d in differences if d.recorded and d.current]
    hint = next((hint for hint in suggest_redactions(pairs) if matches(hint.rules)), None)
    return hint and hint.minimized(matches)


# --------------------------------------------------------------------- differences of JSON values


def find_differences(recorded: Any, current: Any, path: str = "$") -> Iterator[Difference]:
    """Yield the differences of two JSON values; an inserted or removed list item is one."""
    if recorded == current:
        return
    if isinstance(recorded, dict) and isinstance(current, dict):
        old, new = cast("dict[str, Any]", recorded), cast("dict[str, Any]", current)
        for name in {**old, **new}:
            inner = f"{path}.{name}" if _IDENTIFIER.fullmatch(name) else f"{path}['{name}']"
            yield from find_differences(old.get(name), new.get(name), inner)
    elif isinstance(recorded, list) and isinstance(current, list):
        old_items, new_items = cast("list[Any]", recorded), cast("list[Any]", current)
        # Align the items first: after an inserted message all later ones are still the same.
        old_keys, new_keys = ([_item_key(i) for i in items] for items in (old_items, new_items))
        for _, a, b, c, d in align_runs(old_keys, new_keys):
            if b - a == d - c:
                for old_item, index in zip(old_items[a:b], range(c, d), strict=True):
                    yield from find_differences(old_item, new_items[index], f"{path}[{index}]")
                continue
            for index in range(a, b):
                yield Difference(f"{path}[{index}]", _as_text(old_items[index]), None)
            for index in range(c, d):
                yield Difference(f"{path}[{index}]", None, _as_text(new_items[index]))
    else:
        yield Difference(path, _as_text(recorded), _as_text(current))


def _item_key(item: Any) -> str:
    """Return the identity of a list item: a tool is the same as long as its name is."""
    fields = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
    if "schema" in fields:
        return _as_text(fields.get("name")) or ""
    return msgspec.json.encode(item).decode()


def _as_text(value: Any) -> str | None:
    """Return a value as people write it: a message with its role, a tool with its description."""
    if value is None or isinstance(value, str):
        return value
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    blocks = cast("list[dict[str, Any]]", fields.get("blocks") or ())
    if blocks and all(block.get("type") == "text" for block in blocks):
        return f"{fields['role']}: " + "\n".join(str(block["text"]) for block in blocks)
    if "schema" in fields:
        return f"{fields.get('name')}: {fields.get('description')}"
    return msgspec.json.encode(value).decode()


# --------------------------------------------------------------------------- differences of texts


def _diff_lines(differences: list[Difference], *, titled: bool) -> Iterator[str]:
    remaining = DIFF_LENGTH
    for difference in differences:
        if titled:
            yield f"  at {difference.path}:"
        for line in diff_texts(difference.recorded, difference.current):
            if remaining <= 0:
                yield "…"
                return
            yield line
            remaining -= len(line)


def diff_texts(recorded: str | None, current: str | None) -> Iterator[str]:
    """Yield the lines that differ, with the differing words of each pair marked below it."""
    old, new = ([] if t is None else outgoing(t).split("\n") for t in (recorded, current))
    for equal, a, b, c, d in align_runs(old, new):
        if equal:  # one line of context
            yield from (f"  {_shorten(line)}" for line in old[max(a, b - 1) : b])
            continue
        pairs = min(b - a, d - c)
        for before, after in zip(old[a : a + pairs], new[c : c + pairs], strict=True):
            yield from _diff_pair(before, after)
        yield from (f"- {_shorten(line)}" for line in old[a + pairs : b])
        yield from (f"+ {_shorten(line)}" for line in new[c + pairs : d])


def _diff_pair(before: str, after: str) -> Iterator[str]:
    """Yield two versions of a line and a line of marks below the words that differ."""
    old, new = split_words(before), split_words(after)
    starts = [0]
    for token in new:
        starts.append(starts[-1] + len(token))
    spans: list[tuple[int, int]] = []
    for equal, _, _, c, d in align_runs(old, new):
        if not equal:
            previous_end = spans[-1][1] if spans else 0
            spans.append((max(starts[c], previous_end), max(starts[d], starts[c] + 1)))
    first = 0  # of a long line, show the part around the first difference
    if len(after) > LINE_WIDTH or len(before) > LINE_WIDTH:
        first = max(0, spans[0][0] - LINE_WIDTH // 2)
    lead = "…" if first else ""
    yield f"- {lead}{_shorten(before[first:])}"
    yield f"+ {lead}{_shorten(after[first:])}"
    marks = ""
    for start, stop in spans:
        if start - first <= LINE_WIDTH:
            length = max(1, min(stop, first + LINE_WIDTH) - start)
            marks = marks.ljust(start - first) + "^" * length
    yield " " * (2 + len(lead)) + marks


def _shorten(text: str) -> str:
    return excerpt(text, LINE_WIDTH + 1)
