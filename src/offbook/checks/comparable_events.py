"""Events without what differs between two runs of the same agent: times, ids, temporary folders.

A comparable event has the part of an event that a reader of two traces would compare. A fact that
several events have is kept in one of them: a tool result in `tool.result` and not in the next
request, a made call in `tool.call` and not in the reply, an execution in its call and its result
unless it had another input or content, or was not the first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import msgspec

from offbook.trace import events as names
from offbook.trace.agent_output import output_bytes
from offbook.trace.events import Event
from offbook.trace.executions import same_result, to_result_content
from offbook.trace.redaction import ANY_ID, BUILTIN, DATE, ISO, TMP, VOLATILE_OPTIONS, Redaction

# Fields that a trace needs to be read, and numbers of the script: they say nothing of the agent.
VOLATILE_FIELDS = frozenset(
    {"before", "after", "head", "exchange", "metadata", "step", "id", "count", "call_id", "usage"}
    | {"observed"}  # of a tool: it says nothing of the agent either
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

encode_sorted = msgspec.json.Encoder(order="sorted", enc_hook=repr).encode


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
        return self.event.event.encode() + encode_sorted(self.content)


def comparable_events(
    events: Iterable[Event], redaction: Redaction | None = None
) -> Iterator[ComparableEvent]:
    """Yield the events of a trace to compare; output in several events is joined to one."""
    # The bytes of an exchange repeat what its request and its reply say.
    left_out = {names.HEADER, names.WIRE}
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
            content = redaction.value(content)
        ids: list[str] = []
        mask = _mask(event, ids)
        masked = {name: _clean(name, value, mask, event) for name, value in content.items()}
        yield ComparableEvent(event, _subject(event), masked, tuple(ids), _title(event, content))


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
                for message in content["messages"]
                for block in message["blocks"]
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
    return encode_sorted(value).decode("utf-8", "replace")
