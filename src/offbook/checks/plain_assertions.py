"""Assertions for plain tests: of values, of steps, of handoffs and of receipts.

    assert_eq(order, {"id": 7, "status": "paid"})
    assert_steps_ran(["plan", "verify"])
    assert_steps_ran(["plan", "verify"], run.events)

Those of steps read the steps that `step_assertions` recorded in this task, or the events of a run.
`require` is for other code than tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from offbook.checks.snapshot import diff_texts
from offbook.errors import CheckFailed, RequirementFailed, UsageError, did_you_mean
from offbook.trace.events import HANDOFF, STEP_POST, STEP_PRE, Event
from offbook.trace.matching import (
    MISSING,
    align_in_order,
    align_names,
    contains,
    describe_mismatch,
    find_mismatches,
    render_rows,
    render_value,
    resolve_pointer,
    values_equal,
)
from offbook.trace.query import Events
from offbook.trace.steps import StepRecord, current_log

MAX_SHOWN = 10
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
        lines += [f"  {describe_mismatch(place, 'value')}" for place in places[:MAX_SHOWN]]
    raise CheckFailed(message or "the values differ", hint="\n".join(lines))


def assert_ne(actual: Any, unexpected: Any, message: str | None = None) -> None:
    """Fail if two values are equal."""
    if actual == unexpected:
        what = message or "the values are equal"
        raise CheckFailed(what, hint=f"  both are {render_value(actual)}")


def require(condition: object, message: str = "a required condition is false") -> None:
    """Raise `RequirementFailed` unless a condition holds; for the code under test."""
    if not condition:
        raise RequirementFailed(message)


# --- Steps, handoffs and receipts


def assert_steps_ran(names: Iterable[str], events: StepEvents | None = None) -> list[str]:
    """Fail unless exactly these steps ran, in this order; return their names."""
    if isinstance(names, str):
        raise UsageError("expected a list of steps, got a text", hint=f"write [{names!r}]")
    expected = list(names)
    if not expected:
        raise UsageError(
            "no step is given, so nothing would be checked",
            hint="that no step was recorded: assert step_events() == []",
        )
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
    return bool(predicate(record)) if callable(predicate) else values_equal(record, predicate)


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
