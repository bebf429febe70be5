"""Traces as OpenTelemetry spans: what they contain, and that they can be imported again."""

from __future__ import annotations

import asyncio
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import CollectorError, ModelError, UsageError
from offbook.exchange import (
    History,
    Message,
    Reply,
    Request,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    Usage,
    user,
)
from offbook.reports import ATTRIBUTES, PARAMETERS, export_spans
from offbook.runs import send_spans, session
from offbook.sources.importers import OtlpImporter, Skipped, TraceRecord
from offbook.sources.playbook import call, fail, say, when
from offbook.trace import CORRELATION_ID, RUN_START, Event, Hub, Trace, TracedSource, run_span_id

Document = dict[str, Any]


def spans_of(document: Document) -> list[Document]:
    (resource,) = document["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    return scope["spans"]


def attributes_of(span: Document) -> dict[str, Any]:
    """Return the attributes with plain values."""
    return {item["key"]: next(iter(item["value"].values())) for item in span.get("attributes", [])}


def record(path: Path, *steps: Any, **options: Any) -> Trace:
    with session(trace=path, **options) as rehearsal:
        rehearsal.run(when("Greet me", [*steps, say("Done.")]))
    return Trace(path)


# ----------------------------------------------------------------------------------- round trip


class Replies:
    """A source with these replies; an error is raised."""

    def __init__(self, replies: list[Reply | ModelError]) -> None:
        self._replies = iter(replies)

    async def reply(self, request: Request, /) -> Reply:  # noqa: ARG002 - the protocol's
        reply = next(self._replies)
        if isinstance(reply, ModelError):
            raise reply
        return reply


async def converse(replies: list[Reply | ModelError]) -> list[Event]:
    """Return the events of a conversation with these replies."""
    hub = Hub()
    events: list[Event] = []
    hub.subscribe(events.append)
    source = TracedSource(Replies(replies), hub)
    messages = History()
    for number, _ in enumerate(replies):
        messages = messages.plus(user(f"prompt {number}"))
        try:
            reply = await source.reply(Request(messages, model="gpt-5"))
        except ModelError:
            continue
        messages = messages.plus(Message("assistant", reply.blocks))
    return events


texts = st.text(min_size=1, max_size=20).filter(
    lambda text: text == text.encode("utf-8", "ignore").decode()
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=3,
)
blocks = st.one_of(
    texts.map(Text),
    texts.map(Thinking),
    st.builds(ToolCall, texts, texts, st.dictionaries(texts, values, max_size=3)),
)
stops = st.sampled_from(["stop", "length", "stop_sequence", "refusal", "error"])
counts = st.integers(0, 10**9)


def make_reply(content: list[Any], stop: StopReason, usage: Usage) -> Reply:
    has_calls = any(isinstance(block, ToolCall) for block in content)
    return Reply(tuple(content), "tool_use" if has_calls and stop == "stop" else stop, usage, "m")


replies = st.one_of(
    st.builds(
        make_reply,
        st.lists(blocks, min_size=1, max_size=3),
        stops,
        st.builds(Usage, counts.map(lambda n: n + 1), counts, counts, counts, counts),
    ),
    st.builds(ModelError, texts.map(lambda text: f"x{text}"), status=st.integers(400, 599)),
)


@given(st.lists(replies, min_size=1, max_size=3))
def test_an_exported_conversation_is_imported_as_it_was(conversation: list[Reply | ModelError]):
    document = json.loads(json.dumps(export_spans(asyncio.run(converse(conversation)))))
    records = [TraceRecord(1, document)]
    skipped = Skipped()
    assert OtlpImporter().recognizes(records)
    imported = OtlpImporter().read(records, Path("spans.json"), None, skipped)
    assert not skipped
    assert [exchange.prompt for exchange in imported] == [
        f"prompt {number}" for number in range(len(conversation))
    ]
    for exchange, expected in zip(imported, conversation, strict=True):
        if isinstance(expected, ModelError):
            assert exchange.error is not None
            assert (exchange.error.message, exchange.error.status) == (
                expected.message,
                expected.status,
            )
        else:
            assert exchange.reply == expected


# ---------------------------------------------------------------------------------------- spans


def test_a_run_is_the_parent_of_its_requests_and_tools(tmp_path: Path):
    spans = spans_of(export_spans(record(tmp_path / "t.jsonl", call("bash", {"command": "true"}))))
    assert [span["name"] for span in spans] == [
        "invoke_agent session",
        "chat offbook/playbook",
        "execute_tool bash",
        "chat offbook/playbook",
    ]
    assert {span.get("parentSpanId") for span in spans} == {None, spans[0]["spanId"]}
    assert len({span["traceId"] for span in spans}) == 1
    assert len({span["spanId"] for span in spans}) == len(spans)


def test_a_request_has_the_whole_conversation_and_its_tokens(tmp_path: Path):
    spans = spans_of(
        export_spans(record(tmp_path / "t.jsonl", call("bash", {"command": "echo hi"})))
    )
    attributes = attributes_of(spans[-1])
    messages = json.loads(attributes[ATTRIBUTES["request messages"]])
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[2]["parts"][0]["response"] == "hi\n"
    assert int(attributes["gen_ai.usage.input_tokens"]) > 0
    assert "bash" in attributes["gen_ai.tool.definitions"]


def test_a_failed_tool_is_an_error_of_its_span(tmp_path: Path):
    trace = record(tmp_path / "t.jsonl", call("bash", {"command": "echo no; exit 3"}))
    tool = spans_of(export_spans(trace))[2]
    assert attributes_of(tool)["error.type"] == "tool_error"
    assert tool["status"]["code"] == 2
    assert "no" in tool["status"]["message"]


def test_an_error_of_the_provider_has_its_status(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    with session(trace=path) as rehearsal:
        rehearsal.run(when("Greet me", [fail("overloaded", status=529)]))
    failed = [span for span in spans_of(export_spans(Trace(path))) if span["status"]]
    assert attributes_of(failed[0])["http.response.status_code"] == "529"
    assert "overloaded" in failed[0]["status"]["message"]


def test_a_verdict_is_an_event_of_the_run(tmp_path: Path):
    run = spans_of(export_spans(record(tmp_path / "t.jsonl")))[0]
    (event,) = run["events"]
    assert event["name"] == "gen_ai.evaluation.result"
    assert attributes_of(event)["gen_ai.evaluation.score.label"] == "pass"


def test_a_change_is_an_event_of_the_run():
    change = {"what": "model", "expected": "a", "got": "b", "level": "shown"}
    events = [Event(1, RUN_START, {"subject": "x"}, 1), Event(2, "model.change", change, 2)]
    (run,) = spans_of(export_spans(events))
    (noted,) = run["events"]
    assert noted["name"] == "model.change"
    assert json.loads(attributes_of(noted)["offbook.data"]) == change


def test_each_run_of_a_trace_has_a_span_of_its_own():
    starts = [Event(1, RUN_START, {}, 1), Event(2, RUN_START, {"subject": "shop"}, 2)]
    first, second = spans_of(export_spans(starts))
    assert (first["name"], second["name"]) == ("invoke_agent", "invoke_agent shop")
    assert "gen_ai.agent.name" not in attributes_of(first)
    assert first["spanId"] == run_span_id(first["traceId"]) != second["spanId"]
    assert "parentSpanId" not in second


def test_a_replay_without_a_start_is_the_parent_of_the_agents_own_spans():
    context = {CORRELATION_ID: "ab" * 16}
    called = Event(5, "tool.call", {"call_id": "c1", "tool": "find"}, 1, context=context)
    run, tool = spans_of(export_spans([called]))
    assert (run["traceId"], run["spanId"]) == ("ab" * 16, run_span_id("ab" * 16))
    assert tool["parentSpanId"] == run["spanId"]


async def test_the_parameters_of_a_request_are_attributes():
    hub = Hub()
    events: list[Event] = []
    hub.subscribe(events.append)
    parameters = {"temperature": 0.5, "seed": 7, "top_p": True, "user": "me"}
    request = Request(History([user("Hi")]), stream=True, parameters=parameters)
    await TracedSource(Replies([Reply((Text("Hello."),))]), hub).reply(request)
    (span,) = spans_of(export_spans(events))
    values = {item["key"]: item["value"] for item in span["attributes"]}
    assert values["gen_ai.request.stream"] == {"boolValue": True}
    assert values["gen_ai.request.temperature"] == {"doubleValue": 0.5}
    assert values["gen_ai.request.seed"] == {"intValue": "7"}
    assert not {"gen_ai.request.top_p", "gen_ai.request.model"} & set(values)


def test_a_call_without_a_result_is_unfinished():
    called = Event(5, "tool.call", {"call_id": "c1", "tool": "find", "input": {}}, 1)
    (span,) = spans_of(export_spans([called, Event(9, "agent.end", {}, 2)]))
    assert attributes_of(span)["error.type"] == "unfinished"
    assert span["endTimeUnixNano"] == "9000000"


def test_an_export_is_the_same_each_time(tmp_path: Path):
    trace = record(tmp_path / "t.jsonl")
    assert export_spans(trace) == export_spans(Trace(trace.path))


def test_the_names_are_those_of_the_semantic_conventions():
    known = pytest.importorskip("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")
    published = {getattr(known, name) for name in dir(known) if name.startswith("GEN_AI")}
    used = {*ATTRIBUTES.values(), *PARAMETERS.values()}
    assert {name for name in used if name.startswith("gen_ai.")} <= published


def test_every_attribute_of_an_export_is_published(tmp_path: Path):
    known = pytest.importorskip("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")
    published = {getattr(known, name) for name in dir(known) if name.startswith("GEN_AI")}
    operations = {one.value for one in known.GenAiOperationNameValues}
    spans = spans_of(export_spans(record(tmp_path / "t.jsonl", call("bash", {"command": "true"}))))
    of_spans = [attributes_of(span) for span in spans]
    of_events = [attributes_of(event) for span in spans for event in span.get("events", ())]
    names = {name for found in (*of_spans, *of_events) for name in found}
    assert {name for name in names if name.startswith("gen_ai.")} <= published
    assert {found["gen_ai.operation.name"] for found in of_spans} <= operations


# ------------------------------------------------------------------------------------ collector


class Collector(HTTPServer):
    """A collector that keeps the bodies of its requests, and answers with one status."""

    def __init__(self, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.received: list[tuple[str, dict[str, str], bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        self._thread = Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Collector  # pyright: ignore[reportIncompatibleVariableOverride] - its own server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.received.append((self.path, headers, body))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(b"no" if self.server.status != 200 else b"")

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - prints nothing
        pass


@pytest.mark.parametrize("path", ["", "/", "/v1/traces"])
def test_a_collector_receives_the_spans_as_protobuf(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a%20b,authorization=Bearer none")
    document = export_spans(record(tmp_path / "t.jsonl"))
    with Collector() as collector:
        assert send_spans(document, collector.url + path) == 2
    ((requested, headers, body),) = collector.received
    message = service.ExportTraceServiceRequest.FromString(body)
    (scope,) = message.resource_spans[0].scope_spans
    assert requested == "/v1/traces"
    assert headers["x-tenant"] == "a b"
    assert [span.name for span in scope.spans] == ["invoke_agent session", "chat offbook/playbook"]
    assert scope.spans[1].parent_span_id == scope.spans[0].span_id
    assert scope.spans[0].trace_id.hex() == spans_of(document)[0]["traceId"]


def test_a_collector_that_is_down_is_named():
    pytest.importorskip("opentelemetry.proto")
    with Collector() as collector:
        url = collector.url
    with pytest.raises(CollectorError, match=f"{url}: the collector cannot be reached"):
        send_spans({"resourceSpans": []}, url)


def test_a_refusal_of_the_collector_has_its_status():
    pytest.importorskip("opentelemetry.proto")
    with Collector(415) as collector, pytest.raises(CollectorError, match="HTTP 415 no"):
        send_spans({"resourceSpans": []}, collector.url)


def test_an_invalid_address_is_refused():
    with pytest.raises(UsageError, match="invalid address"):
        send_spans({"resourceSpans": []}, "127.0.0.1:4318")
