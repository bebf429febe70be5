"""A framework that ends a run by design is no finding."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agents import Agent as OpenAIAgent
from agents import function_tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs] - it has none
from pydantic_ai import Agent

from offbook import drive, say, when
from offbook.errors import InvariantBroken
from offbook.exchange.messages import RAW_ARGUMENTS
from offbook.explore import explore, replay
from offbook.explore.moves import GeneratedCall, Move
from offbook.explore.playing import Behaviour, Job, Stage
from offbook.runs import Run
from offbook.subjects.frameworks.framework import is_documented_end
from tests.explore.hosts import Bug, host_langgraph


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")


def find_order(number: int) -> str:
    """Find an order."""
    return f"order {number}"


def pydantic_agent() -> Any:
    return drive(Agent("openai-chat:gpt-4o", tools=[find_order]))


def openai_agent() -> Any:
    return drive(OpenAIAgent(name="shop", tools=[function_tool(find_order)]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "world, end",
    [(pydantic_agent, "UnexpectedModelBehavior"), (openai_agent, "ModelBehaviorError")],
)
def test_the_documented_end_of_a_framework_is_counted_and_no_finding(world: Any, end: str):
    found = explore(world, "Find order 7", runs=15)
    assert (found.behaviours, found.findings) == (15, [])
    assert found.gave_up[end] > 0


def make(module: str, name: str) -> BaseException:
    return type(name, (Exception,), {"__module__": module})()


@pytest.mark.parametrize(
    "module, name, known",
    [
        ("langgraph.errors", "GraphRecursionError", True),
        ("smolagents.utils", "AgentMaxStepsError", True),
        ("shop", "GraphRecursionError", False),
        ("langgraph.errors", "InvalidUpdateError", False),
    ],
)
def test_an_end_is_known_by_the_package_and_the_name_of_its_class(
    module: str, name: str, *, known: bool
):
    assert is_documented_end(make(module, name)) == known


def test_refused_arguments_are_no_finding_while_another_conversation_goes_on():
    def world() -> Any:
        bug = Bug([find_order], "Find order 7", None)
        return host_langgraph(bug), bug

    unknown = Move((GeneratedCall("bash", {}, unknown=True),))
    moves = (
        Move((GeneratedCall("find_order", {RAW_ARGUMENTS: "7"}),)),
        Move(prompt="Find order 8", fresh=True, beside=True),
        *(unknown, unknown, unknown),
    )
    with Stage(world, ("Find order 7",), (), ()) as stage:
        behaviour = stage.play(Job(moves=moves))
    assert (behaviour.gave_up, behaviour.violations) == ("ValidationError", ())


def asking_graph(*, reads: bool) -> Any:
    """Return a graph whose node, written by hand, asks the model, and may read its arguments."""

    def ask(state: MessagesState) -> Any:
        model: Any = ChatOpenAI(model="m", max_retries=0)
        reply: Any = model.bind_tools(TOOLS).invoke(state["messages"])
        if reads:
            [json.loads(each["args"])["number"] for each in reply.invalid_tool_calls]
        return {"messages": [reply]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    return drive(graph.compile())


TOOLS: Any = [{"type": "function", "function": {"name": "find_order", "parameters": {}}}]


def play(world: Any, arguments: str) -> Behaviour:
    calls = (GeneratedCall("find_order", {RAW_ARGUMENTS: arguments}),)
    with Stage(world, ("Find order 7",), (), ()) as stage:
        return stage.play(Job(prompt="Find order 7", moves=(Move(calls),)))


def test_arguments_that_a_model_of_a_framework_refuses_are_no_finding_in_a_node_of_the_user():
    behaviour = play(lambda: asking_graph(reads=False), "7")
    assert (behaviour.gave_up, behaviour.violations) == ("ValidationError", ())


def test_arguments_that_the_user_reads_are_a_finding_in_a_node_of_the_user():
    (violation,) = play(lambda: asking_graph(reads=True), "{").violations
    assert "JSONDecodeError" in violation.message


@pytest.mark.slow
def test_a_refusal_that_ends_the_run_is_no_finding_unless_an_invariant_wants_an_answer():
    def answers(run: Run, _: Any) -> bool:
        return run.output is not None

    script = when("Find order 7", [say("I cannot help with that.", stop="refusal")])
    replay(openai_agent, script)
    with pytest.raises(InvariantBroken, match="answers"):
        replay(openai_agent, script, answers)
