"""A stored trace becomes a run record, whatever tool wrote it."""

import json
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import FormatError
from offbook.evals import read_stored_trace, record_from_events
from offbook.trace import (
    PROCESS_EXIT,
    REPLY,
    REQUEST,
    RUN_END,
    RUN_START,
    TERMINATION,
    TOOL_CALL,
    VERDICT,
    Event,
    trace_header,
)
from tests.conftest import ROOT

Events = list[tuple[str, dict[str, Any]]]


def record(*named: tuple[str, dict[str, Any]]) -> Any:
    return record_from_events([Event(ts, name, data) for ts, (name, data) in enumerate(named)], "r")


STATUSES: dict[str, tuple[Events, str]] = {
    "no event": ([], ""),
    "a start": ([(RUN_START, {})], "running"),
    "an end": ([(RUN_START, {}), (RUN_END, {"ok": True})], "completed"),
    "a failure": ([(RUN_START, {}), (RUN_END, {"ok": False})], "failed"),
    "the end of a loop": ([(TERMINATION, {"exit_code": 0})], "completed"),
    "the failure of a loop": ([(TERMINATION, {"exit_code": 2})], "failed"),
    "a process": ([(PROCESS_EXIT, {"exit_code": 0})], "completed"),
    "a process that failed": ([(RUN_START, {}), (PROCESS_EXIT, {"code": 1})], "failed"),
    "a process that was killed": ([(PROCESS_EXIT, {"signal": 9})], "failed"),
    "a process of a run": ([(RUN_END, {"ok": True}), (PROCESS_EXIT, {"code": 1})], "completed"),
}


@pytest.mark.parametrize("named, status", STATUSES.values(), ids=STATUSES)
def test_the_status_of_a_run_is_that_of_its_last_end(named: Events, status: str):
    assert record(*named).status == status


def test_the_costs_of_all_events_are_added():
    found = record(
        (REPLY, {"cost_usd": 0.25, "usage": {"input": 3}}),
        (REPLY, {"cost_dollars": 0.5}),
        (RUN_END, {"total_cost_usd": "unknown"}),
    )
    assert (found.usage.total_cost, found.usage.call_count) == (0.75, 2)
    assert (found.usage.input_tokens, found.usage.output_tokens) == (3, 0)


def test_a_run_without_costs_and_usage_has_none():
    usage = record((REQUEST, {"model": "m"}), (REPLY, {})).usage
    assert (usage.total_cost, usage.input_tokens, usage.models) == (None, None, ["m"])


def test_a_question_to_the_user_is_recorded_and_a_message_is_not():
    found = record(
        ("ui.confirm", {"method": "confirm", "args": ["Delete", "all?"]}),
        ("ui.notify", {"method": "notify", "args": ["Done"]}),
        (TOOL_CALL, {"tool": "rm", "call_id": "c1"}),
    )
    assert [question.prompt for question in found.hitl_questions] == ["Delete all?"]
    assert [(tool.tool_name, tool.tool_use_id) for tool in found.tool_recordings] == [("rm", "c1")]


def test_a_verdict_is_no_part_of_the_run():
    named: Events = [(RUN_START, {}), (RUN_END, {"ok": True}), (VERDICT, {"cost_usd": 1})]
    assert record(*named).usage.total_duration_ms == record(*named[:2]).usage.total_duration_ms
    assert record(*named).usage.total_cost is None


EXCHANGE = {"prompt": "hi", "response": {"text": "Hello", "input_tokens": 9, "output_tokens": 2}}
DOCUMENTS = {
    "a line": json.dumps(EXCHANGE),
    "a line after an empty one": f"\n{json.dumps(EXCHANGE)}\n\n",
    "a list": json.dumps([EXCHANGE]),
    "a list of several lines": json.dumps([EXCHANGE], indent=2),
}


