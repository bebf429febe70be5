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

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import msgspec

from offbook.checks.context import TotalCost
from offbook.errors import FormatError, UsageError, counted
from offbook.exchange.messages import to_sorted_json
from offbook.exchange.model import Usage
from offbook.files import require_file
from offbook.options import require_some
from offbook.trace import events as names
from offbook.trace.agent_output import output_bytes
from offbook.trace.events import Event
from offbook.trace.executions import read_executions, same_result, to_result_content
from offbook.trace.matching import (
    MISSING,
    AlignedRow,
    align,
    find_mismatches,
    render_rows,
    shorten_sides,
)
from offbook.trace.reader import Trace, elapsed_seconds, raise_if_corrupt
from offbook.trace.redaction import ANY_ID, BUILTIN, DATE, ISO, TMP, VOLATILE_OPTIONS, Redaction

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
        if not path.is_dir():
            require_file(path, "trace")
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
        hint, where = "traces are paired by their path in the folder", f"{before}, {after}"
        require_some(pairs, "the folders have no trace in common", where=where, hint=hint)
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
    require_some(found, "no traces (*.jsonl) in this folder", where=folder)
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
    left, right = (list(comparable_events(side, redaction)) for side in _without_protocols(*events))
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


# --- Comparable events


# Fields that a trace needs to be read, and numbers of the script: they say nothing of the agent.
VOLATILE_FIELDS = frozenset(
    {"before", "after", "head", "exchange", "metadata", "step", "id", "count", "call_id", "usage"}
    | {"observed", "replayed"}  # of a tool and a request: they say nothing of the agent either
)
MEASURED_FIELD = re.compile(
    r"(?:.*_)?(?:ms|secs?|seconds|elapsed|duration|ts|timestamp|pid|port)|.*cost(?:_usd|_dollars)?"
)
VOLATILE_CONTEXT = frozenset({"sessionId", "correlation_id"})
OUTPUT_EVENTS = frozenset({names.PROCESS_OUTPUT, names.TERMINAL_WRITE})
DAY = 86_400_000
TIME, ID, FOLDER, DURATION = "[TIME]", "[ID]", "[TMP]", "[DURATION]"
_TIMES = re.compile(rf"{ISO}|{DATE}|(?<![\d.])1[5-9]\d{{8}}(?:\d{{3}}|\.\d+)?(?!\d)")
_IDS = re.compile(ANY_ID)
_FOLDERS = re.compile(TMP)
_DURATIONS = re.compile(BUILTIN["$DURATION"][0][0])


class ComparableEvent(NamedTuple):
    """An event, its content without volatile values, and the ids that were in it, in order.

    `title` is a line for a reader. Two events with one `subject` are about the same thing, such
    as a tool or a check, and may differ in their content.
    """

    event: Event
    subject: tuple[str, str]
    content: dict[str, Any]
    ids: tuple[str, ...]
    title: str

    @property
    def key(self) -> bytes:
        """The content as bytes: equal for events that do not differ."""
        return self.event.event.encode() + to_sorted_json(self.content)


def comparable_events(
    events: Iterable[Event], redaction: Redaction | None = None
) -> Iterator[ComparableEvent]:
    """Yield the events of a trace to compare; output in several events is joined to one."""
    # The bytes of an exchange repeat what its request and its reply say. A replay has the tape that
    # a recording wrote.
    left_out = {names.HEADER, names.WIRE, names.TAPE}
    listed = [event for event in _join_output(events) if event.event not in left_out]
    listed = without_repeated_executions(listed)
    made = {str(event.data.get("call_id")) for event in listed if event.event == names.TOOL_CALL}
    results = {
        str(event.data.get("call_id")): event.data.get("content")
        for event in listed
        if event.event == names.TOOL_RESULT
    }
    answer: Any = None
    for event in listed:
        data = event.data
        match event.event:
            case names.REQUEST:
                content = _request_content(data, results)
            case names.REPLY:
                content = _reply_content(data, made)
                answer = content.get("text", answer)
            case names.VERDICT:  # the message of a check has counts that follow from the rest
                content = {name: data.get(name) for name in ("check", "status")}
            case names.RUN_END:
                content = _without(data, {"output"} if data.get("output") == answer else ())
            case _:
                content = _without(data)
        if context := _without(event.context, VOLATILE_CONTEXT):
            content["context"] = context
        if redaction is not None:
            redacted: Any = redaction.value(content, names=False)
            if isinstance(redacted, str):
                raise UsageError(
                    "a redaction path replaces whole events", hint='paths: ["$.messages"]'
                )
            content = cast("dict[str, Any]", redacted)
        # The first request with a head contains it, later ones have its id only.
        ids = [str(data["head"])] if event.event == names.REQUEST and "head" in data else []
        mask = _mask(event, ids)
        masked = {name: _clean(name, value, mask, event) for name, value in content.items()}
        yield ComparableEvent(event, _subject(event), masked, tuple(ids), _title(event, content))


