r"""Assertions for plain tests: of values, steps, handoffs and receipts, and golden transcripts.

    assert_eq(order, {"id": 7, "status": "paid"})
    assert_steps_ran(["plan", "verify"], run.events)

Those of steps read the steps that `step_assertions` recorded in this task, or the events of a run.

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
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import msgspec

from offbook.checks.expected_files import diff_texts, update_hint, withdraw, write_or_propose
from offbook.errors import CheckFailed, FormatError, RequirementFailed, UsageError, did_you_mean
from offbook.files import parse_document, parse_json, read_text
from offbook.options import decide, require_list, require_some
from offbook.secrets import MASK, hide_secrets
from offbook.trace.events import (
    AGENT_END,
    BUDGET_EXHAUSTED,
    FEEDBACK,
    HANDOFF,
    LOOP_STUCK,
    PLAN,
    REQUEST,
    STEP_POST,
    STEP_PRE,
    TOOL_CALL,
    TOOL_RESULT,
    Event,
)
from offbook.trace.matching import (
    MISSING,
    Mismatch,
    align_in_order,
    align_names,
    compile_check,
    compile_pattern,
    contains,
    describe_mismatch,
    find_mismatches,
    render_rows,
    render_value,
    resolve_pointer,
    values_equal,
)
from offbook.trace.query import Events
from offbook.trace.reader import Trace, raise_if_corrupt
from offbook.trace.steps import StepRecord, current_log

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
    is_same_kind = not golden or type(golden) is type(transcript)
    if transcript in ({}, [], "", None) and is_same_kind:
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
            compile_check(argument, at, whole=True)


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
    new = mask_volatile(transcript)
    if golden is not None:
        check_golden(golden, transcript, str(path))
        new = merge_golden(golden, transcript)
        if _matches_file(golden, transcript, path.suffix):
            withdraw(path)
            return
    text = _render_hidden(new, path.suffix)
    if not write_or_propose(path, text, missing="there is no golden transcript yet"):
        _raise_mismatches(golden, transcript, str(path), update_hint())


def _matches_file(golden: Any, transcript: Any, suffix: str) -> bool:
    """Return whether a transcript is that of a file, which was written without its secrets.

    A sentinel of the file must match the secret itself.
    """
    mismatches = find_golden_mismatches(golden, transcript)
    if any(isinstance(m.expected, str) and _SENTINEL.fullmatch(m.expected) for m in mismatches):
        return False
    return not mismatches or _render_hidden(golden, suffix) == _render_hidden(
        merge_golden(golden, transcript), suffix
    )


def _render_hidden(value: Any, suffix: str) -> str:
    """Return the text of a golden file, without secrets."""
    from offbook.trace.redaction import Redaction  # not for a transcript that matches

    return hide_secrets(_render(Redaction().value(value), suffix))


def _raise_mismatches(golden: Any, transcript: Any, where: str = "", fix: str = "") -> None:
    found = find_golden_mismatches(golden, transcript)
    if not found:
        return
    # A value that is masked in the file is not what differs, if there is another one.
    mismatches = [m for m in found if not (where and MASK in render_value(m.expected))] or found
    lines = [f"  {describe_mismatch(mismatch, '$')}" for mismatch in mismatches[1:MAX_SHOWN]]
    if len(mismatches) > MAX_SHOWN:
        lines.append(f"  … {len(mismatches) - MAX_SHOWN} more")
    # The other side is the golden as an update would write it: what matches shows no difference.
    sides = (golden, merge_golden(golden, transcript))
    hunks = diff_texts(*(_render_hidden(side, ".json") for side in sides)).hunks
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
        lines = enumerate(text.split("\n"), 1)
        return [parse_json(line, path, number) for number, line in lines if line.strip()]
    if path.suffix not in {".json", ".yaml", ".yml"}:
        raise FormatError(
            f"unsupported file type {path.suffix!r}",
            path=path,
            hint="a golden transcript is a .json, .jsonl or .yaml file",
        )
    return parse_document(text, path)


def _render(value: Any, suffix: str) -> str:
    if suffix == ".jsonl" and isinstance(value, list):
        items = cast("list[Any]", value)
        return "".join(f"{msgspec.json.encode(item).decode()}\n" for item in items)
    if suffix in {".yaml", ".yml"}:
        from offbook.files import dump_yaml

        return dump_yaml(value)
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


# --- Transcripts to audit

MAX_NUMBER = 2**63  # of a time or an index: greater ones are infinite, or errors
# The events of Harn that an audit reads, by their names in a trace. One iteration of its loop is
# one request to the model.
HARN_EVENTS = {
    "iteration_start": REQUEST,
    "turn_start": REQUEST,  # of earlier versions
    "iteration_end": AGENT_END,
    "turn_end": AGENT_END,
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
    numbers = {"emitted_at_ms": last or 0, "index": line - 1}
    for field, default in numbers.items():
        number = default if fields.get(field) is None else fields[field]
        if not _is_number(number) or not abs(number) < MAX_NUMBER:
            what = f"{field}: expected a number, got {render_value(number)}"
            raise FormatError(what, path=path, line=line)
        numbers[field] = int(number)
    return Event(numbers["emitted_at_ms"], name, data, numbers["index"], context=context)


# --- Plain assertions


MAX_PLACES = 10
StepEvents = Events | Iterable[Event] | Iterable[StepRecord]
Predicate = Callable[[StepRecord], object] | Mapping[str, Any] | Any
TARGET_KEYS = ("id", "label", "kind", "name")


def assert_eq(actual: Any, expected: Any, message: str | None = None) -> None:
    """Fail unless two values are equal; the message has each place where they differ."""
    if actual == expected:
        return
    lines = [f"  expected {render_value(expected)}", f"  got      {render_value(actual)}"]
    if isinstance(actual, str) and isinstance(expected, str) and "\n" in actual + expected:
        lines = [
            "- expected, + got",
            *(hunk.content for hunk in diff_texts(expected, actual).hunks),
        ]
    elif isinstance(expected, (dict, list, tuple)):
        places = list(find_mismatches(actual, expected, subset="none"))
        lines += [f"  {describe_mismatch(place, 'value')}" for place in places[:MAX_PLACES]]
    raise CheckFailed(message or "the values differ", hint="\n".join(lines))


def assert_ne(actual: Any, unexpected: Any, message: str | None = None) -> None:
    """Fail if two values are equal."""
    if actual == unexpected:
        what = message or "the values are equal"
        raise CheckFailed(what, hint=f"  both are {render_value(actual)}")


def require(condition: object, message: str = "a required condition is false") -> None:
    """Raise `RequirementFailed` unless a condition holds; for the code under test."""
    holds, reason = decide(condition, "the condition of require()")
    if not holds:
        raise RequirementFailed(message if holds is condition else f"{message}: {reason}")


# --- Steps, handoffs and receipts


def assert_steps_ran(names: Iterable[str], events: StepEvents | None = None) -> list[str]:
    """Fail unless exactly these steps ran, in this order; return their names."""
    hint = "that no step was recorded: assert step_events() == []"
    expected = cast("list[str]", require_list(names, "the steps", f"write [{names!r}]"))
    require_some(expected, "no step is given, so nothing would be checked", hint=hint)
    actual = [record["step_name"] for record in _records(events, STEP_PRE)]
    if actual == expected:
        return actual
    pairs = align_in_order(len(actual), len(expected), lambda a, e: actual[a] == expected[e])
    missing = [name for name in expected if name not in actual]
    what = f"step {missing[0]!r} did not run" if missing else "the steps ran in another order"
    hints = [did_you_mean(missing[0], actual), "a step needs @step"] if missing and actual else []
    if missing and not actual:
        hints = ["no step was recorded: is the function decorated with @step?"]
    raise CheckFailed(
        what, hint="\n".join([*render_rows(align_names(expected, actual, pairs)), *hints])
    )


def assert_step_received(
    step: str, predicate: Predicate = None, events: StepEvents | None = None
) -> StepRecord:
    """Fail unless a step began with a matching record; return it.

    The predicate is a function of the record, a dict with some of its fields (`args`, `kwargs`,
    `persona`, …), or the whole record.
    """
    return _find_record(STEP_PRE, step, predicate, events)


def assert_step_emitted(
    step: str, predicate: Predicate = None, events: StepEvents | None = None
) -> StepRecord:
    """Fail unless a step ended with a matching record, which has its `output`; return it."""
    return _find_record(STEP_POST, step, predicate, events)


def assert_handoff_emitted(source: Any, kind: str, target: str | None = None) -> dict[str, Any]:
    """Fail unless a handoff of this kind was made, to this target if one is given; return it.

    `source` is a run record with `handoffs`, a list of handoffs, or the events of a run. The target
    is the id, label, name or kind of a persona or a person.
    """
    handoffs = _handoffs(source)
    for handoff in handoffs:
        if handoff.get("kind", "handoff") == kind and (
            target is None or target in _targets(handoff)
        ):
            return handoff
    wanted = f"handoff {kind!r}" + (f" to {target}" if target is not None else "")
    lines = [f"  {render_value(handoff)}" for handoff in handoffs]
    raise CheckFailed(
        f"{wanted} was not emitted", hint="\n".join(["handoffs:", *(lines or ["  none"])])
    )


def assert_receipt_field(receipt: Any, pointer: str, value: Any) -> Any:
    """Fail unless the field at a JSON pointer (RFC 6901) has this value; return it.

    A field that is missing differs from one that is null.
    """
    actual = resolve_pointer(receipt, pointer)
    if actual is MISSING:
        parent = resolve_pointer(receipt, pointer.rpartition("/")[0])
        known = cast("dict[str, Any]", parent) if isinstance(parent, dict) else {}
        hint = did_you_mean(pointer.rpartition("/")[2], map(str, known)) if known else ""
        what = f"the receipt has no field {pointer}, expected {render_value(value)}"
        raise CheckFailed(what, hint=hint)
    mismatches = list(find_mismatches(actual, value, subset="none"))
    if mismatches:
        lines = [describe_mismatch(mismatch, pointer or "receipt") for mismatch in mismatches]
        raise CheckFailed(f"the receipt differs at {pointer}", hint="\n".join(lines))
    return actual


def _records(events: StepEvents | None, name: str) -> list[StepRecord]:
    """Return the records of one kind: of the current log, of a run or of a list."""
    found: list[Any] = []
    if events is None:
        found = list(current_log().events)
    else:
        found = events.all if isinstance(events, Events) else list(events)
    records = [
        {"event": item.event, **item.data} if isinstance(item, Event) else item for item in found
    ]
    return [record for record in records if record["event"] == name]


def _find_record(
    name: str, step: str, predicate: Predicate, events: StepEvents | None
) -> StepRecord:
    if predicate == {}:
        raise UsageError("{} matches every record", hint="name a field, or leave it out")
    records = _records(events, name)
    same = [record for record in records if record["step_name"] == step]
    for record in same:
        if _satisfies(record, predicate):
            return record
    verb = "began" if name == STEP_PRE else "ended"
    if not same:
        names = {record["step_name"] for record in records}
        raise CheckFailed(f"step {step!r} never {verb}", hint=did_you_mean(step, names))
    lines = [f"  got {render_value(record)}" for record in same]
    if isinstance(predicate, Mapping):
        nearest = find_mismatches(same[-1], predicate, subset="top")
        lines += [f"  {describe_mismatch(mismatch)}" for mismatch in nearest]
        wanted = render_value(cast("object", predicate))
    else:
        wanted = getattr(predicate, "__name__", None) or render_value(predicate)
    raise CheckFailed(f"step {step!r} never {verb} with {wanted}", hint="\n".join(lines))


def _satisfies(record: StepRecord, predicate: Predicate) -> bool:
    if predicate is None:
        return True
    if isinstance(predicate, Mapping):
        return contains(record, predicate, subset="top")
    if not callable(predicate):
        return values_equal(record, predicate)
    name = getattr(predicate, "__name__", "the predicate")
    return bool(decide(predicate(record), name)[0])


def _handoffs(source: Any) -> list[dict[str, Any]]:
    if isinstance(source, Mapping):
        source = cast("Mapping[str, Any]", source).get("handoffs", [source])
    items = source.all if isinstance(source, Events) else list(source)
    events = [item for item in items if isinstance(item, Event)]
    found = [event.data for event in events if event.event == HANDOFF] if events else items
    return [cast("dict[str, Any]", item) for item in found if isinstance(item, Mapping)]


def _targets(handoff: Mapping[str, Any]) -> set[Any]:
    named = handoff.get("target_persona_or_human")
    person: Mapping[str, Any] = {}
    if isinstance(named, Mapping):
        person = cast("Mapping[str, Any]", named)
    # `to` is the name of an agent in the events of the OpenAI Agents SDK.
    keys = ("target", "target_persona", "to")
    values = [person.get(key) for key in TARGET_KEYS] + [handoff.get(key) for key in keys]
    return {value for value in values if isinstance(value, str)}
