r"""Transcripts: golden ones, and those that an audit reads.

A golden transcript is a structure with sentinels for the values that differ in every run.

    assert_golden_transcript(
        {"id": "<uuid>", "steps": [{"name": "plan", "took": "<ms>"}]},
        transcript,
    )

A dict of the golden is a subset: the transcript may have further keys, at any depth. A list has
the same length. A sentinel is a whole text; `\<any>` is the literal text `<any>`.

With a `Path`, the golden is a JSON, JSONL or YAML file. `pytest --offbook-update` writes it.

The transcript of an audit is an Offbook trace, or the event log of Harn (`index`, `type`, …).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import msgspec

from offbook.checks.expected_files import update_hint, withdraw, write_or_propose
from offbook.checks.snapshot import diff_texts
from offbook.errors import CheckFailed, FormatError, UsageError, did_you_mean
from offbook.files import parse_json, read_text
from offbook.trace.events import (
    AGENT_END,
    BUDGET_EXHAUSTED,
    FEEDBACK,
    HANDOFF,
    LOOP_STUCK,
    PLAN,
    REQUEST,
    TOOL_CALL,
    TOOL_RESULT,
    Event,
)
from offbook.trace.matching import Mismatch, compile_pattern, describe_mismatch, find_mismatches
from offbook.trace.query import Events
from offbook.trace.reader import Trace, raise_if_corrupt

MAX_SHOWN = 20
_SENTINEL = re.compile(r"<([A-Za-z][\w-]*)(?::(.*))?>", re.DOTALL)
_ESCAPED = re.compile(r"\\+<")  # one backslash is removed
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ISO_8601 = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?.*")
_PATH = re.compile(r"[^\n\0]*[/\\][^\n\0]*")
# Keys whose numbers are times or durations in a transcript.
_TIME_KEY = re.compile(r"ts|ms|.*_ms|.*_at_ms|duration|elapsed")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_iso_8601(value: object) -> bool:
    if not isinstance(value, str) or _ISO_8601.fullmatch(value) is None:
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


SENTINELS: dict[str, Callable[[Any], bool]] = {
    "ms": lambda v: _is_number(v) or (isinstance(v, str) and re.fullmatch("[0-9]+", v) is not None),
    "uuid": lambda v: isinstance(v, str) and _UUID.fullmatch(v) is not None,
    "any": lambda v: v is not None,
    "int": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "iso8601": _is_iso_8601,
    "path": lambda v: isinstance(v, str) and _PATH.fullmatch(v) is not None,
}
KNOWN = (*SENTINELS, "re")


def value_matches(actual: Any, expected: Any) -> bool:
    """Return whether a single value is the golden one: equal and of its type, or a sentinel's."""
    if isinstance(expected, str):
        if _ESCAPED.match(expected):
            return actual == expected[1:]
        if found := _SENTINEL.fullmatch(expected):
            name, argument = found.groups()
            if name == "re":
                # The whole text, as with every other sentinel.
                pattern = compile_pattern(rf"\A(?:{argument})\Z")
                return isinstance(actual, str) and pattern.search(actual) is not None
            return SENTINELS[name](actual)
    # In a transcript 1, 1.0, "1" and True are different values.
    return type(actual) is type(expected) and actual == expected


def check_golden(golden: Any, transcript: Any, where: str = "") -> None:
    """Raise for a golden that every transcript would match, and for nothing to compare it with."""
    if golden in ({}, "<any>"):
        shown = msgspec.json.encode(golden).decode()
        raise UsageError(f"the golden {shown} matches every transcript", where=where)
    check_sentinels(golden, where)
    if transcript in ({}, []) and golden and type(golden) is type(transcript):
        raise CheckFailed("no data: the transcript is empty", where=where)


def check_sentinels(golden: Any, where: str = "", path: str = "$") -> None:
    """Raise for a sentinel that does not exist, before anything is compared."""
    if isinstance(golden, Mapping):
        for key, value in cast("Mapping[str, Any]", golden).items():
            check_sentinels(value, where, f"{path}.{key}")
    elif isinstance(golden, (list, tuple)):
        for index, value in enumerate(cast("list[Any]", golden)):
            check_sentinels(value, where, f"{path}[{index}]")
    elif isinstance(golden, str) and (found := _SENTINEL.fullmatch(golden)):
        name, argument = found.groups()
        at = f"{where}, {path}" if where else path
        if name not in KNOWN or (argument is not None and name != "re"):
            known = [f"<{each}>" for each in SENTINELS] + ["<re:…>"]
            raise UsageError(
                f"unknown sentinel {golden!r}",
                where=at,
                hint=f"{did_you_mean(f'<{name}>', known)} For the text itself write '\\{golden}'",
            )
        if name == "re":
            if not argument:
                raise UsageError(f"{golden!r} has no pattern", where=at, hint="write <re:[a-z]+>")
            compile_pattern(argument, at)