def _without_protocols(before: list[Event], after: list[Event]) -> Iterator[list[Event]]:
    """Yield both traces; without the processes if one speaks a protocol and the other does not.

    An agent prints something else on its command line than over ACP, where one process serves all
    prompts. What it does is the same.
    """
    protocols = [
        {
            event.data["protocol"]
            for event in side
            if event.event == names.PROCESS_START and "protocol" in event.data
        }
        for side in (before, after)
    ]
    if protocols[0] == protocols[1]:
        yield from (before, after)
        return
    for side in (before, after):
        yield [
            event
            for event in side
            if not event.event.startswith("process.")
            and not (event.event == names.VERDICT and event.data.get("check") == "ACP protocol")
        ]


def without_repeated_executions(events: Iterable[Event]) -> list[Event]:
    """Return the events without the starts and ends that say nothing but the call and its result.

    Parallel tools end in any order, and a trace of an earlier version has no such events.
    """
    inputs: dict[str, Any] = {}
    results: dict[str, Any] = {}
    events = list(events)
    for event in events:
        call_id = str(event.data.get("call_id"))
        if event.event in {names.TOOL_CALL, names.HOOK_TOOL_CALL}:
            inputs[call_id] = event.data.get("input")
        elif event.event == names.TOOL_RESULT:
            results[call_id] = event.data.get("content")

    def is_repeated(event: Event) -> bool:
        data, call_id = event.data, str(event.data.get("call_id"))
        if data.get("number", 1) != 1 or data.get("ran") is False:
            return False
        if event.event == names.TOOL_START:
            return inputs.get(call_id) == data.get("input")
        if event.event != names.TOOL_END or call_id not in results:
            return False
        return "content" not in data or same_result(
            to_result_content(data["content"]), to_result_content(results[call_id])
        )

    return [event for event in events if not is_repeated(event)]


def _without(data: Mapping[str, Any], more: Iterable[str] = ()) -> dict[str, Any]:
    dropped = {*VOLATILE_FIELDS, *more}
    return {
        name: value
        for name, value in data.items()
        if name not in dropped and not MEASURED_FIELD.fullmatch(name)
    }


