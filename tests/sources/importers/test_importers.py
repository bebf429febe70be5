"""Traces of other tools become cassettes or mocks."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook.errors import FormatError, ModelError, ReplayMismatch, UsageError
from offbook.exchange import Text, Thinking, ToolCall, detect_dialect
from offbook.exchange.dialects import ConversationStore
from offbook.files import parse_yaml
from offbook.sources.cassette import Cassette
from offbook.sources.importers import (
    MAIN_HAT,
    ImportedExchange,
    Skipped,
    read_trace,
    write_cassette,
    write_mocks,
)
from offbook.trace import Trace
from tests.exchange.dialects.captures import read_capture
from tests.sources.cassette.conversations import ask


def lines(path: Path, *values: Any) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(value) + b"\n" for value in values))
    return path


def attribute(key: str, value: Any) -> dict[str, Any]:
    kind = "intValue" if isinstance(value, int) else "stringValue"
    return {"key": key, "value": {kind: str(value)}}


def otlp(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def span(name: str, start: int, *attributes: Any, **more: Any) -> dict[str, Any]:
    begin, end = str(start * 10**9), str(start * 10**9 + 250_000_000)
    times = {"startTimeUnixNano": begin, "endTimeUnixNano": end}
    return {"traceId": name, **times, "attributes": list(attributes), **more}


CHAT = (attribute("gen_ai.operation.name", "chat"), attribute("gen_ai.request.model", "gpt-5"))
REQUEST = [{"role": "user", "parts": [{"type": "text", "content": "Refund order 7"}]}]
REPLY = [
    {
        "role": "assistant",
        "parts": [
            {"type": "reasoning", "content": "hm"},
            {"type": "tool_call", "id": "c1", "name": "find", "arguments": {"id": 7}},
        ],
        "finish_reason": "tool_call",
    }
]


def dump(value: Any) -> str:
    return msgspec.json.encode(value).decode()


async def test_a_production_trace_becomes_a_cassette_that_replays(tmp_path: Path):
    trace = lines(
        tmp_path / "trace.jsonl",
        {
            "prompt": "Refund order 7",
            "response": {"text": "let me look", "model": "gpt-5", "input_tokens": 9},
            "tool_calls": [{"name": "find", "arguments": {"id": 7}}],
        },
        {"prompt": "Refund order 7", "response": "Done."},
    )
    cassette = tmp_path / "refund.yaml"
    assert write_cassette(read_trace(trace), cassette) == 2
    source = Cassette(cassette)
    first = await source.reply(ask("Refund order 7", system="any"))
    assert first.calls == (ToolCall("imported-1", "find", {"id": 7}),)
    second = await source.reply(ask("Refund order 7", "let me look", "Refund order 7"))
    assert second.text == "Done."
    assert source.verdict().status == "pass"


async def test_another_prompt_than_the_imported_one_is_refused(tmp_path: Path):
    trace = lines(tmp_path / "trace.jsonl", {"prompt": "Refund order 7", "response": "Done."})
    write_cassette(read_trace(trace), tmp_path / "one.yaml")
    with pytest.raises(ReplayMismatch, match=r"Differs at: \$\.prompt"):
        await Cassette(tmp_path / "one.yaml").reply(ask("Refund order 8"))


async def test_a_mismatch_shows_only_what_a_person_wrote(tmp_path: Path):
    trace = lines(tmp_path / "trace.jsonl", {"prompt": "Refund order 7", "response": "Done."})
    write_cassette(read_trace(trace), tmp_path / "one.yaml")
    with pytest.raises(ReplayMismatch, match="Refund order 8") as raised:
        await Cassette(tmp_path / "one.yaml").reply(ask(f"{REMINDER}\nRefund order 8"))
    assert "system-reminder" not in str(raised.value)


RECORDS: list[tuple[Any, Any]] = [
    ({"prompt": "q", "response": ""}, {"text": "", "model": "imported-trace"}),
    (
        {"prompt": "q", "response": {"text": None, "content": "a"}},
        {"text": "a", "model": "imported-trace"},
    ),
    (
        {"prompt": "q", "response": {"content": ["a", {"type": "text", "text": "b"}]}},
        {"text": "a\nb", "model": "imported-trace"},
    ),
    (
        {"prompt": "q", "response": {"content": "a"}, "provider": "openai", "output_tokens": 3},
        {
            "text": "a",
            "model": "imported-trace",
            "provider": "openai",
            "input_tokens": 0,
            "output_tokens": 3,
        },
    ),
    (
        {"prompt": "q", "response": {"text": "a", "tool_calls": [{"name": "f", "args": {}}]}},
        {"text": "a", "tool_calls": [{"name": "f", "args": {}}], "model": "imported-trace"},
    ),
]


@pytest.mark.parametrize("record, mock", RECORDS)
def test_the_generic_trace_becomes_mocks(tmp_path: Path, record: Any, mock: Any):
    trace = lines(tmp_path / "trace.jsonl", record)
    assert write_mocks(read_trace(trace), tmp_path / "mocks.jsonl") == 1
    assert msgspec.json.decode((tmp_path / "mocks.jsonl").read_bytes()) == mock


def test_only_the_chosen_trace_is_read(tmp_path: Path):
    trace = lines(
        tmp_path / "trace.jsonl",
        {"trace_id": "t1", "prompt": "one", "response": "1"},
        {"trace_id": "t2", "prompt": "two", "response": ["not", "read"]},
    )
    assert [exchange.prompt for exchange in read_trace(trace, trace_id="t1")] == ["one"]
    with pytest.raises(FormatError, match="did you mean"):
        read_trace(trace, trace_id="t3")


@pytest.mark.parametrize(
    "text, line, message",
    [
        ("", None, "the file is empty"),
        ('{"prompt": "q", "response": "a"}\n{"prompt"\n', 2, "JSON"),
        ('{"prompt"', 1, "JSON"),
        (
            '{"prompt": "q", "response": "a", "tool_calls": "find"}',
            1,
            "expected a list as tool_calls",
        ),
        ('{"prompt": "q", "response": "a"}\n{"promt": "q"}', 2, "did you mean 'promt'"),
        ('{"prompt": "q", "response": ["a"]}', 1, "got list"),
        ('{"prompt": "q", "respnse": "a"}', 1, "no reply of a model\n.*did you mean 'respnse'"),
        ('{"prompt": "q", "response": null}', 1, "no reply of a model\nwrite its response"),
        ('{"prompt": "q", "response": {}, "tool_calls": []}', 1, "no reply of a model"),
        ('{"prompt": "q", "response": {"content": [{"type": "image"}]}}', 1, "no reply"),
        ('{"prompt": "q", "response": "a"}\n{"prompt": "\\ud800"}\n', 2, "utf-16 surrogate"),
        ('{"prompt": "q", "response": "a", "tool_calls": [{"args": {}}]}', 1, "no name"),
        ('["a"]', 1, "expected an object"),
        ('{"who": "knows"}', 1, "unknown trace format"),
        ('{"ts": 1, "event": "x", "data": {}}', None, "no reply of a model"),
        ('{"ts": 1, "event": "ux.terminal.write", "data": {"bytes": "%"}}', 1, "base64"),
    ],
)
def test_an_invalid_file_is_reported_with_its_line(
    tmp_path: Path, text: str, line: int | None, message: str
):
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(FormatError, match=message) as raised:
        read_trace(path)
    assert raised.value.line == line


@pytest.mark.parametrize(
    "written, arguments",
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        ('{"a": ', {"$raw": '{"a": '}),
        ("[1,2]", {"$raw": "[1,2]"}),
        ([1, 2], {"$raw": "[1,2]"}),
        ('{"a": ' + "[" * 100_000, {"$raw": '{"a": ' + "[" * 100_000}),
        ("", {}),
        (None, {}),
    ],
    ids=lambda value: str(value)[:12],
)
def test_arguments_that_are_no_object_stay_as_the_model_wrote_them(
    tmp_path: Path, written: Any, arguments: Any
):
    record = {"prompt": "q", "tool_calls": [{"name": "find", "arguments": written}]}
    (exchange,) = read_trace(lines(tmp_path / "trace.jsonl", record))
    assert [call.arguments for call in exchange.reply.calls] == [arguments]


REMINDER = "<system-reminder>be nice</system-reminder>"
SPAN_OF_A_CLIENT = [
    {"role": "user", "content": [{"type": "text", "text": t} for t in (REMINDER, "Refund")]},
    {"role": "user", "content": REMINDER},
]
CLIENTS: dict[str, list[Any]] = {
    "generic": [{"prompt": f"{REMINDER}\nRefund", "response": "Done."}],
    "generic, messages": [{"prompt": SPAN_OF_A_CLIENT, "response": "Done."}],
    "claude-code": [
        {"type": "user", "message": {"content": SPAN_OF_A_CLIENT[0]["content"]}},
        {"type": "assistant", "message": {"content": "Done."}},
    ],
    "otlp": [
        otlp(
            span(
                "t1",
                1,
                *CHAT,
                attribute("gen_ai.input.messages", dump(SPAN_OF_A_CLIENT)),
                attribute("gen_ai.output.messages", dump([{"content": "Done."}])),
            )
        )
    ],
}


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_prompt_is_what_a_person_wrote(tmp_path: Path, name: str):
    exchanges = read_trace(lines(tmp_path / "trace.jsonl", *CLIENTS[name]))
    assert [exchange.prompt for exchange in exchanges] == ["Refund"]
    write_cassette(exchanges, tmp_path / "one.yaml")
    reply = await Cassette(tmp_path / "one.yaml").reply(ask(f"{REMINDER}\nRefund"))
    assert reply.text == "Done."


@pytest.mark.parametrize("prompt", ["7", '{"order": 7}', "null"])
def test_a_prompt_that_is_json_is_a_text(tmp_path: Path, prompt: str):
    (exchange,) = read_trace(lines(tmp_path / "t.jsonl", {"prompt": prompt, "response": "a"}))
    assert exchange.prompt == prompt


@pytest.mark.external
@pytest.mark.parametrize("client", ["claude-code", "claude-agent-sdk-bash", "gemini-cli"])
async def test_the_request_of_a_real_client_matches_its_log(
    shared_data: Path, tmp_path: Path, client: str
):
    http_request = read_capture(shared_data / "wire" / client / "01.json")
    dialect = detect_dialect(http_request)
    assert dialect is not None
    request = dialect.decode(http_request, ConversationStore())
    record = {"prompt": request.latest_prompt, "response": "Hello."}
    write_cassette(read_trace(lines(tmp_path / "log.jsonl", record)), tmp_path / "one.yaml")
    assert (await Cassette(tmp_path / "one.yaml").reply(request)).text == "Hello."


def test_a_repeated_id_has_the_result_of_its_own_trace(tmp_path: Path):
    def model_call(trace: str, number: int, *messages: Any, reply: Any) -> dict[str, Any]:
        sent = attribute("gen_ai.input.messages", dump(messages))
        got = attribute("gen_ai.output.messages", dump([reply]))
        return span(trace, number, *CHAT, sent, got)

    def calling(number: int) -> dict[str, Any]:
        part = {"type": "tool_call", "id": "c1", "name": "find", "arguments": {"id": number}}
        return {"role": "assistant", "parts": [part]}

    def result(text: str) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": "c1", "content": text}

    done = {"role": "assistant", "content": "Done."}
    trace = otlp(
        model_call("t1", 1, reply=calling(7)),
        model_call("t2", 2, reply=calling(8)),
        model_call("t1", 3, result("kettle"), reply=calling(9)),
        model_call("t2", 4, result("toaster"), reply=done),
        model_call("t1", 5, result("kettle"), result("lamp"), reply=done),
    )
    write_cassette(read_trace(lines(tmp_path / "spans.json", trace)), tmp_path / "one.yaml")
    interactions = parse_yaml((tmp_path / "one.yaml").read_text())["interactions"]
    assert [t["result"] for item in interactions for t in item.get("tools", ())] == [
        "kettle",
        "toaster",
        "lamp",
    ]


def test_a_subagent_without_an_id_has_its_own_prompt(tmp_path: Path):
    def record(kind: str, uuid: str, parent: str | None, content: Any, **more: Any) -> Any:
        message = {"id": uuid, "role": kind, "content": content}
        return {"type": kind, "uuid": uuid, "parentUuid": parent, "message": message, **more}

    task: dict[str, Any] = {"type": "tool_use", "id": "t1", "name": "Task", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "A kettle."}
    side = {"isSidechain": True}
    path = lines(
        tmp_path / "session.jsonl",
        record("user", "1", None, "Refund order 7"),
        record("assistant", "2", "1", [task]),
        record("user", "3", None, "Find the order", **side),
        record("user", "4", None, "Find the customer", **side),
        {"type": "progress", "uuid": "5", "parentUuid": "3", **side},
        record("assistant", "6", "5", "A kettle.", **side),
        record("assistant", "7", "4", "Ann.", **side),
        record("user", "8", "2", [result]),
        record("assistant", "9", "8", "Refunded."),
    )
    assert [(e.prompt, e.reply.text) for e in read_trace(path)] == [
        ("Refund order 7", ""),
        ("Find the order", "A kettle."),
        ("Find the customer", "Ann."),
        ("Refund order 7", "Refunded."),
    ]


@pytest.mark.parametrize(
    "messages, started",
    [
        ("[" * 100_000, "1"),
        ('[{"role": "assistant", "content": "Hi"}]', "²"),
        ('[{"role": "assistant", "content": "Hi"}]', 1e308),
        ('[{"role": "assistant", "content": "Hi"}]', "9" * 400),
    ],
    ids=["nested too deeply", "no decimal digit", "too large", "too many digits"],
)
def test_values_out_of_range_end_no_import(tmp_path: Path, messages: str, started: Any):
    reply = attribute("gen_ai.output.messages", messages)
    spans = otlp({**span("t1", 1, *CHAT, reply), "startTimeUnixNano": started})
    run = {"id": "r", "run_type": "llm", "start_time": started, "end_time": started}
    platform = {**run, "inputs": {}, "outputs": {"messages": [{"content": "Hi"}]}}
    for record in (spans, platform):
        (exchange,) = read_trace(lines(tmp_path / "trace.jsonl", record))
        assert exchange.reply.text


def test_an_unknown_format_suggests_the_nearest(tmp_path: Path):
    with pytest.raises(UsageError, match="did you mean 'codex'"):
        read_trace(tmp_path / "trace.jsonl", kind="codx")


NEW = span(
    "t1",
    2,
    *CHAT,
    attribute("gen_ai.input.messages", dump(REQUEST)),
    attribute("gen_ai.output.messages", dump(REPLY)),
    attribute("gen_ai.usage.input_tokens", 11),
    attribute("gen_ai.usage.output_tokens", 5),
)
INDEXED = span(
    "t1",
    2,
    *CHAT,
    attribute("gen_ai.prompt.0.role", "user"),
    attribute("gen_ai.prompt.0.content", "Refund order 7"),
    attribute("gen_ai.completion.0.role", "assistant"),
    attribute("gen_ai.completion.0.finish_reason", "tool_calls"),
    attribute("gen_ai.completion.0.tool_calls.0.id", "c1"),
    attribute("gen_ai.completion.0.tool_calls.0.name", "find"),
    attribute("gen_ai.completion.0.tool_calls.0.arguments", '{"id": 7}'),
    attribute("gen_ai.usage.prompt_tokens", 11),
    attribute("gen_ai.usage.completion_tokens", 5),
)
INFERENCE = span(
    "t1",
    2,
    attribute("openinference.span.kind", "LLM"),
    attribute("llm.model_name", "gpt-5"),
    attribute("llm.input_messages.0.message.role", "user"),
    attribute("llm.input_messages.0.message.content", "Refund order 7"),
    attribute("llm.output_messages.0.message.tool_calls.0.tool_call.id", "c1"),
    attribute("llm.output_messages.0.message.tool_calls.0.tool_call.function.name", "find"),
    attribute(
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments", '{"id": 7}'
    ),
    attribute("llm.token_count.prompt", 11),
    attribute("llm.token_count.completion", 5),
)
EVENTS = span(
    "t1",
    2,
    *CHAT,
    attribute("gen_ai.usage.input_tokens", 11),
    attribute("gen_ai.usage.output_tokens", 5),
    events=[
        {"name": "gen_ai.user.message", "attributes": [attribute("content", "Refund order 7")]},
        {
            "name": "gen_ai.choice",
            "attributes": [
                attribute(
                    "message",
                    dump(
                        {
                            "tool_calls": [
                                {
                                    "id": "c1",
                                    "type": "function",
                                    "function": {"name": "find", "arguments": '{"id": 7}'},
                                }
                            ]
                        }
                    ),
                )
            ],
        },
    ],
)


CONTENT_EVENTS = span(
    "t1",
    2,
    *CHAT,
    attribute("gen_ai.usage.input_tokens", 11),
    attribute("gen_ai.usage.output_tokens", 5),
    events=[
        {
            "name": "gen_ai.content.prompt",
            "attributes": [attribute("gen_ai.prompt", dump(REQUEST))],
        },
        {
            "name": "gen_ai.content.completion",
            "attributes": [attribute("gen_ai.completion", dump([dump(REPLY[0])]))],
        },
        {"name": "exception", "attributes": []},
    ],
)
PLAIN_ATTRIBUTES = {
    **NEW,
    "attributes": {item["key"]: next(iter(item["value"].values())) for item in NEW["attributes"]},
}


@pytest.mark.parametrize(
    "earlier", [NEW, INDEXED, INFERENCE, EVENTS, CONTENT_EVENTS, PLAIN_ATTRIBUTES]
)
def test_spans_of_all_conventions_are_read(tmp_path: Path, earlier: dict[str, Any]):
    later = span("t1", 9, *CHAT, attribute("gen_ai.output.messages", dump([{"content": "Done."}])))
    other = span("t1", 1, attribute("gen_ai.operation.name", "execute_tool"))
    path = tmp_path / "spans.json"
    path.write_text(dump(otlp(later, other, earlier)))
    first, second = read_trace(path)
    assert first.prompt == "Refund order 7"
    assert first.reply.calls == (ToolCall("c1", "find", {"id": 7}),)
    assert first.reply.stop == "tool_use"
    assert (first.reply.usage.input, first.reply.usage.output) == (11, 5)
    assert (first.reply.model, first.duration_ms) == ("gpt-5", 250)
    assert second.reply.text == "Done."


@pytest.mark.parametrize(
    "reasons, stop",
    [
        ({"stringValue": '["length"]'}, "length"),
        ({"arrayValue": {"values": [{"stringValue": "length"}]}}, "length"),
        ({"stringValue": "length"}, "length"),
        ({"stringValue": "[]"}, "stop"),
        ({}, "stop"),
    ],
    ids=["a list in JSON", "a list", "a text", "an empty list", "nothing"],
)
def test_the_reason_why_a_reply_ended_is_read(tmp_path: Path, reasons: dict[str, Any], stop: str):
    reply = dump([{"role": "assistant", "content": "Hello."}])
    finish = {"key": "gen_ai.response.finish_reasons", "value": reasons}
    spans = otlp(span("t1", 1, *CHAT, attribute("gen_ai.output.messages", reply), finish))
    (exchange,) = read_trace(lines(tmp_path / "spans.json", spans))
    assert exchange.reply.stop == stop


def test_a_call_in_the_oldest_form_of_openai_is_read(tmp_path: Path):
    message = {"role": "assistant", "function_call": {"name": "find", "arguments": '{"id": 7}'}}
    reply = attribute("gen_ai.output.messages", dump([message]))
    (exchange,) = read_trace(lines(tmp_path / "spans.json", otlp(span("t1", 1, *CHAT, reply))))
    assert [(call.name, call.arguments) for call in exchange.reply.calls] == [("find", {"id": 7})]


def test_the_prompt_is_the_latest_text_of_the_user(tmp_path: Path):
    image = {"role": "user", "parts": [{"type": "uri", "uri": "https://a/b.png"}]}
    request = attribute("gen_ai.input.messages", dump([*REQUEST, image, 7]))
    reply = attribute("gen_ai.output.messages", dump(REPLY))
    trace = lines(tmp_path / "spans.json", otlp(span("t1", 1, *CHAT, request, reply)))
    (exchange,) = read_trace(trace)
    assert exchange.prompt == "Refund order 7"


def test_failed_spans_become_errors_of_the_provider(tmp_path: Path):
    failed = span(
        "t1", 1, *CHAT, attribute("error.type", "429"), status={"code": 2, "message": "slow down"}
    )
    path = lines(tmp_path / "spans.jsonl", otlp(failed), otlp(NEW))
    exchanges = read_trace(path, trace_id="t1")
    assert isinstance(exchanges[0].error, ModelError)
    assert (exchanges[0].error.status, exchanges[0].error.message) == (429, "slow down")
    write_mocks(exchanges, tmp_path / "mocks.jsonl")
    first = (tmp_path / "mocks.jsonl").read_text().splitlines()[0]
    assert msgspec.json.decode(first)["error"]["category"] == "rate_limit"


def test_spans_without_messages_are_refused(tmp_path: Path):
    path = lines(tmp_path / "spans.json", otlp(span("t1", 1, *CHAT)))
    with pytest.raises(FormatError, match="CAPTURE_MESSAGE_CONTENT"):
        read_trace(path)


def test_events_of_one_message_of_claude_code_are_joined(tmp_path: Path):
    def assistant(identity: str, *content: Any) -> dict[str, Any]:
        return {"type": "assistant", "message": {"id": identity, "content": list(content)}}

    path = lines(
        tmp_path / "session.jsonl",
        {"type": "system", "subtype": "init"},
        {"type": "user", "message": {"content": "Fix it"}},
        assistant("m1", {"type": "thinking", "thinking": "hm", "signature": "s"}),
        assistant(
            "m1", {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
        ),
        {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t1"}]}},
        assistant("m2", {"type": "text", "text": "Fixed."}),
        {"type": "result", "total_cost_usd": 0.1},
    )
    first, second = read_trace(path)
    assert first.reply.blocks == (Thinking("hm", "s"), ToolCall("t1", "Bash", {"command": "ls"}))
    assert (first.prompt, second.prompt) == ("Fix it", "Fix it")
    assert second.reply.blocks == (Text("Fixed."),)


def test_no_secret_is_imported(tmp_path: Path):
    secret = "sk-ant-api03-" + "a1B2" * 10
    trace = lines(tmp_path / "trace.jsonl", {"prompt": f"use {secret}", "response": f"ok {secret}"})
    write_cassette(read_trace(trace), tmp_path / "one.yaml")
    write_mocks(read_trace(trace), tmp_path / "mocks.jsonl")
    for name in ("one.yaml", "mocks.jsonl"):
        assert secret not in (tmp_path / name).read_text()


@pytest.mark.external
def test_recorded_sessions_of_ralph_are_imported_as_expected(shared_data: Path, tmp_path: Path):
    base = shared_data / "ralph"
    expected = msgspec.json.decode((base / "EXPECTED.json").read_bytes())
    seen = 0
    for name, session in expected.items():
        if session["kind"] != "session":
            continue
        if not session["terminal_text"]:
            with pytest.raises(FormatError, match="no reply of a model"):
                read_trace(base / name)
            continue
        seen += 1
        exchanges = read_trace(base / name)
        assert "".join(exchange.reply.text for exchange in exchanges) == session["terminal_text"], (
            name
        )
        hats = iter(session["summary"]["hat_sequence"] or [MAIN_HAT] * len(exchanges))
        assert all(exchange.hat in hats for exchange in exchanges), name  # in the same order
        cassette = tmp_path / f"{seen}.yaml"
        write_cassette(exchanges, cassette)
        source = Cassette(cassette)
        responses = [source.reply_to_prompt("any prompt", exchange.hat) for exchange in exchanges]
        assert "".join(r.output or "" for r in responses if r) == session["terminal_text"], name
        assert source.verdict().status == "pass", name
    assert seen


@pytest.mark.external
def test_other_files_of_ralph_are_not_sessions(shared_data: Path):
    base = shared_data / "ralph"
    expected = msgspec.json.decode((base / "EXPECTED.json").read_bytes())
    others = {name: file for name, file in expected.items() if file["kind"] != "session"}
    assert {file["kind"] for file in others.values()} == {"events", "other"}
    for name, file in others.items():
        if file["kind"] == "events":  # a bus has no model: its topics are read as a trace
            topics = [event.data["topic"] for event in Trace(base / name)]
            assert topics == file["topics"], name
            with pytest.raises(FormatError):
                read_trace(base / name)
        else:
            assert list(Trace(base / name)) == [], name
    exchanges = read_trace(base / "crates/ralph-adapters/tests/fixtures/claude_stream_peak.jsonl")
    assert [exchange.reply.usage.output for exchange in exchanges] == [
        20,
        40,
        5,
    ]  # the last line is the result


@pytest.mark.external
@pytest.mark.parametrize(
    "name, prompts, tool",
    [
        ("claude-code-2.1.325.stream.jsonl", {None}, "Bash"),
        ("codex-0.166.0.exec.jsonl", {None}, "exec_command"),
        ("pi-0.73.1.mode-json.jsonl", {"create hello.py"}, "bash"),
    ],
)
def test_runs_of_real_clients_are_imported_and_replay(
    shared_data: Path, tmp_path: Path, name: str, prompts: set[str | None], tool: str
):
    first, second = exchanges = read_trace(shared_data / "ralph" / "thirdparty_runs" / name)
    write_cassette(exchanges, tmp_path / "run.yaml")
    source = Cassette(tmp_path / "run.yaml")
    responses = [source.reply_to_prompt(e.prompt or "any prompt", e.hat) for e in exchanges]
    assert [r.reply_blocks for r in responses if r] == [e.reply.blocks for e in exchanges]
    assert source.verdict().status == "pass"
    assert [call.name for call in first.reply.calls] == [tool]
    assert "hello.py" in str(first.reply.calls[0].arguments)
    assert second.reply.text == "Created hello.py.\nLOOP_COMPLETE"
    assert {first.prompt, second.prompt} == prompts
    assert first.reply.usage.output + second.reply.usage.output == 40


@pytest.mark.external
@pytest.mark.parametrize(
    "trace_id, name", [(None, "expected.all.jsonl"), ("trace-1", "expected.trace-1.jsonl")]
)
def test_the_traces_of_harn_become_its_mocks(
    shared_data: Path, tmp_path: Path, trace_id: str | None, name: str
):
    folder = shared_data / "harn" / "derived" / "trace_import"
    write_mocks(read_trace(folder / "generic.jsonl", trace_id=trace_id), tmp_path / "mocks.jsonl")
    assert (tmp_path / "mocks.jsonl").read_text() == (folder / name).read_text()


def test_without_iterations_each_output_is_one_reply(tmp_path: Path):
    def write(text: str, *, nested: bool) -> dict[str, Any]:
        data: dict[str, Any] = {"bytes": base64.b64encode(text.encode()).decode(), "stdout": True}
        return {"ts": 1, "event": "ux.terminal.write", "data": {"data": data} if nested else data}

    path = lines(tmp_path / "s.jsonl", write("one", nested=False), write("two", nested=True))
    assert [exchange.reply.text for exchange in read_trace(path)] == ["one", "two"]


def item(kind: str, identity: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "item": {"id": identity, "type": "command_execution", **more}}


def called(exchanges: list[ImportedExchange]) -> list[list[str]]:
    """Return the first argument of each call, by reply."""
    return [
        [
            str(next(iter(block.arguments.values())))
            for block in e.reply.blocks
            if isinstance(block, ToolCall)
        ]
        for e in exchanges
    ]


def response_item(kind: str, call_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "response_item", "payload": {"type": kind, "call_id": call_id, **more}}


@pytest.mark.parametrize(
    "records",
    [
        [
            {"type": "session_meta", "payload": {"id": "s"}},
            response_item("function_call", "a", name="sh", arguments='{"cmd": "a"}'),
            response_item("function_call", "b", name="sh", arguments='{"cmd": "b"}'),
            response_item("function_call_output", "a", output="1"),
            response_item("function_call_output", "b", output="2"),
            response_item("function_call", "c", name="sh", arguments='{"cmd": "c"}'),
        ],
        [
            {"type": "thread.started", "thread_id": "t"},
            item("item.started", "1", command="a"),
            item("item.started", "2", command="b"),
            item("item.completed", "1", command="a"),
            item("item.completed", "2", command="b"),
            item("item.started", "3", command="c"),
            item("item.completed", "3", command="c"),
        ],
        [
            {"id": "0", "msg": {"type": "exec_command_begin", "call_id": "a", "command": "a"}},
            {"id": "0", "msg": {"type": "exec_command_begin", "call_id": "b", "command": "b"}},
            {"id": "0", "msg": {"type": "exec_command_end", "call_id": "a"}},
            {"id": "0", "msg": {"type": "exec_command_begin", "call_id": "c", "command": "c"}},
        ],
    ],
    ids=["session file", "exec --json", "old output"],
)
def test_parallel_calls_of_codex_are_one_reply(tmp_path: Path, records: list[Any]):
    assert called(read_trace(lines(tmp_path / "t.jsonl", *records))) == [["a", "b"], ["c"]]


def test_the_model_of_codex_is_imported(tmp_path: Path):
    trace = lines(
        tmp_path / "t.jsonl",
        {"type": "session_meta", "payload": {"id": "s"}},
        {"type": "turn_context", "payload": {"model": "gpt-5.1-codex"}},
        response_item("message", "", role="assistant", content=[{"text": "Hello"}]),
    )
    assert [exchange.reply.model for exchange in read_trace(trace)] == ["gpt-5.1-codex"]


IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}


@pytest.mark.parametrize(
    "records",
    [
        [
            {"type": "user", "message": {"role": "user", "content": [IMAGE]}},
            {"type": "assistant", "message": {"id": "m", "content": "A cat."}},
        ],
        [
            {"type": "session", "id": "s"},
            {"type": "message_end", "message": {"role": "user", "content": [IMAGE]}},
            {"type": "message_end", "message": {"role": "assistant", "content": "A cat."}},
        ],
        [
            {"type": "session_meta", "payload": {"id": "s"}},
            {"type": "event_msg", "payload": {"type": "user_message", "images": ["data:x"]}},
            response_item("message", "", role="assistant", content=[{"text": "A cat."}]),
        ],
    ],
    ids=["claude-code", "pi", "codex"],
)
def test_an_image_of_the_user_is_reported_as_skipped(tmp_path: Path, records: list[Any]):
    skipped = Skipped()
    assert len(read_trace(lines(tmp_path / "t.jsonl", *records), skipped=skipped)) == 1
    assert skipped == {"image of the user": 1}


def entry(identity: str, parent: str | None, role: str, text: str) -> dict[str, Any]:
    message = {"role": role, "content": [{"type": "text", "text": text}], "model": "m"}
    return {"type": "message", "id": identity, "parentId": parent, "message": message}


def test_the_last_branch_of_a_session_file_of_pi_is_imported(tmp_path: Path):
    trace = lines(
        tmp_path / "session.jsonl",
        {"type": "session", "version": 3, "id": "s", "cwd": "/"},
        {"type": "model_change", "id": "a0", "parentId": None, "modelId": "m"},
        entry("a1", "a0", "user", "Hi"),
        entry("a2", "a1", "assistant", "Hello"),
        entry("b1", "a0", "user", "Good evening"),
        entry("b2", "b1", "assistant", "Good evening to you"),
    )
    skipped = Skipped()
    exchanges = read_trace(trace, skipped=skipped)
    assert [(e.prompt, e.reply.text) for e in exchanges] == [
        ("Good evening", "Good evening to you")
    ]
    assert skipped == {"message of another branch": 2}


@pytest.mark.parametrize("text", ["[]", "[" * 100_000], ids=["no records", "too deep"])
def test_a_file_without_records_is_refused(tmp_path: Path, text: str):
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(FormatError, match=r"trace\.json"):
        read_trace(path)
