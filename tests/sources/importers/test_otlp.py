"""The same two answers, as each emitter of traces tells them, come out as the same two answers."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import FormatError, ModelError, OffbookError
from offbook.exchange.messages import Text, Thinking
from offbook.sources.importers.conversion import IMPORTERS, read_trace
from offbook.sources.importers.importer import ImportedExchange, Skipped, TraceRecord, as_fields
from tests.sources.importers.test_importers import attribute, dump, lines, otlp, span

ASKED = "Refund order 7"
CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"id": 7}'}}
CALLED = {"role": "assistant", "tool_calls": [CALL]}
DONE = {"role": "assistant", "content": "Done."}
USER = {"role": "user", "content": ASKED}


def kv(value: Any) -> dict[str, Any]:
    """A value as OTLP writes it when it is not a text."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {"kvlistValue": {"values": [{"key": k, "value": kv(v)} for k, v in fields.items()]}}
    if isinstance(value, list):
        return {"arrayValue": {"values": [kv(one) for one in cast("list[Any]", value)]}}
    return {"stringValue": value}


def spans(*pairs: dict[str, Any], **more: Any) -> dict[str, Any]:
    made = [
        span("t1", at, *(attribute(k, v) for k, v in pair.items()), spanId=f"s{at}", **more)
        for at, pair in enumerate(pairs, 1)
    ]
    return otlp(*reversed(made))


def logs(*records: tuple[int, str, Any]) -> dict[str, Any]:
    listed = [
        {"traceId": "t1", "spanId": f"s{at}", "eventName": name, "body": kv(body)}
        for at, name, body in records
    ]
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": listed}]}]}


CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5"}
INFERENCE = {"openinference.span.kind": "LLM", "llm.model_name": "gpt-5"}
PART = "llm.output_messages.0.message.contents.0.message_content"
INNER = "llm.output_messages.0.message.tool_calls.0.tool_call.function"
VERCEL = {"ai.operationId": "ai.generateText.doGenerate", "gen_ai.request.model": "gpt-5"}
TALK = dump([{"role": "user", "content": [{"type": "text", "text": ASKED}]}])
EVENTS = [{"event.name": "gen_ai.user.message", **USER}]
NEWEST = "gen_ai.client.inference.operation.details"
NEW_ASKED = [{"role": "user", "parts": [{"type": "text", "content": ASKED}]}]
NEW_PART = {"type": "tool_call", "id": "c1", "name": "find"}
NEW_CALLED = [{"role": "assistant", "parts": [{**NEW_PART, "arguments": {"id": "7"}}]}]
NEW_DONE = [{"role": "assistant", "parts": [{"type": "text", "content": "Done."}]}]
EMITTERS: dict[str, tuple[Any, ...]] = {
    "pydantic-ai, events in an attribute": (
        spans(
            {**CHAT, "events": dump([*EVENTS, {"event.name": "gen_ai.choice", "message": CALLED}])},
            {**CHAT, "events": dump([*EVENTS, {"event.name": "gen_ai.choice", "message": DONE}])},
        ),
    ),
    "pydantic-ai, today": (
        spans(
            {
                **CHAT,
                "gen_ai.input.messages": dump(NEW_ASKED),
                "gen_ai.output.messages": dump(
                    [{"parts": [{**NEW_PART, "arguments": '{"id": 7}'}]}]
                ),
            },
            {
                **CHAT,
                "gen_ai.input.messages": dump(NEW_ASKED),
                "gen_ai.output.messages": dump(NEW_DONE),
            },
        ),
    ),
    "logfire, of the OpenAI SDK": (
        spans(
            {
                "gen_ai.request.model": "gpt-5",
                "request_data": dump({"messages": [USER], "model": "gpt-5"}),
                "response_data": dump({"message": CALLED}),
            },
            {
                "gen_ai.request.model": "gpt-5",
                "request_data": dump({"messages": [USER]}),
                "response_data": dump({"combined_chunk_content": "Done."}),
            },
        ),
    ),
    "OpenInference, parts": (
        spans(
            {
                **INFERENCE,
                "llm.input_messages.0.message.role": "user",
                "llm.input_messages.0.message.contents.0.message_content.type": "text",
                "llm.input_messages.0.message.contents.0.message_content.text": ASKED,
                f"{INNER}.name": "find",
                f"{INNER}.arguments": '{"id": 7}',
                "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
            },
            {
                **INFERENCE,
                "llm.input_messages.0.message.role": "user",
                "llm.input_messages.0.message.content": ASKED,
                f"{PART}.type": "text",
                f"{PART}.text": "Done.",
            },
        ),
    ),
    "OpenInference, what went in and out": (
        spans(
            {
                **INFERENCE,
                "input.value": dump({"messages": [USER]}),
                "output.value": dump({"choices": [{"message": CALLED}]}),
            },
            {
                **INFERENCE,
                "input.value": dump({"messages": [USER]}),
                "output.value": dump({"choices": [{"message": DONE}]}),
            },
        ),
    ),
    "the AI SDK": (
        spans(
            {
                **VERCEL,
                "ai.prompt.messages": TALK,
                "ai.response.toolCalls": dump(
                    [{"toolCallId": "c1", "toolName": "find", "input": '{"id":7}'}]
                ),
            },
            {**VERCEL, "ai.prompt.messages": TALK, "ai.response.text": "Done."},
        ),
    ),
    "log records": (
        logs(
            (1, "gen_ai.user.message", {"content": ASKED}),
            (1, "gen_ai.choice", {"index": "0", "message": CALLED}),
            (2, "gen_ai.user.message", {"content": ASKED}),
            (2, "gen_ai.choice", {"message": DONE}),
        ),
        spans(CHAT, CHAT),
    ),
    "a log record with details": (
        {"resourceMetrics": []},
        spans(CHAT, {**CHAT, "gen_ai.output.messages": dump(NEW_DONE)}),
        logs(
            (
                1,
                NEWEST,
                {"gen_ai.input.messages": NEW_ASKED, "gen_ai.output.messages": NEW_CALLED},
            ),
        ),
    ),
    "events of a span": (
        spans(
            CHAT,
            events=[
                {
                    "name": NEWEST,
                    "attributes": [
                        attribute("gen_ai.input.messages", dump(NEW_ASKED)),
                        attribute("gen_ai.output.messages", dump([CALLED])),
                    ],
                }
            ],
        ),
        spans({"nothing": 1}, {**CHAT, "gen_ai.completion": dump([DONE])}),
    ),
    "snake case": (
        msgspec.json.decode(
            dump(
                spans(
                    {**CHAT, "gen_ai.prompt": ASKED, "gen_ai.completion": dump([CALLED])},
                    {**CHAT, "gen_ai.completion": dump([DONE])},
                )
            )
            .replace("resourceSpans", "resource_spans")
            .replace("scopeSpans", "scope_spans")
            .replace("startTimeUnixNano", "start_time_unix_nano")
            .replace("stringValue", "string_value")
            .replace("traceId", "trace_id")
        ),
    ),
    "Claude Code": (
        {"type": "system", "subtype": "init", "session_id": "a"},
        {"type": "user", "message": {"role": "user", "content": ASKED}},
        {
            "type": "assistant",
            "message": {
                "id": "m1",
                "content": [{"type": "tool_use", "id": "c1", "name": "find", "input": {"id": 7}}],
            },
        },
        {"type": "user", "isMeta": True, "message": {"content": "Caveat: not from the user"}},
        {
            "type": "assistant",
            "message": {"id": "m2", "content": [{"type": "text", "text": "Done."}]},
        },
        {"type": "result", "subtype": "success", "result": "Done."},
    ),
    "Claude Code, a list": (
        [
            {"type": "system", "subtype": "init"},
            {"type": "user", "message": {"content": [{"type": "text", "text": ASKED}]}},
            {
                "type": "assistant",
                "message": {
                    "content": [
                        {"type": "tool_use", "id": "c1", "name": "find", "input": {"id": 7}}
                    ]
                },
            },
            {"type": "assistant", "message": {"content": "Done."}},
        ],
    ),
    "Codex, before": (
        {"provider": "openai", "model": "gpt-5", "workdir": "/w"},
        {"prompt": ASKED},
        {"id": "0", "msg": {"type": "task_started"}},
        {
            "id": "0",
            "msg": {
                "type": "mcp_tool_call_begin",
                "call_id": "c1",
                "invocation": {"server": "", "tool": "find", "arguments": {"id": 7}},
            },
        },
        {"id": "0", "msg": {"type": "mcp_tool_call_end", "call_id": "c1"}},
        {"id": "0", "msg": {"type": "agent_message", "message": "Done."}},
        {"id": "0", "msg": {"type": "task_complete", "last_agent_message": "Done."}},
    ),
    "Codex, in between": (
        {"type": "session.created", "session_id": "a"},
        {"id": "0", "msg": {"type": "user_message", "message": ASKED}},
        {
            "type": "item.completed",
            "item": {
                "id": "c1",
                "item_type": "mcp_tool_call",
                "tool": "find",
                "arguments": {"id": 7},
            },
        },
        {"type": "item.completed", "item": {"item_type": "assistant_message", "text": "Done."}},
    ),
    "Codex, its sessions": (
        {"type": "session_meta", "payload": {"id": "a", "cwd": "/w"}},
        {"type": "event_msg", "payload": {"type": "user_message", "message": ASKED}},
        {
            "type": "response_item",
            "payload": {"type": "message", "role": "user", "content": [{"text": ASKED}]},
        },
        {
            "type": "response_item",
            "payload": {
                "type": "function_call",
                "name": "find",
                "arguments": '{"id": 7}',
                "call_id": "c1",
            },
        },
        {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c1"}},
        {"type": "event_msg", "payload": {"type": "agent_message", "message": "Done."}},
        {
            "type": "response_item",
            "payload": {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Done."}],
            },
        },
    ),
    "generic, with the calls of OpenAI": (
        {"prompt": ASKED, "response": None, "tool_calls": [CALL]},
        {"prompt": ASKED, "response": {"content": "Done."}},
    ),
}


def check(told: list[ImportedExchange], left: Skipped) -> None:
    first, second = told
    (call,) = first.reply.calls
    assert (call.id, call.name, {k: int(v) for k, v in call.arguments.items()}) == (
        "c1",
        "find",
        {"id": 7},
    )
    assert (first.prompt, first.reply.stop) == (ASKED, "tool_use")
    assert second.reply.blocks == (Text("Done."),)
    assert not left


@pytest.mark.parametrize("records", EMITTERS.values(), ids=list(EMITTERS))
def test_every_emitter_is_understood(tmp_path: Path, records: tuple[Any, ...]):
    left = Skipped()
    check(read_trace(lines(tmp_path / "trace.jsonl", *records), left=left), left)


@pytest.mark.parametrize("records", EMITTERS.values(), ids=list(EMITTERS))
def test_it_does_not_matter_how_the_file_was_saved(tmp_path: Path, records: tuple[Any, ...]):
    path = lines(tmp_path / "trace.jsonl", *records)
    raw = path.read_bytes()
    saved = {
        "with a mark and the line ends of Windows": b"\xef\xbb\xbf" + raw.replace(b"\n", b"\r\n"),
        "with empty lines": raw.replace(b"\n", b"\n\n"),
        "without the last line end": raw.rstrip(b"\n"),
        "as one list": msgspec.json.format(msgspec.json.encode(list(_flat(records)))),
    }
    for how, written in saved.items():
        path.write_bytes(written)
        left = Skipped()
        told = read_trace(path, left=left)
        assert len(told) == 2, how
        check(told, left)


def _flat(records: tuple[Any, ...]) -> list[Any]:
    return [
        one
        for record in records
        for one in (cast("list[Any]", record) if isinstance(record, list) else [record])
    ]


def test_line_signs_inside_of_a_text_end_no_line(tmp_path: Path):
    said = "one\u2028two\x85three\x0bfour"
    path = tmp_path / "trace.jsonl"
    path.write_text('{"prompt": "q", "response": "one\u2028two\x85three\\u000bfour"}\n')
    assert read_trace(path)[0].reply.text == said


def test_a_torn_last_line_is_told_and_what_is_before_it_is_read(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"prompt": "q", "response": "a"}\n{"prompt": "q", "resp')
    left = Skipped()
    assert [one.reply.text for one in read_trace(path, left=left)] == ["a"]
    assert left == {"torn line (2)": 1}


def test_a_subagent_does_not_tear_a_message_apart(tmp_path: Path):
    def said(name: str, text: str, **more: Any) -> dict[str, Any]:
        message = {"id": name, "content": [{"type": "text", "text": text}]}
        return {"type": "assistant", "message": message, **more}

    path = lines(
        tmp_path / "stream.jsonl",
        {"type": "user", "message": {"content": "Main"}},
        said("m1", "one"),
        {"type": "user", "message": {"content": "Sub"}, "parent_tool_use_id": "t1"},
        said("m2", "inner", parent_tool_use_id="t1"),
        said("m1", "two"),
    )
    first, second = read_trace(path)
    assert (first.prompt, first.reply.text, second.prompt, second.reply.text) == (
        "Main",
        "one\ntwo",
        "Sub",
        "inner",
    )


def test_errors_of_providers_are_imported_as_errors(tmp_path: Path):
    text = [{"type": "text", "text": "API Error: 529 overloaded"}]
    claude = {"type": "assistant", "message": {"model": "<synthetic>", "content": text}}
    turn = {"type": "turn.failed", "error": {"message": "no credit"}}
    again = {"type": "error", "message": "Reconnecting... 1/5"}
    left = Skipped()
    (one,) = read_trace(lines(tmp_path / "claude.jsonl", claude))
    (other,) = read_trace(
        lines(tmp_path / "codex.jsonl", {"type": "thread.started", "thread_id": "a"}, again, turn),
        left=left,
    )
    assert isinstance(one.error, ModelError)
    assert (one.error.status, one.error.message) == (529, "overloaded")
    assert isinstance(other.error, ModelError)
    assert other.error.message == "no credit"
    assert left == {"error": 1}


def test_what_is_not_understood_is_counted(tmp_path: Path):
    blocks = [{"type": "image", "source": "…"}, {"type": "text", "text": "Done."}]
    claude = {"type": "assistant", "message": {"content": blocks}}
    plan = {"type": "item.completed", "item": {"type": "todo_list", "items": "…"}}
    said = {"type": "item.completed", "item": {"type": "agent_message", "text": "Done."}}
    part = {"role": "assistant", "parts": [{"type": "blob"}, {"type": "text", "content": "Done."}]}
    spoken = spans({**CHAT, "gen_ai.output.messages": dump([part])}, CHAT)
    files: list[tuple[list[Any], dict[str, int]]] = [
        ([claude], {"image": 1}),
        ([plan, said], {"todo_list": 1}),
        ([spoken], {"blob": 1, "span that does not tell what was said": 1}),
    ]
    for records, kinds in files:
        left = Skipped()
        (told,) = read_trace(lines(tmp_path / "trace.jsonl", *records), left=left)
        assert told.reply.text == "Done."
        assert left == kinds


@pytest.mark.parametrize("name", ["claude-code", "codex", "generic", "otlp", "pi"])
def test_a_trace_that_is_not_there_names_those_that_are(tmp_path: Path, name: str):
    files: dict[str, tuple[Any, ...]] = {
        "claude-code": ({"type": "assistant", "session_id": "abc", "message": {"content": "x"}},),
        "codex": (
            {"type": "thread.started", "thread_id": "abc"},
            {"type": "item.completed", "item": {"type": "agent_message", "text": "x"}},
        ),
        "generic": ({"prompt": "q", "response": "a", "trace_id": "abc"},),
        "otlp": (otlp(span("abc", 1, attribute("gen_ai.completion", "x"))),),
        "pi": ({"type": "session", "id": "abc"}, {"type": "message_end", "message": {}}),
    }
    with pytest.raises(FormatError, match=r"'abx'.*\n.*did you mean 'abc'"):
        read_trace(lines(tmp_path / "trace.jsonl", *files[name]), kind=name, trace_id="abx")


NAMES = sorted({word for records in EMITTERS.values() for word in dump(records).split('"')})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(NAMES),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.sampled_from(IMPORTERS), st.sampled_from(sorted(EMITTERS)), st.data())
def test_a_broken_file_is_told_of_and_never_a_crash(importer: Any, name: str, data: st.DataObject):
    records = _flat(EMITTERS[name])
    at = data.draw(st.integers(0, len(records) - 1))
    records[at] = _broken(records[at], data)
    kept = [TraceRecord(n, as_fields(one)) for n, one in enumerate(records, 1)]
    with suppress(OffbookError):
        importer.read(kept, Path("broken.jsonl"), None, Skipped())


def _broken(value: Any, data: st.DataObject) -> Any:
    """The value with something else somewhere inside."""
    deeper = bool(value) and data.draw(st.booleans())
    if isinstance(value, dict) and deeper:
        fields = cast("dict[str, Any]", value)
        name = data.draw(st.sampled_from(sorted(fields)))
        return {**fields, name: _broken(fields[name], data)}
    if isinstance(value, list) and deeper:
        items = cast("list[Any]", value)
        at = data.draw(st.integers(0, len(items) - 1))
        return [*items[:at], _broken(items[at], data), *items[at + 1 :]]
    return data.draw(JSON)


def test_thoughts_that_nothing_follows_are_kept(tmp_path: Path):
    path = lines(
        tmp_path / "codex.jsonl",
        {"type": "thread.started", "thread_id": "a"},
        {"type": "item.completed", "item": {"type": "reasoning", "text": "hm"}},
    )
    (told,) = read_trace(path)
    assert told.reply.blocks == (Thinking("hm"),)
