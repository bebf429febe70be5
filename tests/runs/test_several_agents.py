"""Runs with several agents: the trace says who asked the model, and who called which tool."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from agents import Agent, function_tool
from langchain import agents
from langchain_openai import ChatOpenAI
from langgraph.graph import (  # pyright: ignore[reportMissingTypeStubs] - it has none
    END,
    START,
    MessagesState,
    StateGraph,
)

from offbook import call, drive, role, say, when
from offbook.checks import AgentCoverage, CheckContext, evaluate_all, read_coverage
from offbook.errors import UsageError
from offbook.runs.run import Run
from offbook.surfaces.cli import main

create_agent: Any = cast("Any", agents).create_agent


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


@function_tool
def look(order: int) -> str:
    """Look at an order."""
    return f"order {order}"


@function_tool
def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"


LOOK = call("look", {"order": 7})
REFUND = call("refund", {"order": 7})


def by_agent(run: Run) -> dict[str, list[str]]:
    events = run.events
    return {agent: events.of_agent(agent).tool_sequence() for agent in events.agents}


def run_handoff(*steps: Any, **options: Any) -> Run:
    refunds = Agent("refunds", instructions="You refund.", tools=[refund, look])
    triage = Agent("triage", instructions="You triage.", tools=[look, refund], handoffs=[refunds])
    with drive(triage, **options) as rehearsal:
        return rehearsal.run(when("Refund order 7", [*steps, say("Done.")]))


def test_a_handoff_changes_the_agent():
    run = run_handoff(LOOK, call("transfer_to_refunds"), REFUND)
    assert by_agent(run) == {"triage": ["look", "transfer_to_refunds"], "refunds": ["refund"]}
    assert [r.text for r in run.events.of_agent("refunds").tool_results_for("refund")] == [
        "refunded 7"
    ]


def test_an_agent_that_does_the_work_of_another_is_seen():
    run = run_handoff(REFUND, call("transfer_to_refunds"), LOOK)
    assert run.events.of_agent("triage").tool_calls_for("refund")
    assert not run.events.of_agent("refunds").tool_calls_for("refund")


# The app as it should be, and one whose triage does the work of the clerk.
RIGHT = [LOOK, call("transfer_to_refunds"), REFUND]
BROKEN = [REFUND, call("transfer_to_refunds"), LOOK]
BY_AGENT: list[dict[str, Any]] = [
    {"type": "tool_called", "tool": "refund", "agent": "refunds"},
    {"type": "tool_never", "tool": "refund", "agent": "triage"},
    {"type": "tool_sequence", "tools": ["refund"], "agent": "refunds"},
    {"type": "tool_before", "first": "look", "then": "transfer_to_refunds", "agent": "triage"},
    {"type": "tool_status", "tool": "refund", "status": "ok", "agent": "refunds"},
]


@pytest.mark.parametrize("assertion", BY_AGENT, ids=lambda each: each["type"])
def test_an_assertion_is_restricted_to_an_agent(assertion: dict[str, Any]):
    (right,) = evaluate_all([assertion], CheckContext(run_handoff(*RIGHT).events.all))
    assert (right.status, right.message) == ("pass", "")
    assert right.check.startswith(f"{assertion['agent']}: ")
    (broken,) = evaluate_all([assertion], CheckContext(run_handoff(*BROKEN).events.all))
    assert broken.status in {"fail", "no_data"}
    # Without the agent, the broken app passes, or nothing tells the agents apart.
    if assertion["type"] in {"tool_called", "tool_status"}:
        anyone = {key: value for key, value in assertion.items() if key != "agent"}
        (verdict,) = evaluate_all([anyone], CheckContext(run_handoff(*BROKEN).events.all))
        assert verdict.status == "pass"


@pytest.mark.parametrize(
    "steps, agent, message",
    [
        (RIGHT, "refund", "no data: no agent 'refund' in this run; did you mean 'refunds'?"),
        ([LOOK], "refunds", "no data: no agent 'refunds' in this run; available: 'triage'"),
        (
            [call("transfer_to_refunds")],
            "refunds",
            "no data: the agent 'refunds' called no tool",
        ),
    ],
)
def test_an_agent_that_did_nothing_is_no_data(steps: Any, agent: str, message: str):
    never = {"type": "tool_never", "tool": "look", "agent": agent}
    (verdict,) = evaluate_all([never], CheckContext(run_handoff(*steps).events.all))
    assert (verdict.status, verdict.message) == ("no_data", message)


@pytest.mark.parametrize(
    "agent, status", [(None, "fail"), ("triage", "pass"), ("refunds", "pass"), ("clerk", "no_data")]
)
def test_the_requests_of_an_agent_are_counted(agent: str | None, status: str):
    limit = {"type": "model_calls", "max": 2, **({"agent": agent} if agent else {})}
    run = run_handoff(*RIGHT)
    (verdict,) = evaluate_all([limit], CheckContext(run.events.all))
    assert verdict.status == status
    (broken,) = evaluate_all([{**limit, "max": 1}], CheckContext(run.events.all))
    assert broken.status != "pass"


def measure(agent: str, *steps: Any) -> tuple[bool, dict[str, str]]:
    coverage = AgentCoverage()
    found = read_coverage(run_handoff(*steps).events.all, coverage, agent)
    return found, {name: part.state(kind) for kind, name, part in coverage if part.offered}


def test_the_coverage_of_an_agent_has_its_own_calls():
    assert measure("refunds", *RIGHT) == (True, {"refund": "covered", "look": "never called"})
    assert measure("refunds", *BROKEN) == (True, {"refund": "never called", "look": "covered"})
    assert measure("", *BROKEN)[1]["refund"] == "covered"
    assert measure("triage", *RIGHT)[1] == {
        "look": "covered",
        "refund": "never called",
        "transfer_to_refunds": "covered",
        "triage → refunds": "covered",
    }
    assert measure("clerk", *RIGHT) == (False, {})


def test_the_command_measures_one_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    trace = tmp_path / "run.jsonl"
    run_handoff(*BROKEN, trace=trace)
    report = ["report", str(trace), "--format", "coverage", "--agent"]
    with pytest.raises(SystemExit, match="0"):
        main([*report, "refunds"])
    assert "tool  refund  never called" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main([*report, "clerk"])
    assert "no agent 'clerk' in 1 trace" in capsys.readouterr().err


def test_an_agent_that_is_a_tool_has_its_name():
    refunds = Agent("refunds", instructions="You refund.", tools=[refund])
    tool = refunds.as_tool("ask_refunds", "Ask for a refund.")
    triage = Agent("triage", instructions="You triage.", tools=[tool])
    with drive(triage) as rehearsal:
        run = rehearsal.run(
            when("Help", [call("ask_refunds", {"input": "Refund order 7"}), say("Done.")]),
            role("refunds", system="You refund", actions=[REFUND, say("Refunded.")]),
        )
    assert by_agent(run) == {"triage": ["ask_refunds"], "ask_refunds": ["refund"]}


def find(text: str) -> str:
    """Find a text."""
    return f"found {text}"


def write(text: str) -> str:
    """Write a text."""
    return f"wrote {text}"


def make_agent(name: str, tool: Any) -> Any:
    model = ChatOpenAI(model="gpt-5")
    return create_agent(model, [tool], system_prompt=f"You are the {name}.")


def test_subgraphs_are_agents():
    graph: Any = StateGraph(MessagesState)
    graph.add_node("research", make_agent("researcher", find))
    graph.add_node("writer", make_agent("writer", write))
    graph.add_edge(START, "research")
    graph.add_edge("research", "writer")
    graph.add_edge("writer", END)
    steps = [call("find", {"text": "x"}), say("Found.")]
    more = [call("write", {"text": "y"}), say("Written.")]
    with drive(graph.compile()) as rehearsal:
        run = rehearsal.run(when("Go", [*steps, *more]))
    assert by_agent(run) == {"research": ["find"], "writer": ["write"]}


def test_subgraphs_that_run_at_once_are_told_apart():
    graph: Any = StateGraph(MessagesState)
    for name, tool in (("research", find), ("writer", write)):
        graph.add_node(name, make_agent(name, tool))
        graph.add_edge(START, name)
        graph.add_edge(name, END)
    find_it = [call("find", {"text": "x"}), say("Found.")]
    write_it = [call("write", {"text": "y"}), say("Written.")]
    with drive(graph.compile()) as rehearsal:
        run = rehearsal.run(
            when("Go", []),
            role("research", system="You are the research", actions=find_it),
            role("writer", system="You are the writer", actions=write_it),
        )
    found = by_agent(run)
    assert {agent: found[agent] for agent in sorted(found)} == {
        "research": ["find"],
        "writer": ["write"],
    }


def test_an_unknown_agent_is_refused():
    run = run_handoff(LOOK)
    with pytest.raises(UsageError, match="no agent 'triag' in this run"):
        run.events.of_agent("triag")


def test_a_function_without_agents_has_none():
    async def agent(prompt: str) -> str:
        await asyncio.sleep(0)
        from openai import AsyncOpenAI

        messages: Any = [{"role": "user", "content": prompt}]
        reply = await AsyncOpenAI().chat.completions.create(model="m", messages=messages)
        return reply.choices[0].message.content or ""

    with drive(agent) as rehearsal:
        run = rehearsal.run(when("Go", [say("Hi.")]))
    assert run.events.agents == []
