"""A tape or a production trace becomes a test: green, and red when the agent is broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from offbook import Playbook, Recording, call, drive, say, when
from offbook.files import dump_yaml, parse_yaml
from offbook.people import allow, person
from tests.forked import run_python
from tests.surfaces.test_cassette_commands import run_offbook

AGENT = """
import os
os.environ.setdefault("OPENAI_API_KEY", "none")
from pydantic_ai import Agent, DeferredToolRequests

agent = Agent("openai-chat:m", output_type=[str, DeferredToolRequests])

@agent.tool_plain
def find_order(number: int) -> dict:
    return {"number": number, "state": "paid"}

@agent.tool_plain(requires_approval=True)
def refund(number: int) -> str:
    raise LookupError("the shop is closed")
"""
BROKEN = {
    "another input": ("def find_order(number: int)", "def find_order(numbers: int)"),
    "a missing tool": ("@agent.tool_plain\n", ""),
    "no approval": ("requires_approval=True", "requires_approval=False"),
}
FIND = call("find_order", {"number": 7})
SCRIPT = [
    when("Where is order 7?", [[FIND, call("find_order", {"number": 8})], say("It's paid.")]),
    when("Refund it", [call("refund", {"number": 7}), person("refund", allow), say("Done.")]),
]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(AGENT)
    return tmp_path


def record(folder: Path) -> None:
    names: dict[str, Any] = {}
    text = AGENT.replace('raise LookupError("the shop is closed")', 'return "refunded"')
    exec(text, names)  # noqa: S102 - the agent of this test
    playbook = Playbook()
    playbook.load(*SCRIPT)
    with (
        Recording(playbook, folder / "tape.yaml", tracks="all") as source,
        drive(names["agent"], source=source) as rehearsal,
    ):
        for turn in SCRIPT:
            rehearsal.run(turn.text)


def write(folder: Path, trace: str) -> str:
    options = ["-o", "test_shop.py", "--agent", "shop:agent"]
    ended = run_offbook("import", trace, *options, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    return (folder / "test_shop.py").read_text()


def passes(folder: Path) -> bool:
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", folder, "test_shop.py"]
    ended = run_python("-m", "pytest", *options, cwd=folder, imports=["pydantic_ai.models.openai"])
    assert ended.returncode in {0, 1}, ended.stdout + ended.stderr
    return ended.returncode == 0


def test_a_tape_becomes_a_readable_test(shop: Path):
    record(shop)
    assert write(shop, "tape.yaml") == (
        '''"""Written from tape.yaml: the model and its tools are scripted."""

from offbook import call, say, when
from offbook.people import allow, person
from shop import agent


def in_turn(*results):
    """Return a mock that returns these results, one after the other."""
    waiting = iter(results)
    return lambda params: next(waiting)


def test_shop(offbook):
    mock_tools = {
        "find_order": in_turn({"number": 7, "state": "paid"}, {"number": 8, "state": "paid"}),
        "refund": "refunded",
    }
    run = offbook.drive(agent, mock_tools=mock_tools).run(
        when("Where is order 7?", [
            [call("find_order", {"number": 7}), call("find_order", {"number": 8})],
            say("It's paid."),
        ]),
        when("Refund it", [
            call("refund", {"number": 7}),
            person("refund", allow),
            say("Done."),
        ]),
    )
    executed = [(tool.name, tool.input) for tool in run.executed]
    assert executed == [
        ("find_order", {"number": 7}),
        ("find_order", {"number": 8}),
        ("refund", {"number": 7}),
    ]
    assert run.output == "Done."
'''
    )
    assert passes(shop)


def test_parallel_tools_are_written_in_the_order_of_their_calls(shop: Path):
    record(shop)
    expected = write(shop, "tape.yaml")
    tape: Any = parse_yaml((shop / "tape.yaml").read_text(), shop / "tape.yaml")
    tape["interactions"][0]["tools"].reverse()  # the second call ended first
    (shop / "tape.yaml").write_text(dump_yaml(tape))
    (shop / "test_shop.py").unlink()
    assert write(shop, "tape.yaml") == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_agent_fails_the_written_test(name: str, shop: Path):
    record(shop)
    write(shop, "tape.yaml")
    old, new = BROKEN[name]
    assert AGENT.count(old) == 1
    (shop / "shop.py").write_text(AGENT.replace(old, new))
    assert not passes(shop)


def message(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


CALL = {"type": "tool_call", "id": "c1", "name": "find_order", "arguments": {"number": 7}}
USER = message("user", {"type": "text", "content": "Where is order 7?"})
RESULT = {"type": "tool_call_response", "id": "c1", "response": "paid"}
SAID = message("assistant", {"type": "text", "content": "It is paid."})


def span(number: int, sent: list[Any], got: list[Any]) -> dict[str, Any]:
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps(sent),
        "gen_ai.output.messages": json.dumps(got),
    }
    listed = [{"key": key, "value": {"stringValue": text}} for key, text in attributes.items()]
    times = {"startTimeUnixNano": f"{number}000000", "endTimeUnixNano": f"{number}500000"}
    return {"traceId": "t1", "spanId": f"s{number}", "name": "chat", "attributes": listed, **times}


def openinference(number: int, sent: dict[str, str], got: dict[str, str]) -> dict[str, Any]:
    prefixed = {f"llm.input_messages.{key}": value for key, value in sent.items()}
    prefixed |= {f"llm.output_messages.{key}": value for key, value in got.items()}
    attributes = {"openinference.span.kind": "LLM", **prefixed}
    listed = [{"key": key, "value": {"stringValue": text}} for key, text in attributes.items()]
    return {**span(number, [], []), "attributes": listed}


def langfuse(number: int, sent: list[Any], got: Any) -> dict[str, Any]:
    attributes = {
        "langfuse.observation.type": "generation",
        "langfuse.observation.input": json.dumps(sent),
        "langfuse.observation.output": json.dumps(got),
    }
    listed = [{"key": key, "value": {"stringValue": text}} for key, text in attributes.items()]
    return {**span(number, [], []), "attributes": listed}


OPENAI_CALL = {
    "role": "assistant",
    "tool_calls": [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "find_order", "arguments": '{"number": 7}'},
        }
    ],
}
OPENAI_USER = {"role": "user", "content": "Where is order 7?"}
OPENAI_RESULT = {"role": "tool", "tool_call_id": "c1", "content": "paid"}
INDEXED_CALL = {
    "0.message.role": "assistant",
    "0.message.tool_calls.0.tool_call.id": "c1",
    "0.message.tool_calls.0.tool_call.function.name": "find_order",
    "0.message.tool_calls.0.tool_call.function.arguments": '{"number": 7}',
}
INDEXED_USER = {"0.message.role": "user", "0.message.content": "Where is order 7?"}
TRACES: dict[str, list[dict[str, Any]]] = {
    "OpenTelemetry GenAI": [
        span(1, [USER], [message("assistant", CALL)]),
        span(2, [USER, message("assistant", CALL), message("tool", RESULT)], [SAID]),
    ],
    "OpenInference, of Phoenix": [
        openinference(1, INDEXED_USER, INDEXED_CALL),
        openinference(
            2,
            {
                **INDEXED_USER,
                "1.message.role": "tool",
                "1.message.content": "paid",
                "1.message.tool_call_id": "c1",
            },
            {"0.message.role": "assistant", "0.message.content": "It is paid."},
        ),
    ],
    "Langfuse": [
        langfuse(1, [OPENAI_USER], OPENAI_CALL),
        langfuse(
            2,
            [OPENAI_USER, OPENAI_CALL, OPENAI_RESULT],
            {"role": "assistant", "content": "It is paid."},
        ),
    ],
}


def langsmith_runs() -> list[dict[str, Any]]:
    """Return the runs that LangSmith's own tracer writes of two calls of LangChain."""
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_core.tracers import LangChainTracer
    from langsmith import Client

    runs: dict[str, dict[str, Any]] = {}

    class Collector(Client):
        def create_run(self, name: str, inputs: Any, run_type: Any, **fields: Any) -> None:
            runs[fields["id"]] = {"name": name, "inputs": inputs, "run_type": run_type, **fields}

        def update_run(self, run_id: Any, **fields: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            runs[run_id] |= {key: value for key, value in fields.items() if value is not None}

    tracer = LangChainTracer(client=Collector(api_key="none", auto_batch_tracing=False))
    made = {"name": "find_order", "args": {"number": 7}, "id": "c1", "type": "tool_call"}
    called = AIMessage("", tool_calls=cast("Any", [made]))
    model = GenericFakeChatModel(messages=iter([called, AIMessage("It is paid.")]))
    asked, result = HumanMessage("Where is order 7?"), ToolMessage("paid", tool_call_id="c1")
    for request in ([asked], [asked, called, result]):
        model.invoke(request, config={"callbacks": [tracer]})
    tracer.wait_for_futures()
    root = next(iter(runs.values()))["trace_id"]
    return json.loads(json.dumps([{**run, "trace_id": root} for run in runs.values()], default=str))


def langfuse_trace() -> dict[str, Any]:
    """Return a trace of Langfuse's API."""
    sent = [[OPENAI_USER], [OPENAI_USER, OPENAI_CALL, OPENAI_RESULT]]
    got = [OPENAI_CALL, {"role": "assistant", "content": "It is paid."}]
    observations = [
        {
            "id": f"o{number}",
            "traceId": "t1",
            "type": "GENERATION",
            "startTime": f"2026-11-17T10:00:0{number}Z",
            "input": request,
            "output": reply,
        }
        for number, (request, reply) in enumerate(zip(sent, got, strict=True))
    ]
    return {"id": "t1", "observations": observations}


def phoenix_spans() -> dict[str, Any]:
    """Return a page of spans of Phoenix's API."""
    spans = [
        {
            "name": "ChatCompletion",
            "context": {"trace_id": "t1", "span_id": span["spanId"]},
            "span_kind": "LLM",
            "start_time": f"2026-11-17T10:00:0{number}Z",
            "attributes": {
                item["key"]: item["value"]["stringValue"] for item in span["attributes"]
            },
        }
        for number, span in enumerate(TRACES["OpenInference, of Phoenix"])
    ]
    return {"data": spans}


EXPORTS: dict[str, Callable[[], Any]] = {
    "LangSmith": langsmith_runs,
    "an export of Langfuse": langfuse_trace,
    "an export of Phoenix": phoenix_spans,
}


@pytest.mark.parametrize("name", [*TRACES, *EXPORTS])
def test_a_production_trace_becomes_a_test(name: str, shop: Path):
    if name in TRACES:
        trace: Any = {"resourceSpans": [{"scopeSpans": [{"spans": TRACES[name]}]}]}
    else:
        trace = EXPORTS[name]()
    (shop / "trace.json").write_text(json.dumps(trace))
    text = write(shop, "trace.json")
    assert '"find_order": "paid"' in text
    assert 'when("Where is order 7?", [' in text
    assert passes(shop)
    (shop / "shop.py").write_text(AGENT.replace(*BROKEN["a missing tool"]))
    assert not passes(shop)


def test_an_http_recording_in_yaml_becomes_a_test(shop: Path):
    reply = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    choice = {"index": 0, "finish_reason": "stop", "message": {"content": "You are welcome."}}
    sent = {"model": "m", "messages": [{"role": "user", "content": "Thank you"}]}
    uri = "https://api.openai.com/v1/chat/completions"
    interaction = {
        "request": {"method": "POST", "uri": uri, "body": json.dumps(sent)},
        "response": {
            "status": {"code": 200},
            "body": {"string": json.dumps({**reply, "choices": [choice]})},
        },
    }
    (shop / "vcr.yaml").write_text(dump_yaml({"interactions": [interaction]}))
    assert 'say("You are welcome."),' in write(shop, "vcr.yaml")
    assert passes(shop)


WRONG = {
    "no agent": (["-o", "test_x.py"], "a test needs it"),
    "an agent without a test": (["-o", "x.yaml", "--agent", "shop:agent"], "a test needs it"),
    "not an agent": (["-o", "test_x.py", "--agent", "shop"], "invalid agent 'shop'"),
    "a file that exists": (["-o", "shop.py", "--agent", "shop:agent"], "file exists already"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options_are_refused(name: str, shop: Path):
    record(shop)
    options, fact = WRONG[name]
    ended = run_offbook("import", "tape.yaml", *options, cwd=shop)
    assert (ended.returncode, fact in ended.stderr) == (2, True), ended.stderr
