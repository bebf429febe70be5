"""The coverage of an agent says which of its parts did their work, and which never ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook import Trace, call, drive, fail, role, say, session, when
from offbook.checks import AgentCoverage, CoverageReader, CoveredPart, read_coverage
from offbook.trace import Event, observe_traces

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def coverage_of(path: Path) -> AgentCoverage:
    coverage = AgentCoverage()
    read_coverage(Trace(path), coverage)
    return coverage


def state(coverage: AgentCoverage, kind: Any, name: str) -> str:
    return coverage.part(kind, name).state(kind)


def shop(api: Any) -> None:
    """Offer a tool for each outcome, two hooks, a command and a question."""
    for name in ("find", "never", "guarded", "strict"):

        @api.tool(name, "A tool.", NUMBER if name == "strict" else {})
        def run(params: dict[str, Any], ctx: Any) -> str:  # pyright: ignore[reportUnusedFunction] - registered by name
            return "ok"

    @api.tool("broken")
    async def broken(params: dict[str, Any], ctx: Any) -> dict[str, Any]:
        await ctx.ui.confirm("Really?")
        return {"content": "no", "is_error": True}

    @api.on("tool_call")
    def guard(event: Any, ctx: Any) -> object:
        return {"block": True, "reason": "no"} if event.tool == "guarded" else None

    @api.on("agent_end")
    def ended(event: Any, ctx: Any) -> None:
        pass

    @api.command("plans")
    def plans(args: str, ctx: Any) -> None:
        pass


@pytest.fixture
def shop_coverage(tmp_path: Path) -> AgentCoverage:
    with session(extensions=[shop], trace=tmp_path / "t.jsonl") as rehearsal:
        steps = [
            call("find"),
            call("broken"),
            call("guarded"),
            call("strict", {"n": "x"}, invalid=True),
        ]
        rehearsal.run(when("Go", [*steps, say("Done.")]))
    return coverage_of(tmp_path / "t.jsonl")


@pytest.mark.parametrize(
    "kind, name, expected",
    [
        ("tool", "find", "covered"),
        ("tool", "never", "never called"),
        ("tool", "broken", "only failed"),
        ("tool", "guarded", "only blocked"),
        ("tool", "strict", "only refused"),
        ("hook", "tool_call", "covered"),
        ("hook", "agent_end", "covered"),
        ("command", "/plans", "never run"),
        ("answer", "Really? → yes", "covered"),
        ("answer", "Really? → no", "never given"),
    ],
)
def test_each_part_of_a_session_has_its_state(
    shop_coverage: AgentCoverage, kind: str, name: str, expected: str
):
    assert shop_coverage.part(kind, name).offered  # pyright: ignore[reportArgumentType] - a kind
    assert state(shop_coverage, kind, name) == expected


def test_parts_that_did_no_work_are_missing_from_the_percentage(shop_coverage: AgentCoverage):
    covered = sum(part.covered for part in shop_coverage.offered)
    assert covered == 4
    assert shop_coverage.percent == pytest.approx(100 * 4 / len(shop_coverage.offered))
    assert "tool never: never called" in shop_coverage.missing()
    assert "tool broken: only failed" in shop_coverage.missing()


def test_a_tool_that_fails_and_succeeds_is_covered():
    coverage = AgentCoverage()
    coverage.offer("tool", "find")
    coverage.count("tool", "find", "failed")
    assert coverage.percent == 0
    coverage.count("tool", "find", "succeeded")
    assert coverage.percent == 100


def test_a_mocked_call_that_failed_does_not_cover():
    coverage = AgentCoverage()
    coverage.offer("tool", "find")
    coverage.count("tool", "find", "failed")
    coverage.count("tool", "find", "mocked")
    assert state(coverage, "tool", "find") == "only failed"


def test_nothing_offered_is_no_data():
    coverage = AgentCoverage()
    assert coverage.percent is None
    assert coverage.as_json()["percent"] is None
    assert coverage.render() == ["no data: 0 traces, and no part of an agent in them"]


def test_a_call_of_a_tool_that_nobody_offers_is_no_coverage():
    coverage = AgentCoverage()
    coverage.count("tool", "ghost", "ended")
    assert coverage.percent is None
    assert state(coverage, "tool", "ghost") == "not offered"


def test_roles_and_errors_of_the_provider_are_counted_beside(tmp_path: Path):
    with session(trace=tmp_path / "t.jsonl", settings={"retries": 1}) as rehearsal:
        rehearsal.run(when("Go", [fail("slow down", status=429), say("Done.")]))
        rehearsal.run(when("Again", [fail("wrong", status=400)]))
    coverage = coverage_of(tmp_path / "t.jsonl")
    outcomes = {name: part.outcomes for kind, name, part in coverage if kind == "error"}
    assert [*outcomes.values()] == [{"then ended": 1}, {"then answered": 1}]
    assert not any(part.offered for kind, _, part in coverage if kind in {"error", "role"})


def test_a_role_that_replied_is_named(tmp_path: Path):
    def extension(api: Any) -> None:
        from offbook.exchange import History, Request, user

        @api.tool("delegate")
        async def delegate(params: dict[str, Any], ctx: Any) -> str:
            request = Request(History([user("Summarize")]), system="You summarize.")
            return (await ctx.model.reply(request)).text

    with session(extensions=[extension], trace=tmp_path / "t.jsonl") as rehearsal:
        helper = role("helper", [say("Short.")], system="summarize")
        rehearsal.run(when("Go", [call("delegate"), say("Done.")]), helper)
    assert coverage_of(tmp_path / "t.jsonl").part("role", "helper").outcomes == {"replied": 1}


def test_arguments_that_pydantic_ai_rejects_do_not_cover_the_tool(tmp_path: Path):
    from pydantic_ai import Agent

    agent = Agent("openai-chat:m")

    @agent.tool_plain
    def find(number: int) -> str:  # pyright: ignore[reportUnusedFunction] - registered by name
        return f"order {number}"

    with drive(agent, trace=tmp_path / "t.jsonl") as rehearsal:
        rehearsal.run(when("Go", [call("find", {"number": "x"}, invalid=True), say("Done.")]))
    assert state(coverage_of(tmp_path / "t.jsonl"), "tool", "find") == "only refused"


def test_the_nodes_and_edges_of_a_graph_are_parts(tmp_path: Path):
    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs] - it has none

    async def ask(state: Any) -> dict[str, Any]:
        return {"messages": [await ChatOpenAI(model="m").ainvoke(state["messages"])]}

    def choose(state: Any) -> Literal["good", "bad"]:
        return "good"

    builder: Any = StateGraph(MessagesState)
    builder.add_node("ask", ask)
    builder.add_node("good", lambda _state: {})  # pyright: ignore[reportUnknownLambdaType]
    builder.add_node("bad", lambda _state: {})  # pyright: ignore[reportUnknownLambdaType]
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", choose)
    builder.add_edge("good", END)
    builder.add_edge("bad", END)
    with drive(builder.compile(), trace=tmp_path / "t.jsonl") as rehearsal:
        rehearsal.run(when("Go", [say("Fine.")]))
    states = {
        f"{kind} {name}": part.state(kind)
        for kind, name, part in coverage_of(tmp_path / "t.jsonl")
        if kind in {"node", "edge"}
    }
    assert states == {
        "node ask": "covered",
        "node bad": "never run",
        "node good": "covered",
        "edge __start__ → ask": "covered",
        "edge ask → bad": "never taken",
        "edge ask → good": "covered",
        "edge bad → __end__": "never taken",
        "edge good → __end__": "covered",
    }


def test_the_handoffs_of_openai_agents_are_parts(tmp_path: Path):
    from agents import Agent

    refunds = Agent(name="refunds", model="m")
    sales = Agent(name="sales", model="m")
    triage = Agent(name="triage", model="m", handoffs=[refunds, sales])
    with drive(triage, trace=tmp_path / "t.jsonl") as rehearsal:
        rehearsal.run(when("Go", [call("transfer_to_refunds"), say("Done.")]))
    coverage = coverage_of(tmp_path / "t.jsonl")
    assert state(coverage, "handoff", "triage → refunds") == "covered"
    assert state(coverage, "handoff", "triage → sales") == "never taken"


def test_a_trace_that_is_written_is_measured_as_the_stored_one(tmp_path: Path):
    live = AgentCoverage()
    with (
        observe_traces(lambda: CoverageReader(live)),
        session(extensions=[shop], trace=tmp_path / "t.jsonl") as rehearsal,
    ):
        rehearsal.run(when("Go", [call("find"), call("broken"), say("Done.")]))
    assert live.as_json() == coverage_of(tmp_path / "t.jsonl").as_json()


names = st.sampled_from(["a", "b"])
coverages = st.builds(
    AgentCoverage,
    traces=st.integers(0, 5),
    parts=st.dictionaries(
        st.sampled_from(["tool", "hook"]),
        st.dictionaries(
            names,
            st.builds(
                CoveredPart,
                offered=st.booleans(),
                outcomes=st.dictionaries(
                    st.sampled_from(["succeeded", "failed"]), st.integers(1, 9)
                ),
            ),
        ),
    ),
)


@given(coverages, coverages)
def test_the_order_of_merging_makes_no_difference(one: AgentCoverage, two: AgentCoverage):
    encoded = msgspec.json.encode([one, two])
    merged: list[dict[str, Any]] = []
    for order in ((0, 1), (1, 0)):
        copies = msgspec.json.decode(encoded, type=list[AgentCoverage])
        total = AgentCoverage()
        for index in order:
            total.merge(copies[index])
        merged.append(total.as_json())
    assert merged[0] == merged[1]


@pytest.mark.parametrize("data", [{}, {"tools": []}, {"args": []}, {"from": "a"}])
@pytest.mark.parametrize("name", ["tool.result", "ui.select", "handoff", "agent.parts", "step.pre"])
def test_events_of_other_tools_are_read_without_an_error(name: str, data: dict[str, Any]):  # noqa: OB101 - it must not raise
    read_coverage([Event(1, name, data)], AgentCoverage())
