r"""Comparison of two traces, or of two folders of traces, aligned by content.

    comparison = compare_paths(Path("before.jsonl"), Path("after.jsonl"))
    comparison.same                                   # False
    comparison.traces[0].first_divergence             # the index of the first row that differs
    print("\n".join(render_comparison(comparison)))

The structs are the JSON of `offbook compare --json`; a field is added in a new version and never
changes its meaning. Times, ids and temporary folders do not count as differences, as long as
an id of one trace always maps to the same id of the other. Tokens, cost and time are in `figures`:
they follow from the rest, or differ in every run, so they do not make two traces different.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from offbook.checks.comparable_events import ComparableEvent, comparable_events
from offbook.checks.context import TotalCost
from offbook.errors import FormatError, UsageError, counted
from offbook.exchange.model import Usage
from offbook.trace import events as names
from offbook.trace.executions import read_executions
from offbook.trace.matching import (
    MISSING,
    AlignedRow,
    align,
    find_mismatches,
    render_rows,
    shorten_sides,
)
from offbook.trace.reader import Trace, elapsed_seconds, raise_if_corrupt
from offbook.trace.redaction import Redaction

VERSION = 1
SHOWN_CHANGES = 10
TRACE_FILES = "*.jsonl"

RowState = Literal["same", "moved", "changed", "removed", "added"]
Kind = Literal[
    "tools", "arguments", "results", "answers", "requests", "errors", "verdicts", "other"
]
KINDS: dict[str, Kind] = {
    names.TOOL_CALL: "tools",
    names.TOOL_BLOCKED: "tools",
    names.HOOK_TOOL_CALL: "arguments",
    names.TOOL_START: "tools",
    names.TOOL_END: "results",
    names.TOOL_RESULT: "results",
    names.TOOL_ERROR: "errors",
    names.REPLY: "answers",
    names.REQUEST: "requests",
    names.ERROR: "errors",
    names.AGENT_ERROR: "errors",
    names.VERDICT: "verdicts",
}
OPPOSITE: dict[RowState, RowState] = {"removed": "added", "added": "removed"}


class ComparedEvent(msgspec.Struct, frozen=True):
    """An event of one of the traces: its number in the trace, its name, and a line on it."""

    seq: int
    event: str
    title: str


class Change(msgspec.Struct, frozen=True):
    """A value that differs, at a path of the event's content such as `.input.id`.

    A side that does not have the value is the text `nothing`, and `missing` says which.
    """

    path: str
    before: Any
    after: Any
    missing: Literal["", "before", "after"] = ""


class ComparedRow(msgspec.Struct, frozen=True):
    """An event of both traces, or of one.

    `moved` is a result of a parallel tool call that arrived in another order: no difference.
    """

    state: RowState
    kind: Kind
    before: ComparedEvent | None = None
    after: ComparedEvent | None = None
    changes: list[Change] = []

    @property
    def differs(self) -> bool:
        """True if this row is a difference between the traces."""
        return self.state not in {"same", "moved"}


class Figures(msgspec.Struct, frozen=True):
    """The numbers of one trace, or of a set; None if nothing was recorded."""

    requests: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    model_errors: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    seconds: float | None = None


FIGURES = Figures.__struct_fields__


class FigurePair(msgspec.Struct, frozen=True):
    """The numbers of both sides."""

    before: Figures
    after: Figures


class TraceComparison(msgspec.Struct, frozen=True):
    """Two traces: their rows in order, and the index of the first row that differs.

    `differences` counts the rows that differ, by kind.
    """

    name: str
    same: bool
    first_divergence: int | None
    differences: dict[str, int]
    figures: FigurePair
    rows: list[ComparedRow]


class Comparison(msgspec.Struct, frozen=True):
    """Two traces or two sets of traces, paired by the name of their file."""

    version: int
    before: str
    after: str
    same: bool
    only_before: list[str]
    only_after: list[str]
    figures: FigurePair
    traces: list[TraceComparison]


def compare_paths(before: Path, after: Path, redaction: Redaction | None = None) -> Comparison:
    """Compare two trace files, or the traces in two folders that have the same relative path."""
    for path in (before, after):
        if not path.exists():
            raise UsageError("trace not found", where=str(path), hint="give a file or a folder")
    if before.is_dir() != after.is_dir():
        file, folder = (after, before) if before.is_dir() else (before, after)
        raise UsageError(
            "cannot compare a file with a folder",
            where=f"{file}, {folder}",
            hint="give two traces, or two folders of traces",
        )
    if not before.is_dir():
        pairs = [(before.name, before, after)]
        only_before = only_after = list[str]()
    else:
        left, right = _list_traces(before), _list_traces(after)
        pairs = [(name, left[name], right[name]) for name in left if name in right]
        only_before = [name for name in left if name not in right]
        only_after = [name for name in right if name not in left]
        if not pairs:
            raise UsageError(
                "the folders have no trace in common",
                where=f"{before}, {after}",
                hint="traces are paired by their path in the folder",
            )
    traces = [
        compare_traces(_read(one), _read(two), name=name, redaction=redaction)
        for name, one, two in pairs
    ]
    return Comparison(
        VERSION,
        str(before),
        str(after),
        same=all(trace.same for trace in traces) and not only_before and not only_after,
        only_before=only_before,
        only_after=only_after,
        figures=FigurePair(
            _add([trace.figures.before for trace in traces]),
            _add([trace.figures.after for trace in traces]),
        ),
        traces=traces,
    )


def _list_traces(folder: Path) -> dict[str, Path]:
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob(TRACE_FILES))}
    if not found:
        raise UsageError("no traces (*.jsonl) in this folder", where=str(folder))
    return found


def _read(path: Path) -> list[names.Event]:
    trace = Trace(path)
    events = list(trace)
    raise_if_corrupt(trace.faults, path)
    if not events:
        raise FormatError("no events in this trace", path=path)
    return events


def compare_traces(
    before: Iterable[names.Event],
    after: Iterable[names.Event],
    *,
    name: str = "",
    redaction: Redaction | None = None,
) -> TraceComparison:
    """Compare the events of two traces."""
    events = list(before), list(after)
    left, right = (list(comparable_events(side, redaction)) for side in events)
    pairs = _pair_in_any_order(left, right) or _mark_moved(_align(left, right))
    compared = [_compare(pair) for pair in _check_ids(pairs)]
    differing = [index for index, row in enumerate(compared) if row.differs]
    return TraceComparison(
        name,
        not differing,
        differing[0] if differing else None,
        dict(Counter(compared[index].kind for index in differing)),
        FigurePair(*(_measure(side) for side in events)),
        compared,
    )


# ------------------------------------------------------------------------------------ alignment


class _Pair(NamedTuple):
    """An event of each trace; one of them may be missing."""

    before: ComparableEvent | None
    after: ComparableEvent | None
    state: RowState = "same"

    @property
    def name(self) -> str:
        event = self.before or self.after
        return "" if event is None else event.event.event


def _pair_in_any_order(
    left: Sequence[ComparableEvent], right: Sequence[ComparableEvent]
) -> list[_Pair]:
    """Return the pairs of two traces that differ in the order of parallel results at most.

    Empty if there is another difference. Decided before the alignment, which may keep either of two
    events that changed places: two traces must be the same in both directions.
    """
    first, second = _order_results(left), _order_results(right)
    if [left[a].key for a in first] != [right[b].key for b in second]:
        return []
    pairs = sorted(zip(first, second, strict=True))
    moved = {a for a, b in pairs if a != b and left[a].event.event == names.TOOL_RESULT}
    return [_Pair(left[a], right[b], "moved" if a in moved else "same") for a, b in pairs]


def _order_results(events: Sequence[ComparableEvent]) -> list[int]:
    """Return the positions of events; results between two replies at the end and by content."""
    keys: list[tuple[int, bytes]] = []
    replies = 0
    for event in events:
        replies += event.event.event == names.REPLY
        keys.append((replies, event.key if event.event.event == names.TOOL_RESULT else b""))
    return sorted(range(len(events)), key=keys.__getitem__)


def _align(left: Sequence[ComparableEvent], right: Sequence[ComparableEvent]) -> Iterator[_Pair]:
    """Yield the events as pairs: those with equal content, then those of one subject as changed."""
    for a, b in align(left, right, lambda event: event.key, lambda event: event.subject):
        before, after = (None if at is None else side[at] for side, at in ((left, a), (right, b)))
        if before is None or after is None:
            yield _Pair(before, after, "added" if before is None else "removed")
        else:
            yield _Pair(before, after, "same" if before.key == after.key else "changed")


def _mark_moved(pairs: Iterable[_Pair]) -> list[_Pair]:
    """Pair the equal tool results between the same two replies: parallel tools end in any order."""
    marked: list[_Pair] = []
    waiting: dict[tuple[RowState, bytes], list[int]] = {}
    for pair in pairs:
        event = pair.before or pair.after
        if pair.name == names.REPLY:
            waiting.clear()
        if event is None or pair.name != names.TOOL_RESULT or pair.state not in OPPOSITE:
            marked.append(pair)
        elif others := waiting.get((OPPOSITE[pair.state], event.key)):
            index = others.pop(0)
            other = marked[index]
            marked[index] = _Pair(pair.before or other.before, pair.after or other.after, "moved")
        else:
            waiting.setdefault((pair.state, event.key), []).append(len(marked))
            marked.append(pair)
    return marked


def _check_ids(pairs: Iterable[_Pair]) -> Iterator[_Pair]:
    """Yield the pairs; one in which an id maps to another one than before is changed."""
    forward: dict[str, str] = {}
    backward: dict[str, str] = {}
    for pair in pairs:
        if pair.before is not None and pair.after is not None and pair.state != "changed":
            ids = list(zip(pair.before.ids, pair.after.ids, strict=True))
            # Both ways: two ids of one trace must not become one.
            if any(
                forward.setdefault(one, two) != two or backward.setdefault(two, one) != one
                for one, two in ids
            ):
                yield pair._replace(state="changed")
                continue
        yield pair


def _compare(pair: _Pair) -> ComparedRow:
    changes: list[Change] = []
    if pair.state == "changed" and pair.before is not None and pair.after is not None:
        contents = pair.after.content, pair.before.content
        for path, before, after in find_mismatches(*contents, subset="none"):
            missing = "before" if before is MISSING else "after" if after is MISSING else ""
            changes.append(Change(path, before, after, missing))
        if not changes:
            ids = zip(pair.before.ids, pair.after.ids, strict=True)
            changes = [Change("id", one, two) for one, two in ids if one != two]
    made = pair.name == names.TOOL_CALL and pair.state == "changed"
    return ComparedRow(
        pair.state,
        "arguments" if made else KINDS.get(pair.name, "other"),
        _describe_event(pair.before),
        _describe_event(pair.after),
        changes,
    )


def _describe_event(event: ComparableEvent | None) -> ComparedEvent | None:
    return event and ComparedEvent(event.event.seq, event.event.event, event.title)


# -------------------------------------------------------------------------------------- figures


def _measure(events: Sequence[names.Event]) -> Figures:
    counts = Counter(event.event for event in events)
    replies = [event.data for event in events if event.event == names.REPLY]
    try:
        usages = [msgspec.convert(data["usage"], Usage) for data in replies if "usage" in data]
    except msgspec.ValidationError as error:
        raise FormatError(f"the usage of a reply cannot be read: {error}") from error
    cost = TotalCost()
    for event in events:
        cost.on_event(event)
    uses = [use for use in read_executions(events).uses if use.counts]
    times = [event.ts for event in events if event.event not in {names.VERDICT, names.HEADER}]
    return Figures(
        requests=counts[names.REQUEST],
        tool_calls=len(uses),
        tool_errors=sum(use.failed is True for use in uses),
        model_errors=counts[names.ERROR],
        input_tokens=sum(usage.input for usage in usages) if usages else None,
        output_tokens=sum(usage.output for usage in usages) if usages else None,
        cost_usd=cost.dollars,
        seconds=elapsed_seconds(times[0], times[-1]) if times else None,
    )


def _add(sides: Sequence[Figures]) -> Figures:
    """Return the sums; a number that one of them does not have is unknown."""
    columns = {name: [getattr(side, name) for side in sides] for name in FIGURES}
    sums = {name: None if None in values else sum(values) for name, values in columns.items()}
    return msgspec.convert(sums, Figures)


# ----------------------------------------------------------------------------------------- text


def render_comparison(comparison: Comparison) -> Iterator[str]:
    """Yield the lines for a reader: each trace that differs, then the figures."""
    single = len(comparison.traces) == 1 and not comparison.only_before + comparison.only_after
    for trace in comparison.traces:
        if not trace.same:
            yield from _render_trace(trace, "" if single else f"{trace.name}: ")
    for name in comparison.only_before:
        yield f"- {name}: only in {comparison.before}"
    for name in comparison.only_after:
        yield f"+ {name}: only in {comparison.after}"
    compared = len(comparison.traces)
    differing = sum(not trace.same for trace in comparison.traces)
    if single and comparison.same:
        yield f"the traces are the same: {counted(len(comparison.traces[0].rows), 'event')}"
    elif not single:
        yield f"{counted(compared, 'trace')} compared, {differing} differ"
    yield from _render_figures(comparison.figures)


def _render_trace(trace: TraceComparison, prefix: str) -> Iterator[str]:
    index = trace.first_divergence or 0
    row = trace.rows[index]
    at = ", ".join(
        f"event {side.seq} {where}"
        for side, where in ((row.before, "before"), (row.after, "after"))
        if side is not None
    )
    kinds = ", ".join(f"{count} in {kind}" for kind, count in trace.differences.items())
    total = sum(trace.differences.values())
    yield f"{prefix}{counted(total, 'difference')} ({kinds}); the first at {at}"
    rows = [
        AlignedRow(
            "" if row.before is None else row.before.title,
            "" if row.after is None else row.after.title,
            ok=not row.differs,
            notes=tuple(_describe(change) for change in row.changes[:SHOWN_CHANGES]),
        )
        for row in trace.rows
    ]
    yield from render_rows(rows, ("before", "after"), "the same")


def _describe(change: Change) -> str:
    before, after = shorten_sides(change.before, change.after)
    return f"{change.path}: {before} → {after}"


def _render_figures(figures: FigurePair) -> Iterator[str]:
    for name in FIGURES:
        before, after = getattr(figures.before, name), getattr(figures.after, name)
        if before is None and after is None:
            continue
        label = name.replace("_", " ").replace("cost usd", "cost in $")
        sides = [_number(side) for side in (before, after)]
        yield f"  {label:13} {sides[0] if sides[0] == sides[1] else ' → '.join(sides)}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
