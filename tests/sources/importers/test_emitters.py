"""The same two replies, as each emitter of traces writes them, are imported as the same two."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import FormatError, ModelError, OffbookError
from offbook.exchange import Text, Thinking, ToolCall
from offbook.sources.importers import (
    ImportedExchange,
    Skipped,
    TraceRecord,
    all_importers,
    as_fields,
    read_trace,
)
from tests.sources.importers.test_importers import attribute, dump, lines, otlp, span

PROMPT = "Refund order 7"
CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"id": 7}'}}
CALLED = {"role": "assistant", "tool_calls": [CALL]}
DONE = {"role": "assistant", "content": "Done."}
USER = {"role": "user", "content": PROMPT}
# Items of the Responses API.
ITEM = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c1",
    "name": "find",
    "arguments": '{"id": 7}',
}
ITEM_RESULT = {"type": "function_call_output", "call_id": "c1", "output": "one kettle"}
ITEM_DONE = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Done."}],
}


def kv(value: Any) -> dict[str, Any]:
    """Return a value as OTLP writes it."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {"kvlistValue": {"values": [{"key": k, "value": kv(v)} for k, v in fields.items()]}}
    if isinstance(value, list):
        return {"arrayValue": {"values": [kv(item) for item in cast("list[Any]", value)]}}
    return {"stringValue": value}


def spans(*pairs: dict[str, Any], **more: Any) -> dict[str, Any]:
    numbered = [
        span("t1", n, *(attribute(k, v) for k, v in pair.items()), spanId=f"s{n}", **more)
        for n, pair in enumerate(pairs, 1)
    ]
    return otlp(*reversed(numbered))


def logs(*records: tuple[int, str, Any]) -> dict[str, Any]:
    bodies = [
        {"traceId": "t1", "spanId": f"s{n}", "eventName": name, "body": kv(body)}
        for n, name, body in records
    ]
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": bodies}]}]}


def lc(name: str, kind: str, content: str, **more: Any) -> dict[str, Any]:
    """Return a message as LangChain serializes it."""
    kwargs = {"content": content, "type": kind, **more}
    path = ["langchain", "schema", "messages", name]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": kwargs}


LC_CALL = {"name": "find", "args": {"id": 7}, "id": "c1", "type": "tool_call"}
LC_USER = lc("HumanMessage", "human", PROMPT)
LC_CALLED = lc("AIMessage", "ai", "", tool_calls=[LC_CALL])


def times(number: int, start: str, end: str) -> dict[str, str]:
    return {start: f"2026-11-17T10:00:0{number}.5+00:00", end: f"2026-11-17T10:00:0{number}.7Z"}


def langsmith(number: int, inputs: Any, outputs: Any) -> dict[str, Any]:
    run = {"id": f"r{number}", "run_type": "llm", "trace_id": "t1", "name": "ChatOpenAI"}
    return {**run, **times(number, "start_time", "end_time"), "inputs": inputs, "outputs": outputs}


def observation(number: int, sent: Any, got: Any) -> dict[str, Any]:
    fields = {"id": f"o{number}", "traceId": "t1", "type": "GENERATION", "model": "gpt-5"}
    return {**fields, **times(number, "startTime", "endTime"), "input": sent, "output": got}


def phoenix(number: int, attributes: Any) -> dict[str, Any]:
    context = {"trace_id": "t1", "span_id": f"s{number}"}
    span = {"name": "llm", "context": context, "span_kind": "LLM", "attributes": attributes}
    return {**span, **times(number, "start_time", "end_time")}


def column(number: int) -> dict[str, Any]:
    context = {"context.trace_id": "t1", "context.span_id": f"s{number}", "span_kind": "LLM"}
    return {**context, **times(number, "start_time", "end_time")}