def test_a_text_with_a_separator_of_lines_does_not_end_a_line(tmp_path: Path):
    end = {**END, "is_error": True, "result": "a\u2028b"}
    lines = [json.dumps(line, ensure_ascii=False) for line in (DONE, end)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    assert read_stored_trace(tmp_path / "t.jsonl").record.status == "failed"


@pytest.mark.parametrize("text", DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_trace_of_another_tool_is_read_in_every_form(tmp_path: Path, text: str):
    (tmp_path / "t.json").write_text(text)
    found = read_stored_trace(tmp_path / "t.json").record
    assert (found.status, found.output) == ("completed", "Hello")
    assert found.usage is not None
    assert (found.usage.input_tokens, found.usage.output_tokens) == (9, 2)


def test_a_trace_without_usage_has_no_tokens(tmp_path: Path):
    (tmp_path / "t.jsonl").write_text('{"prompt": "hi", "response": "Hello"}')
    usage = read_stored_trace(tmp_path / "t.jsonl").record.usage
    assert usage is not None
    assert usage.input_tokens is None


CLAUDE = ROOT / "examples" / "evals" / "runs" / "fix_typo.jsonl"


@pytest.mark.parametrize("usage", [None, {"input_tokens": "many"}])
def test_the_tokens_of_claude_code_without_a_total_are_those_of_its_messages(
    tmp_path: Path, usage: Any
):
    *lines, last = CLAUDE.read_text().splitlines()
    changed = json.dumps({**json.loads(last), "usage": usage, "is_error": True})
    (tmp_path / "t.jsonl").write_text("\n".join([*lines, changed]))
    found = read_stored_trace(tmp_path / "t.jsonl").record
    assert found.usage is not None
    assert (found.usage.output_tokens, found.status) == (3, "failed")  # each of them says one


USE: dict[str, Any] = {"type": "tool_use", "id": "t1", "name": "refund", "input": {"id": 7}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
END = {"type": "result", "subtype": "success", "is_error": False}


def claude(role: str, block: dict[str, Any], **fields: Any) -> dict[str, Any]:
    message = {"id": str(block), "role": role, "content": [block]}
    return {"type": role, "message": message, **fields}


CALLED = claude("assistant", USE)
ANSWERED = claude("user", RESULT)
DONE = claude("assistant", {"type": "text", "text": "Done."})
OF_SUBAGENT = claude("assistant", {"type": "text", "text": "It is 7."}, parent_tool_use_id="t1")
PI_CALL: dict[str, Any] = {"type": "toolCall", "id": "t1", "name": "refund", "arguments": {}}
PI_CALLED = {"type": "message_end", "message": {"role": "assistant", "content": [PI_CALL]}}
CODEX = {"type": "command_execution", "id": "t1", "command": "ls"}
CODEX_CALLED = {"type": "item.completed", "item": CODEX}
# the lines of a log -> the status of its run
LOGS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "Claude Code, whole": ([CALLED, ANSWERED, DONE, END], "completed"),
    "Claude Code, a session file": ([CALLED, ANSWERED, DONE], "completed"),
    "Claude Code, ended by a call": ([CALLED, END], "completed"),
    "Claude Code, cut in a call": ([CALLED], "running"),
    "Claude Code, cut after a result": ([CALLED, ANSWERED], "running"),
    "Claude Code, cut in a subagent": ([CALLED, OF_SUBAGENT], "running"),
    "Claude Code, out of turns": ([CALLED, {**END, "subtype": "error_max_turns"}], "failed"),
    "Claude Code, failed": ([DONE, {**END, "is_error": True}], "failed"),
    "pi, cut in a call": ([{"type": "agent_start"}, PI_CALLED], "running"),
    "pi, whole": ([{"type": "agent_start"}, PI_CALLED, {"type": "agent_end"}], "completed"),
    "Codex, cut after a call": ([CODEX_CALLED], "running"),
    "Codex, whole": ([CODEX_CALLED, {"type": "turn.completed"}], "completed"),
    "an exchange with a call": (
        [{"prompt": "hi", "response": "", "tool_calls": [{"name": "refund"}]}],
        "completed",  # nothing says whether the call was its last step
    ),
}


@pytest.mark.parametrize("lines, status", LOGS.values(), ids=LOGS)
def test_the_log_of_an_agent_says_how_its_run_ended(
    tmp_path: Path, lines: list[dict[str, Any]], status: str
):
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert read_stored_trace(tmp_path / "t.jsonl").record.status == status


def arguments(given: dict[str, Any]) -> str:
    call = {"tool": "refund", "call_id": "c", "input": given}
    (tool,) = record((TOOL_CALL, call)).tool_recordings
    return tool.args_hash


# two inputs of a call -> whether they are the same arguments
ARGUMENTS: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "the same in another order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
    "another value": ({"a": 1}, {"a": 2}, False),
    "another temporary folder": ({"path": "/tmp/x1/f"}, {"path": "/tmp/x2/f"}, True),  # noqa: S108 - not used
}


@pytest.mark.parametrize("first, second, same", ARGUMENTS.values(), ids=ARGUMENTS)
def test_the_calls_of_a_trace_have_a_hash_of_their_arguments(
    first: dict[str, Any], second: dict[str, Any], *, same: bool
):
    assert (arguments(first) == arguments(second)) is same


def test_the_calls_of_a_trace_of_another_tool_have_the_same_hash(tmp_path: Path):
    (tmp_path / "t.jsonl").write_text(json.dumps(CALLED))
    (tool,) = read_stored_trace(tmp_path / "t.jsonl").record.tool_recordings
    assert tool.args_hash == arguments(USE["input"])


HEADER = trace_header(0)
BROKEN = {
    "nothing": ("", "the file is empty"),
    "no JSON": ("nonsense\n", "1: invalid JSON"),
    "a number": ("3\n", "1: expected an object, got int"),
    "a header only": (
        json.dumps({"ts": 0, "event": HEADER.event, "data": HEADER.data}),
        "the trace has no events",
    ),
}


@pytest.mark.parametrize("text, message", BROKEN.values(), ids=BROKEN)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, text: str, message: str):
    (tmp_path / "t.jsonl").write_text(text)
    with pytest.raises(FormatError, match=message):
        read_stored_trace(tmp_path / "t.jsonl")
