"""A trace as OpenTelemetry spans, by the semantic conventions for generative AI.

    document = export_spans(Trace("run.jsonl"))    # OTLP in JSON, as collectors read it

A run is a span `invoke_agent`, a request to the model a span `chat`, a tool call a span
`execute_tool`; verdicts and injected faults are events of the run's span. `ATTRIBUTES` has the
names that are used, of version 1.41 of the conventions. Ids are derived from the trace, so that a
trace that is exported twice has the same spans.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, cast

import msgspec

from offbook.exchange.messages import (
    AnyBlock,
    Image,
    Message,
    RawBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    to_json,
)
from offbook.exchange.model import Request
from offbook.exchange.providers import all_providers
from offbook.files import convert
from offbook.trace import events as names
from offbook.trace.correlation import CORRELATION_ID, TRACEPARENT, parse_traceparent, run_span_id
from offbook.trace.events import Event
from offbook.trace.instrument import ReplyData
from offbook.trace.rebuilt_requests import rebuild_requests
from offbook.version import VERSION

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"
ATTRIBUTES = {
    "agent": "gen_ai.agent.name",
    "arguments": "gen_ai.tool.call.arguments",
    "cache_read": "gen_ai.usage.cache_read.input_tokens",
    "cache_write": "gen_ai.usage.cache_creation.input_tokens",
    "call id": "gen_ai.tool.call.id",
    "conversation": "gen_ai.conversation.id",
    "error": "error.type",
    "finish": "gen_ai.response.finish_reasons",
    "input": "gen_ai.usage.input_tokens",
    "model": "gen_ai.request.model",
    "operation": "gen_ai.operation.name",
    "output": "gen_ai.usage.output_tokens",
    "provider": "gen_ai.provider.name",
    "reasoning": "gen_ai.usage.reasoning.output_tokens",
    "reply id": "gen_ai.response.id",
    "reply messages": "gen_ai.output.messages",
    "reply model": "gen_ai.response.model",
    "request messages": "gen_ai.input.messages",
    "result": "gen_ai.tool.call.result",
    "status": "http.response.status_code",
    "stream": "gen_ai.request.stream",
    "system": "gen_ai.system_instructions",
    "tool": "gen_ai.tool.name",
    "tool type": "gen_ai.tool.type",
    "tools": "gen_ai.tool.definitions",
}
# Parameters of requests that have an attribute, by the names that providers use.
PARAMETERS = {
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "max_output_tokens": "gen_ai.request.max_tokens",
    "max_tokens": "gen_ai.request.max_tokens",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
    "temperature": "gen_ai.request.temperature",
    "top_k": "gen_ai.request.top_k",
    "top_p": "gen_ai.request.top_p",
}
FINISH_REASONS = {"tool_use": "tool_call", "refusal": "content_filter"}
UNKNOWN_PROVIDER = "offbook"  # the attribute is required, and a session has no provider
INTERNAL, CLIENT = 1, 3
ERROR = 2
EVALUATION = "gen_ai.evaluation.result"
FAULTS = "fault."
IDENTIFYING = 100  # events whose content and times identify a trace without a correlation id

Fields = dict[str, Any]


class Span:
    """A span in the making."""

    def __init__(self, name: str, kind: int, event: Event, ids: tuple[str, str, str]) -> None:
        self.name = name
        self.kind = kind
        self.start: float = event.ts  # in milliseconds
        self.end: float = event.ts
        self.trace_id, self.id, self.parent = ids
        self.attributes: Fields = {}
        self.events: list[tuple[int, str, Fields]] = []
        self.error: str | None = None

    def set(self, **values: Any) -> None:
        """Set attributes by their names in `ATTRIBUTES`, with spaces as underscores."""
        for name, value in values.items():
            key = ATTRIBUTES.get(name) or ATTRIBUTES[name.replace("_", " ")]
            self.attributes[key] = value

    def fail(self, error_type: str, message: str = "") -> None:
        """Mark the span as failed."""
        self.set(error=error_type)
        self.error = message

    def render(self) -> Fields:
        """Return the span as OTLP writes it in JSON."""
        rendered: Fields = {
            "traceId": self.trace_id,
            "spanId": self.id,
            **({"parentSpanId": self.parent} if self.parent else {}),
            "flags": 1,
            "name": self.name,
            "kind": self.kind,
            "startTimeUnixNano": _nanoseconds(self.start),
            "endTimeUnixNano": _nanoseconds(max(self.start, self.end)),
            "attributes": _render_attributes(self.attributes),
            "status": {},
        }
        if self.error is not None:
            rendered["status"] = {"code": ERROR, "message": self.error}
        if self.events:
            rendered["events"] = [
                {
                    "timeUnixNano": _nanoseconds(ts),
                    "name": name,
                    "attributes": _render_attributes(attributes),
                }
                for ts, name, attributes in self.events
            ]
        return rendered


def export_spans(trace: Iterable[Event]) -> Fields:
    """Return the spans of a trace as one OTLP document; without a run or a request it has none."""
    events = [event for event in trace if event.event != names.HEADER]
    spans = _Spans(events).build()
    resource = {"attributes": _render_attributes({"service.name": "offbook"})}
    scope = {"name": "offbook", "version": VERSION}
    listed = {"scope": scope, "spans": [span.render() for span in spans], "schemaUrl": SCHEMA_URL}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [listed]}]}


def count_spans(document: Fields) -> int:
    """Return the number of spans of a document."""
    return sum(
        len(scope["spans"])
        for resource in document["resourceSpans"]
        for scope in resource["scopeSpans"]
    )


class _Spans:
    """The open spans while the events of a trace are read."""

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self._requests = rebuild_requests(events)
        self._spans: list[Span] = []
        self._run: Span | None = None
        self._runs = 0
        self._chats: dict[tuple[str, str], Span] = {}
        self._tools: dict[str, Span] = {}
        self._running: dict[tuple[str, int, str], Span] = {}
        self._ended: set[str] = set()  # the calls whose tools were seen to end
        found = (event.context.get(CORRELATION_ID) for event in events)
        correlation = next((value for value in found if isinstance(value, str)), "")
        self._is_watched = bool(correlation)
        derived = blake2b(to_json(events[:IDENTIFYING]), digest_size=16).hexdigest()
        self._trace_id = correlation or derived

    def build(self) -> list[Span]:
        handlers = {
            names.RUN_START: self._on_run_start,
            names.RUN_END: self._on_run_end,
            names.REQUEST: self._on_request,
            names.REPLY: self._on_reply,
            names.ERROR: self._on_model_error,
            names.TOOL_CALL: self._on_tool_call,
            names.HOOK_TOOL_CALL: self._on_changed_input,
            names.TOOL_START: self._on_tool_start,
            names.TOOL_END: self._on_tool_end,
            names.TOOL_RESULT: self._on_tool_result,
            names.TOOL_ERROR: self._on_tool_error,
            names.TOOL_BLOCKED: self._on_blocked,
            names.VERDICT: self._on_verdict,
        }
        if self._is_watched and all(event.event != names.RUN_START for event in self._events):
            # A replay has no event for its start; the agent's own spans still need their parent.
            self._on_run_start(self._events[0])
        for event in self._events:
            handler = handlers.get(event.event)
            if handler is not None:
                handler(event)
            elif self._run is not None and (
                event.event.startswith(FAULTS) or event.event == names.CHANGE
            ):
                data = {"offbook.data": to_json(event.data).decode()}
                self._run.events.append((event.ts, event.event, data))
            if self._run is not None and event.event != names.VERDICT:
                self._run.end = event.ts
        ended = (span for call_id, span in self._tools.items() if call_id not in self._ended)
        for span in [*self._chats.values(), *ended, *self._running.values()]:
            # A run that was killed, or a call whose result was never sent.
            span.end = self._events[-1].ts
            span.fail("unfinished", "the trace has no end of it")
        return self._spans

    def _open(self, name: str, kind: int, event: Event, parent: str = "") -> Span:
        digest = blake2b(f"{self._trace_id}:{event.seq}:{name}".encode(), digest_size=8)
        parent = parent or ("" if self._run is None else self._run.id)
        span = Span(name, kind, event, (self._trace_id, digest.hexdigest(), parent))
        self._spans.append(span)
        return span

    # --- Runs

    def _on_run_start(self, event: Event) -> None:
        self._run = None
        subject = str(event.data.get("subject", ""))
        run = self._open(f"invoke_agent {subject}".rstrip(), INTERNAL, event)
        self._runs += 1
        if self._runs == 1:  # the agent knows it as the parent of its spans
            run.id = run_span_id(self._trace_id)
        run.set(operation="invoke_agent", provider=UNKNOWN_PROVIDER, conversation=self._trace_id)
        if subject:
            run.set(agent=subject)
        self._run = run

    def _on_run_end(self, event: Event) -> None:
        run = self._run
        if run is None:  # the beginning of the trace is missing
            return
        output = event.data.get("output")
        if isinstance(output, str):
            message = _render_message(Message("assistant", (Text(output),)))
            run.set(reply_messages=_render_messages([{**message, "finish_reason": "stop"}]))
        if not event.data.get("ok"):
            error = str(event.data.get("error", ""))
            run.fail(error.partition(":")[0] or "error", error)

    def _on_verdict(self, event: Event) -> None:
        if self._run is None:
            return
        data = event.data
        attributes = {
            "gen_ai.evaluation.name": str(data.get("check", "")),
            "gen_ai.evaluation.score.label": str(data.get("status", "")),
        }
        if data.get("message"):
            attributes["gen_ai.evaluation.explanation"] = str(data["message"])
        self._run.events.append((event.ts, EVALUATION, attributes))

    # --- Requests to the model

    def _on_request(self, event: Event) -> None:
        request = next(self._requests)
        # The agent's own span, if its client sent the context in a header.
        sent = parse_traceparent(str(request.metadata.get(TRACEPARENT, "")))
        parent = sent[1] if sent is not None and sent[0] == self._trace_id else ""
        chat = self._open(f"chat {request.model}".rstrip(), CLIENT, event, parent)
        provider = all_providers().get(str(request.metadata.get("dialect")))
        chat.set(
            operation="chat",
            provider=provider.otel_name if provider else UNKNOWN_PROVIDER,
            request_messages=_render_messages(map(_render_message, request.messages)),
        )
        chat.attributes.update(_request_attributes(request))
        self._chats[_exchange(event)] = chat

    def _on_reply(self, event: Event) -> None:
        chat = self._chats.pop(_exchange(event), None)
        if chat is None:
            return
        chat.end = event.ts
        reply = ReplyData.read(event)
        finish = FINISH_REASONS.get(reply.stop, reply.stop)
        message = {
            **_render_message(Message("assistant", reply.blocks)),
            "finish_reason": finish,
        }
        chat.set(reply_messages=_render_messages([message]), finish=[finish])
        values = {"reply_model": reply.model, "reply_id": reply.id, "agent": reply.role}
        chat.set(**{name: value for name, value in values.items() if value})
        if reply.usage:
            counts = msgspec.to_builtins(reply.usage)
            chat.set(**{"input": reply.usage.input, "output": reply.usage.output, **counts})
        if reply.stop == "error":
            chat.fail("error")

    def _on_model_error(self, event: Event) -> None:
        chat = self._chats.pop(_exchange(event), None)
        if chat is None:
            return
        chat.end = event.ts
        status = event.data.get("status")
        if isinstance(status, int):
            chat.set(status=status)
        chat.fail(str(event.data.get("category") or status), str(event.data.get("message", "")))

    # --- Tools

    def _open_tool(self, event: Event) -> Span:
        data = event.data
        tool, call_id = str(data.get("tool", "")), str(data.get("call_id", ""))
        span = self._open(f"execute_tool {tool}", INTERNAL, event)
        span.set(operation="execute_tool", tool=tool, tool_type="function")
        span.set(arguments=to_json(data.get("input", {})).decode())
        if call_id:
            span.set(call_id=call_id)
        return span

    def _on_tool_call(self, event: Event) -> None:
        self._tools[str(event.data.get("call_id", ""))] = self._open_tool(event)

    def _on_tool_start(self, event: Event) -> None:
        key = _execution(event)
        span = self._tools.get(key[0]) if key[1] == 1 else None
        if span is None:  # without a call, or once more for it
            span = self._open_tool(event)
        else:
            span.start = span.end = event.ts
            span.set(arguments=to_json(event.data.get("input", {})).decode())
        self._running[key] = span

    def _on_tool_end(self, event: Event) -> None:
        span = self._running.pop(_execution(event), None)
        if span is None:
            return
        data = event.data
        span.end = span.start + float(data.get("ms", 0))
        self._ended.add(str(data.get("call_id", "")))
        if "content" in data:
            self._set_result(span, data["content"])
        if data.get("ran") is False:
            span.fail("refused", str(data.get("error", "")))
        elif "error" in data and span.error is None:
            span.fail(str(data["error"]).partition(":")[0] or "error", str(data["error"]))

    def _on_changed_input(self, event: Event) -> None:
        span = self._tools.get(str(event.data.get("call_id")))
        if span is not None:
            span.set(arguments=to_json(event.data.get("input", {})).decode())

    def _on_tool_result(self, event: Event) -> None:
        data = event.data
        call_id = str(data.get("call_id"))
        span = self._tools.pop(call_id, None)
        if span is None:
            if "input" not in data:  # the call is not in the trace
                return
            span = self._open_tool(event)  # of the agent, which the model never asked for
        elif "input" in data:
            span.set(arguments=to_json(data["input"]).decode())
        if call_id not in self._ended:  # else it ended when the tool did
            span.end = event.ts
        text = self._set_result(span, data.get("content", ()))
        if data.get("is_error") and span.error is None:
            span.fail("tool_error", text)

    def _set_result(self, span: Span, content: Any) -> str:
        """Set the result of a tool; return it if it is a text."""
        result = _render_content(convert(content, tuple[AnyBlock, ...], at="$.content"))
        span.set(result=result if isinstance(result, str) else to_json(result).decode())
        return result if isinstance(result, str) else ""

    def _on_tool_error(self, event: Event) -> None:
        span = self._tools.get(str(event.data.get("call_id")))
        if span is not None:
            error = str(event.data.get("error", ""))
            span.fail(error.partition(":")[0] or "error", error)

    def _on_blocked(self, event: Event) -> None:
        span = self._tools.pop(str(event.data.get("call_id")), None)
        if span is not None:
            span.end = event.ts
            span.fail("blocked", str(event.data.get("reason", "")))


def _execution(event: Event) -> tuple[str, int, str]:
    data = event.data
    return str(data.get("call_id", "")), int(data.get("number", 1)), str(data.get("tool", ""))


def _exchange(event: Event) -> tuple[str, str]:
    return str(event.context.get("run", "")), str(event.data.get("exchange", ""))


def _request_attributes(request: Request) -> Fields:
    attributes: Fields = {}
    if request.model:
        attributes[ATTRIBUTES["model"]] = request.model
    if request.stream:
        attributes[ATTRIBUTES["stream"]] = True
    if request.system:
        parts = [{"type": "text", "content": request.system}]
        attributes[ATTRIBUTES["system"]] = _render_messages(parts)
    if request.tools:
        tools = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.schema,
            }
            for tool in request.tools
        ]
        attributes[ATTRIBUTES["tools"]] = _render_messages(tools)
    for name, attribute in PARAMETERS.items():
        value = request.parameters.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            attributes[attribute] = value
    return attributes


# ------------------------------------------------------------------------------------- messages


def _render_messages(messages: Iterable[Fields]) -> str:
    # A text, because few receivers accept structured values as attributes of spans.
    return to_json(list(messages)).decode()


def _render_message(message: Message) -> Fields:
    return {"role": message.role, "parts": [_render_part(block) for block in message.blocks]}


def _render_part(block: AnyBlock) -> Fields:
    match block:
        case Text():
            return {"type": "text", "content": block.text}
        case Thinking():
            return {"type": "reasoning", "content": block.text}
        case ToolCall():
            call = {"id": block.id, "name": block.name, "arguments": block.arguments}
            return {"type": "tool_call", **call}
        case ToolResult():
            response = _render_content(block.content)
            return {"type": "tool_call_response", "id": block.call_id, "response": response}
        case Image() if block.url:
            return {"type": "uri", "modality": "image", "uri": block.url}
        case Image():
            content = {"mime_type": block.media_type, "content": block.data}
            return {"type": "blob", "modality": "image", **content}
        case RawBlock():
            return {**block.data, "type": block.kind}


def _render_content(content: Iterable[AnyBlock]) -> str | list[Fields]:
    blocks = list(content)
    if all(isinstance(block, Text) for block in blocks):
        return "\n".join(block.text for block in blocks if isinstance(block, Text))
    return [_render_part(block) for block in blocks]


# ----------------------------------------------------------------------------------------- OTLP


def _nanoseconds(millis: float) -> str:
    return str(max(0, round(millis * 1000)) * 1000)


def _render_attributes(attributes: Mapping[str, Any]) -> list[Fields]:
    return [{"key": key, "value": _render_value(value)} for key, value in attributes.items()]


def _render_value(value: Any) -> Fields:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            items = [_render_value(item) for item in cast("list[Any]", value)]
            return {"arrayValue": {"values": items}}
        case _:
            return {"stringValue": str(value)}