def find_golden_mismatches(golden: Any, actual: Any) -> list[Mismatch]:
    """Return the places where a transcript differs from its golden."""
    # A key that is missing is null in Harn, and so it is in a golden: `null` says "not set".
    found = find_mismatches(actual, golden, matches=value_matches, missing=None, path="$")
    return list(found)


def assert_golden_transcript(expected: Any, actual: Any) -> None:
    """Fail unless a transcript has everything that the golden expects.

    `expected` is a structure, or the `Path` of a golden file, relative to the file of the caller.
    `actual` is a structure, or the events of a run.
    """
    transcript = _to_builtins(actual)
    if not isinstance(expected, Path):
        check_golden(expected, transcript)
        _raise_mismatches(expected, transcript)
        return
    path = expected
    if not path.is_absolute():
        caller = sys._getframe(1).f_globals.get("__file__")  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the only way to see the caller
        path = (Path(caller).parent if caller else Path()) / path
    golden = _read_golden(path) if path.is_file() else None
    if golden is not None:
        check_golden(golden, transcript, str(path))
        if not find_golden_mismatches(golden, transcript):
            withdraw(path)
            return
    new = mask_volatile(transcript) if golden is None else merge_golden(golden, transcript)
    text = _render(new, path.suffix)
    missing = "there is no golden transcript yet"
    if not write_or_propose(path, text, missing=missing):
        _raise_mismatches(golden, transcript, str(path), update_hint())


def _raise_mismatches(golden: Any, transcript: Any, where: str = "", fix: str = "") -> None:
    mismatches = find_golden_mismatches(golden, transcript)
    if not mismatches:
        return
    lines = [f"  {describe_mismatch(mismatch, '$')}" for mismatch in mismatches[1:MAX_SHOWN]]
    if len(mismatches) > MAX_SHOWN:
        lines.append(f"  … {len(mismatches) - MAX_SHOWN} more")
    # The other side is the golden as an update would write it: what matches shows no difference.
    texts = (_render(side, ".json") for side in (golden, merge_golden(golden, transcript)))
    hunks = diff_texts(*texts).hunks
    raise CheckFailed(
        f"golden transcript mismatch at {describe_mismatch(mismatches[0], '$')}",
        where=where,
        hint="\n".join(
            filter(None, [*lines, "- expected, + actual", *(h.content for h in hunks), fix])
        ),
    )


def merge_golden(golden: Any, actual: Any) -> Any:
    """Return the golden with the actual values where they differ; sentinels that match stay."""
    if isinstance(golden, Mapping) and isinstance(actual, Mapping):
        fields, found = cast("Mapping[str, Any]", golden), cast("Mapping[str, Any]", actual)
        return {
            key: merge_golden(value, found.get(key))
            for key, value in fields.items()
            if key in found or value is None
        }
    if isinstance(golden, list) and isinstance(actual, list):
        items, others = cast("list[Any]", golden), cast("list[Any]", actual)
        merged = [merge_golden(*pair) for pair in zip(items, others, strict=False)]
        return merged + [mask_volatile(item) for item in others[len(items) :]]
    return cast("Any", golden) if value_matches(actual, golden) else mask_volatile(actual)