def _join_output(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events; consecutive output of one stream, which comes in any parts, as one."""
    first: Event | None = None
    stream = ""
    parts: list[bytes] = []

    def joined() -> Iterator[Event]:
        if first is not None:
            text = b"".join(parts).decode("utf-8", "replace")
            yield msgspec.structs.replace(first, data={"stream": stream, "text": text})

    for event in events:
        output = output_bytes(event)
        if (
            output is not None
            and first is not None
            and (first.event, stream)
            == (
                event.event,
                output[0],
            )
        ):
            parts.append(output[1])
            continue
        yield from joined()
        first = None
        if output is None:
            yield event
        else:
            first, stream, parts = event, output[0], [output[1]]
    yield from joined()


def _request_content(data: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the new messages, without results that an event has, and the options if new."""
    messages: list[dict[str, Any]] = []
    for message in _objects(data.get("new")):
        blocks = [
            _without(block)
            for block in _objects(message.get("blocks"))
            if block.get("type") != "tool_result"
            or results.get(str(block.get("call_id")), block) != block.get("content", [])
        ]
        if blocks:
            messages.append({"role": message.get("role"), "blocks": blocks})
    options = _without(data, {"new"})
    if isinstance(options.get("parameters"), Mapping):
        options["parameters"] = _without(options["parameters"], VOLATILE_OPTIONS)
    return {"messages": messages, **options}


def _reply_content(data: Mapping[str, Any], made: set[str]) -> dict[str, Any]:
    """Return the text and the reasoning, and the calls that the agent did not make."""
    blocks = _objects(data.get("blocks"))
    content = _without(data, {"blocks"})
    texts = [block.get("text", "") for block in blocks if block.get("type") == "text"]
    if texts:
        content["text"] = "\n".join(texts)
    others = [
        _without(block)
        for block in blocks
        if block.get("type") not in {"text", "tool_call"}
        or (block.get("type") == "tool_call" and str(block.get("id")) not in made)
    ]
    if others:
        content["blocks"] = others
    return content


def _objects(value: Any) -> list[dict[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, (list, tuple)) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


# ------------------------------------------------------------------------------ volatile values


def _mask(event: Event, ids: list[str]) -> Callable[[str], str]:
    """Return a function that replaces the volatile values of a text and collects its ids."""
    # The duration of a tool is measured; in an argument it is what the model asked for.
    measured = {names.TOOL_RESULT, names.TOOL_END, *OUTPUT_EVENTS}
    with_durations = event.event in measured

    def collect(match: re.Match[str]) -> str:
        ids.append(match[0])
        return ID

    def mask(text: str) -> str:
        text = _FOLDERS.sub(FOLDER, text)
        text = _IDS.sub(collect, text)
        text = _TIMES.sub(lambda match: TIME if _is_near(match[0], event.ts) else match[0], text)
        return _DURATIONS.sub(DURATION, text) if with_durations else text

    return mask


def _is_near(text: str, ts: int) -> bool:
    """Return whether a time is within a day of an event: the time of the run, not a date in it."""
    try:
        if text.replace(".", "").isdigit():
            number = float(text)
            millis = number if number > 10**11 else number * 1000
        else:
            time = datetime.fromisoformat(text.replace(",", "."))
            millis = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000
    except (ValueError, OverflowError):
        return False
    return abs(millis - ts) <= DAY


def _clean(name: str, value: Any, mask: Callable[[str], str], event: Event) -> Any:
    """Return a value with its texts masked, and without measured fields in a tool's details."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)):
        return TIME if value > DAY and _is_near(str(value), event.ts) else value
    if isinstance(value, Mapping):
        fields = cast("Mapping[Any, Any]", value)
        return {
            mask(str(key)): _clean(name, item, mask, event)
            for key, item in fields.items()
            if name != "details" or not MEASURED_FIELD.fullmatch(str(key))
        }
    if isinstance(value, (list, tuple)):
        return [_clean(name, item, mask, event) for item in cast("list[Any]", value)]
    return mask(repr(value))


# --------------------------------------------------------------------------------- for a reader


def _subject(event: Event) -> tuple[str, str]:
    data = event.data
    named = next((data[name] for name in ("tool", "check", "topic", "method") if name in data), "")
    return event.event, str(named)


def _title(event: Event, content: Mapping[str, Any]) -> str:
    data = event.data
    tool = data.get("tool", "")
    match event.event:
        case names.REQUEST:
            texts = [
                str(block.get("text", block.get("type")))
                for message in _objects(content.get("messages"))
                for block in _objects(message.get("blocks"))
            ]
            return f"request {_quote(' · '.join(texts))}" if texts else "request"
        case names.REPLY:
            text = content.get("text")
            return f"reply {_quote(text)}" if text else f"reply ({data.get('stop', '')})"
        case names.TOOL_CALL | names.TOOL_START:
            word = "call" if event.event == names.TOOL_CALL else "run"
            return f"{word} {tool} {_quote(data.get('input', {}))}"
        case names.TOOL_RESULT | names.TOOL_END:
            texts = [
                str(block.get("text", block.get("type"))) for block in _objects(data.get("content"))
            ]
            failed = "error " if data.get("is_error") else ""
            return f"result {tool} → {failed}{_quote(' '.join(texts))}"
        case names.TOOL_BLOCKED:
            return f"blocked {tool}: {data.get('reason', '')}"
        case names.VERDICT:
            return f"{data.get('status')} {data.get('check')}"
        case names.PROCESS_OUTPUT | names.TERMINAL_WRITE:
            return f"output {_quote(data.get('text', ''))}"
        case name:
            return f"{name} {_quote(content)}" if content else name


def _quote(value: Any) -> str:
    return to_sorted_json(value).decode()