INFERENCE_CALL = {
    "llm": {
        "input_messages": [{"message": USER}],
        "output_messages": [{"message": {"tool_calls": [{"tool_call": CALL}]}}],
    }
}
INFERENCE_DONE = {"llm.output_messages.0.message.content": "Done."}
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5"}
INFERENCE = {"openinference.span.kind": "LLM", "llm.model_name": "gpt-5"}
PART = "llm.output_messages.0.message.contents.0.message_content"
INNER = "llm.output_messages.0.message.tool_calls.0.tool_call.function"
VERCEL = {"ai.operationId": "ai.generateText.doGenerate", "gen_ai.request.model": "gpt-5"}
TALK = dump([{"role": "user", "content": [{"type": "text", "text": PROMPT}]}])
EVENTS = [{"event.name": "gen_ai.user.message", **USER}]
NEWEST = "gen_ai.client.inference.operation.details"
NEW_ASKED = [{"role": "user", "parts": [{"type": "text", "content": PROMPT}]}]
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
                "llm.input_messages.0.message.contents.0.message_content.text": PROMPT,
                f"{INNER}.name": "find",
                f"{INNER}.arguments": '{"id": 7}',
                "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
            },
            {
                **INFERENCE,
                "llm.input_messages.0.message.role": "user",
                "llm.input_messages.0.message.content": PROMPT,
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
            (1, "gen_ai.user.message", {"content": PROMPT}),
            (1, "gen_ai.choice", {"index": "0", "message": CALLED}),
            (2, "gen_ai.user.message", {"content": PROMPT}),
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
                    {**CHAT, "gen_ai.prompt": PROMPT, "gen_ai.completion": dump([CALLED])},
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
        {"type": "user", "message": {"role": "user", "content": PROMPT}},
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
            {"type": "user", "message": {"content": [{"type": "text", "text": PROMPT}]}},
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
        {"prompt": PROMPT},
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
        {"id": "0", "msg": {"type": "user_message", "message": PROMPT}},
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
        {"type": "event_msg", "payload": {"type": "user_message", "message": PROMPT}},
        {
            "type": "response_item",
            "payload": {"type": "message", "role": "user", "content": [{"text": PROMPT}]},
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
    "LangSmith, runs of LangChain": (
        langsmith(
            2,
            {
                "messages": [
                    [LC_USER, LC_CALLED, lc("ToolMessage", "tool", "ok", tool_call_id="c1")]
                ]
            },
            {"generations": [[{"text": "Done.", "message": lc("AIMessage", "ai", "Done.")}]]},
        ),
        {"id": "r0", "run_type": "chain", "trace_id": "t1", "inputs": {}, "outputs": {}},
        langsmith(
            1, {"messages": [[LC_USER]]}, {"generations": [[{"text": "", "message": LC_CALLED}]]}
        ),
    ),
    "LangSmith, runs of an SDK in a tree": (
        {
            "id": "r0",
            "run_type": "chain",
            "trace_id": "t1",
            "child_runs": [
                langsmith(1, {"messages": [USER]}, {"choices": [{"message": CALLED}]}),
                langsmith(2, {"messages": [USER, CALLED]}, {"choices": [{"message": DONE}]}),
            ],
        },
    ),
    "LangSmith, runs of the Responses API": (
        langsmith(1, {"input": [USER]}, {"output": [ITEM]}),
        langsmith(2, {"input": [USER, ITEM, ITEM_RESULT]}, {"output": [ITEM_DONE]}),
    ),
    "Langfuse, observations of the Responses API": (
        observation(1, [USER], [ITEM]),
        observation(2, [USER, ITEM, ITEM_RESULT], [ITEM_DONE]),
    ),
    "logfire, of the Responses API": (
        spans(
            {
                "gen_ai.request.model": "gpt-5",
                "request_data": dump({"input": PROMPT}),
                "response_data": dump({"output": [ITEM]}),
            },
            {
                "gen_ai.request.model": "gpt-5",
                "request_data": dump({"input": [USER, ITEM, ITEM_RESULT]}),
                "response_data": dump({"output": [ITEM_DONE]}),
            },
        ),
    ),
    "OpenInference, bodies of the Responses API": (
        spans(
            {
                **INFERENCE,
                "input.value": dump({"input": PROMPT}),
                "output.value": dump({"output": [ITEM]}),
            },
            {
                **INFERENCE,
                "input.value": dump({"input": [USER, ITEM, ITEM_RESULT]}),
                "output.value": dump({"output": [ITEM_DONE]}),
            },
        ),
    ),
    "Langfuse, a trace with its observations": (
        {
            "id": "t1",
            "name": "refund",
            "observations": [
                observation(2, {"messages": [USER, CALLED]}, DONE),
                {**observation(3, None, None), "type": "SPAN"},
                observation(1, [USER], {"choices": [{"message": CALLED}]}),
            ],
        },
    ),
    "Phoenix, spans of its API": (
        {
            "data": [
                phoenix(1, INFERENCE_CALL),
                phoenix(2, INFERENCE_DONE),
                {**phoenix(3, {}), "span_kind": "TOOL"},
            ]
        },
    ),
    "Phoenix, a data frame": (
        {
            **column(1),
            "attributes.llm.input_messages": [{"message.role": "user", "message.content": PROMPT}],
            "attributes.llm.output_messages": [
                {
                    "message.role": "assistant",
                    "message.tool_calls": [
                        {
                            "tool_call.id": "c1",
                            "tool_call.function.name": "find",
                            "tool_call.function.arguments": '{"id": 7}',
                        }
                    ],
                }
            ],
        },
        {
            **column(2),
            "attributes.llm.output_messages": [
                {"message.role": "assistant", "message.content": "Done."}
            ],
        },
    ),
    "generic, with the calls of OpenAI": (
        {"prompt": PROMPT, "response": None, "tool_calls": [CALL]},
        {"prompt": PROMPT, "response": {"content": "Done."}},
    ),
}


def check(exchanges: list[ImportedExchange], skipped: Skipped) -> None:
    first, second = exchanges
    (call,) = first.reply.calls
    assert (call.id, call.name, {k: int(v) for k, v in call.arguments.items()}) == (
        "c1",
        "find",
        {"id": 7},
    )
    assert (first.prompt, first.reply.stop) == (PROMPT, "tool_use")
    assert second.reply.blocks == (Text("Done."),)
    assert not skipped


@pytest.mark.parametrize("records", EMITTERS.values(), ids=list(EMITTERS))
def test_every_emitter_is_imported(tmp_path: Path, records: tuple[Any, ...]):
    skipped = Skipped()
    check(read_trace(lines(tmp_path / "trace.jsonl", *records), skipped=skipped), skipped)


@pytest.mark.parametrize("name", [name for name in EMITTERS if "Responses API" in name])
def test_results_of_the_responses_api_are_imported(tmp_path: Path, name: str):
    _, second = read_trace(lines(tmp_path / "trace.jsonl", *EMITTERS[name]))
    assert second.results == {"c1": "one kettle"}


def test_items_of_the_responses_api_are_blocks_of_a_reply(tmp_path: Path):
    summary = [{"type": "summary_text", "text": "hm"}]
    thoughts = [{"type": "reasoning_text", "text": "well"}]
    items = [
        {"type": "reasoning", "id": "rs_1", "summary": summary},
        {"type": "reasoning", "id": "rs_2", "summary": [], "content": thoughts},
        ITEM_DONE,
        {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "*** Begin"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    ]
    skipped = Skipped()
    path = lines(tmp_path / "trace.jsonl", observation(1, [USER], items))
    (exchange,) = read_trace(path, skipped=skipped)
    assert exchange.reply.blocks == (
        Thinking("hm"),
        Thinking("well"),
        Text("Done."),
        ToolCall("c2", "patch", {"input": "*** Begin"}),
    )
    assert skipped == {"web_search_call": 1}


@pytest.mark.parametrize("records", EMITTERS.values(), ids=list(EMITTERS))
def test_every_file_layout_is_imported(tmp_path: Path, records: tuple[Any, ...]):
    path = lines(tmp_path / "trace.jsonl", *records)
    raw = path.read_bytes()
    saved = {
        "byte order mark and Windows line ends": b"\xef\xbb\xbf" + raw.replace(b"\n", b"\r\n"),
        "empty lines": raw.replace(b"\n", b"\n\n"),
        "no last line end": raw.rstrip(b"\n"),
        "one list": msgspec.json.format(msgspec.json.encode(list(_flat(records)))),
    }
    for layout, written in saved.items():
        path.write_bytes(written)
        skipped = Skipped()
        exchanges = read_trace(path, skipped=skipped)
        assert len(exchanges) == 2, layout
        check(exchanges, skipped)


def _flat(records: tuple[Any, ...]) -> list[Any]:
    return [
        item
        for record in records
        for item in (cast("list[Any]", record) if isinstance(record, list) else [record])
    ]


def test_other_line_separators_in_a_text_do_not_end_a_line(tmp_path: Path):
    text = "one\u2028two\x85three\x0bfour"
    path = tmp_path / "trace.jsonl"
    path.write_text('{"prompt": "q", "response": "one\u2028two\x85three\\u000bfour"}\n')
    assert read_trace(path)[0].reply.text == text


def test_a_torn_last_line_is_counted_and_the_rest_is_read(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"prompt": "q", "response": "a"}\n{"prompt": "q", "resp')
    skipped = Skipped()
    assert [exchange.reply.text for exchange in read_trace(path, skipped=skipped)] == ["a"]
    assert skipped == {"torn line (2)": 1}


def test_a_subagent_between_two_events_does_not_split_a_message(tmp_path: Path):
    def assistant(name: str, text: str, **more: Any) -> dict[str, Any]:
        message = {"id": name, "content": [{"type": "text", "text": text}]}
        return {"type": "assistant", "message": message, **more}

    path = lines(
        tmp_path / "stream.jsonl",
        {"type": "user", "message": {"content": "Main"}},
        assistant("m1", "one"),
        {"type": "user", "message": {"content": "Sub"}, "parent_tool_use_id": "t1"},
        assistant("m2", "inner", parent_tool_use_id="t1"),
        assistant("m1", "two"),
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
    retry = {"type": "error", "message": "Reconnecting... 1/5"}
    skipped = Skipped()
    (first,) = read_trace(lines(tmp_path / "claude.jsonl", claude))
    (second,) = read_trace(
        lines(tmp_path / "codex.jsonl", {"type": "thread.started", "thread_id": "a"}, retry, turn),
        skipped=skipped,
    )
    assert isinstance(first.error, ModelError)
    assert (first.error.status, first.error.message) == (529, "overloaded")
    assert isinstance(second.error, ModelError)
    assert second.error.message == "no credit"
    assert skipped == {"error": 1}


def test_unknown_parts_are_counted(tmp_path: Path):
    blocks = [{"type": "image", "source": "…"}, {"type": "text", "text": "Done."}]
    claude = {"type": "assistant", "message": {"content": blocks}}
    plan = {"type": "item.completed", "item": {"type": "todo_list", "items": "…"}}
    reply = {"type": "item.completed", "item": {"type": "agent_message", "text": "Done."}}
    part = {"role": "assistant", "parts": [{"type": "blob"}, {"type": "text", "content": "Done."}]}
    with_message = spans({**CHAT, "gen_ai.output.messages": dump([part])}, CHAT)
    files: list[tuple[list[Any], dict[str, int]]] = [
        ([claude], {"image": 1}),
        ([plan, reply], {"todo_list": 1}),
        ([with_message], {"blob": 1, "span without messages": 1}),
    ]
    for records, kinds in files:
        skipped = Skipped()
        (exchange,) = read_trace(lines(tmp_path / "trace.jsonl", *records), skipped=skipped)
        assert exchange.reply.text == "Done."
        assert skipped == kinds


@pytest.mark.parametrize("name", ["claude-code", "codex", "generic", "otlp", "pi"])
def test_an_unknown_trace_id_suggests_the_nearest(tmp_path: Path, name: str):
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


@given(st.sampled_from(all_importers()), st.sampled_from(sorted(EMITTERS)), st.data())
def test_a_broken_record_never_crashes_an_importer(importer: Any, name: str, data: st.DataObject):  # noqa: OB101 - it must not raise
    records = _flat(EMITTERS[name])
    index = data.draw(st.integers(0, len(records) - 1))
    records[index] = _broken(records[index], data)
    broken = [TraceRecord(n, as_fields(record)) for n, record in enumerate(records, 1)]
    with suppress(OffbookError):
        importer.read(broken, Path("broken.jsonl"), None, Skipped())


@pytest.mark.parametrize("importer", all_importers(), ids=lambda importer: type(importer).__name__)
@pytest.mark.parametrize("key", ["type", "role", "id", "name"])
@pytest.mark.parametrize("wrong", [[], {}, 7], ids=repr)
def test_a_value_of_another_type_never_crashes_an_importer(importer: Any, key: str, wrong: Any):  # noqa: OB101 - it must not raise
    def replace(value: Any) -> Any:
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value).items()
            return {name: wrong if name == key else replace(field) for name, field in fields}
        return (
            [replace(item) for item in cast("list[Any]", value)]
            if isinstance(value, list)
            else value
        )

    for records in EMITTERS.values():
        for index, record in enumerate(flat := _flat(records)):
            changed = [*flat[:index], replace(record), *flat[index + 1 :]]
            broken = [TraceRecord(n, as_fields(value)) for n, value in enumerate(changed, 1)]
            with suppress(OffbookError):
                importer.read(broken, Path("broken.jsonl"), None, Skipped())


def _broken(value: Any, data: st.DataObject) -> Any:
    """Return the value with another value somewhere inside."""
    deeper = bool(value) and data.draw(st.booleans())
    if isinstance(value, dict) and deeper:
        fields = cast("dict[str, Any]", value)
        name = data.draw(st.sampled_from(sorted(fields)))
        return {**fields, name: _broken(fields[name], data)}
    if isinstance(value, list) and deeper:
        items = cast("list[Any]", value)
        index = data.draw(st.integers(0, len(items) - 1))
        return [*items[:index], _broken(items[index], data), *items[index + 1 :]]
    return data.draw(JSON)


def test_reasoning_at_the_end_is_a_reply(tmp_path: Path):
    path = lines(
        tmp_path / "codex.jsonl",
        {"type": "thread.started", "thread_id": "a"},
        {"type": "item.completed", "item": {"type": "reasoning", "text": "hm"}},
    )
    (exchange,) = read_trace(path)
    assert exchange.reply.blocks == (Thinking("hm"),)