def mask_volatile(value: Any, key: str = "") -> Any:
    """Return a transcript as a golden: ids and times as sentinels, literal ones escaped."""
    if isinstance(value, Mapping):
        return {name: mask_volatile(v, name) for name, v in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [mask_volatile(item, key) for item in cast("list[Any]", value)]
    if _is_number(value) and _TIME_KEY.fullmatch(key):
        return "<ms>"
    if isinstance(value, str):
        for name in ("uuid", "iso8601"):
            if SENTINELS[name](value):
                return f"<{name}>"
        if _ESCAPED.match(value) or _SENTINEL.fullmatch(value):
            return f"\\{value}"
    return value


def _to_builtins(actual: Any) -> Any:
    if isinstance(actual, Events):
        actual = actual.all
    elif isinstance(actual, Iterator):
        actual = list(cast("Iterator[Any]", actual))
    return msgspec.to_builtins(actual, enc_hook=repr)


def _read_golden(path: Path) -> Any:
    text = read_text(path)
    if path.suffix == ".jsonl":
        lines = enumerate(text.splitlines(), 1)
        return [parse_json(line, path, number) for number, line in lines if line.strip()]
    if path.suffix == ".json":
        return parse_json(text, path)
    if path.suffix not in {".yaml", ".yml"}:
        raise FormatError(
            f"unsupported file type {path.suffix!r}",
            path=path,
            hint="a golden transcript is a .json, .jsonl or .yaml file",
        )
    from offbook.files import parse_yaml  # most goldens are JSON

    return parse_yaml(text, path)


def _render(value: Any, suffix: str) -> str:
    if suffix == ".jsonl" and isinstance(value, list):
        items = cast("list[Any]", value)
        return "".join(f"{msgspec.json.encode(item).decode()}\n" for item in items)
    if suffix in {".yaml", ".yml"}:
        from offbook.files import dump_yaml

        return dump_yaml(value)
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


# --- Transcripts to audit

# The events of Harn that an audit reads, by their names in a trace. One iteration of its loop is
# one request to the model.
HARN_EVENTS = {
    "iteration_start": REQUEST,
    "iteration_end": AGENT_END,
    "tool_call": TOOL_CALL,
    "tool_call_update": TOOL_RESULT,
    "plan": PLAN,
    "orchestration_decision": PLAN,  # its newer name
    "handoff": HANDOFF,
    "feedback_injected": FEEDBACK,
    "budget_exhausted": BUDGET_EXHAUSTED,
    "loop_stuck": LOOP_STUCK,
}


def read_transcript(path: Path) -> list[Event]:
    """Return the events of a file, or of all `event_log*.jsonl` in a folder by their index."""
    if not path.is_dir():
        return parse_transcript(read_text(path), path)
    files = sorted(path.glob("event_log*.jsonl"))
    if not files:
        raise FormatError("no event_log*.jsonl in this folder", path=path)
    events = [event for file in files for event in parse_transcript(read_text(file), file)]
    return sorted(events, key=attrgetter("seq"))


def parse_transcript(text: str, path: Path) -> list[Event]:
    """Return the events in a text; its first line decides which of the two formats it has."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise FormatError("the transcript is empty", path=path)
    first = parse_json(lines[0][1], path, lines[0][0])
    if not isinstance(first, dict) or "type" not in first or "event" in first:
        trace = Trace(path)
        torn = 0 if text.endswith("\n") else lines[-1][0]
        read = (trace.read_line(line.encode(), n, torn=n == torn) for n, line in lines)
        events = [event for event in read if event is not None]
        raise_if_corrupt(trace.faults, path)
        return events
    events: list[Event] = []
    for number, line in lines:
        last = events[-1].ts if events else None
        events.append(_convert_harn(parse_json(line, path, number), path, number, last))
    return events


def _convert_harn(value: Any, path: Path, line: int, last: int | None) -> Event:
    if not isinstance(value, dict) or not isinstance(cast("Any", value).get("type"), str):
        raise FormatError("expected an object with a 'type'", path=path, line=line)
    fields = cast("dict[str, Any]", value)
    kind = fields["type"]
    name = HARN_EVENTS.get(kind, f"harn.{kind}")
    data: dict[str, Any] = {k: v for k, v in fields.items() if k not in {"index", "type"}}
    if name == TOOL_CALL:
        data = {
            "tool": fields.get("tool_name", ""),
            "input": fields.get("raw_input") or {},
            "call_id": fields.get("tool_call_id", ""),
        }
    elif name == TOOL_RESULT:
        data["tool"] = fields.get("tool_name", "")
        data["is_error"] = fields.get("status") == "failed"
    elif name == PLAN:
        data = {"plan": fields.get("plan", fields.get("decision"))}
    elif name == HANDOFF:
        handoff = fields.get("handoff")
        data = cast("dict[str, Any]", handoff) if isinstance(handoff, dict) else {}
    context = {"sessionId": fields["session_id"]} if fields.get("session_id") else {}
    if fields.get("cost_usd") is not None:
        data["cost_usd"] = fields["cost_usd"]
    # An event without a time gets that of the event before it.
    ts = fields.get("emitted_at_ms", last or 0)
    return Event(int(ts), name, data, fields.get("index", line - 1), context=context)
