"""LangGraph: steps, checkpointers, and tool mocks."""

from typing import Annotated, Any, cast

import pytest
from langchain import agents
from langchain_core.tools import BaseTool, InjectedToolArg, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs] - it has none
from typing_extensions import TypedDict

from offbook import call, drive, say, when
from offbook.errors import CheckFailed, UsageError
from offbook.testing import (
    assert_step_emitted,
    assert_step_received,
    assert_steps_ran,
    step_assertions,
)
from offbook.trace import Events

create_agent: Any = cast("Any", agents).create_agent
middleware: Any = cast("Any", agents).middleware
WRAPPED: list[str] = []
SCRIPT = when("Find order 7", [call("find_order", {"number": 7}), say("Done.")])


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


@tool
def find_order(number: int, shop: Annotated[str, InjectedToolArg] = "corner") -> str:
    """Find an order."""
    return f"order {number} of {shop}"


def agent(**options: Any) -> Any:
    return create_agent("openai:m", tools=[find_order], **options)


def graph_of(node: Any, state: Any = MessagesState) -> Any:
    graph: Any = StateGraph(state)
    graph.add_node("outer", node)
    graph.set_entry_point("outer")
    return graph.compile()


def nodes(events: Events) -> list[tuple[str, str]]:
    return [(e.event, e.data["step_name"]) for e in events.all if e.event.startswith("step.")]


def test_nodes_are_steps_in_the_trace():
    with drive(agent()) as rehearsal:
        run = rehearsal.run(SCRIPT)
        steps = nodes(run.events)
    both = ("step.pre", "step.post")
    assert steps == [(event, node) for node in ("model", "tools", "model") for event in both]


def test_the_assertions_on_steps_serve_the_nodes_of_a_graph():
    with step_assertions("LangGraph"), drive(agent()) as rehearsal:
        run = rehearsal.run(SCRIPT)
    assert_steps_ran(["model", "tools", "model"])
    assert_steps_ran(["model", "tools", "model"], run.events)
    assert_step_received("model", lambda r: r["args"][0]["messages"][-1]["type"] == "human")
    assert_step_emitted("tools", lambda r: r["output"]["messages"][-1]["type"] == "tool")
    with pytest.raises(CheckFailed, match="step 'tool' never began"):
        assert_step_received("tool")


def test_nodes_of_a_subgraph_have_its_path():
    with drive(graph_of(agent())) as rehearsal:
        steps = nodes(rehearsal.run(SCRIPT).events)
    assert steps[0] == ("step.pre", "outer")
    assert ("step.post", "outer/tools") in steps


def test_a_tool_of_a_subgraph_can_be_mocked():
    with drive(graph_of(agent()), mock_tools={"find_order": "mocked"}) as rehearsal:
        assert rehearsal.run(SCRIPT).results("find_order")[0].text == "mocked"


def test_runs_do_not_share_the_thread_of_a_checkpointer():
    saved = agent(checkpointer=InMemorySaver())
    for _ in range(2):
        with drive(saved) as rehearsal:
            rehearsal.run(SCRIPT, when("And now?", [say("Nothing.")]))
            counts = [e.data["count"] for e in rehearsal.events.named("model.request")]
        assert counts == [1, 3, 5]


def test_a_given_thread_is_continued():
    saved = agent(checkpointer=InMemorySaver())
    for expected in ([1], [3]):
        with drive(saved, config={"configurable": {"thread_id": "mine"}}) as rehearsal:
            rehearsal.run(when("Hi", [say("Hello.")]))
            counts = [e.data["count"] for e in rehearsal.events.named("model.request")]
        assert counts == expected


@pytest.mark.parametrize("response_format", ["content", "content_and_artifact"])
def test_a_mock_receives_no_injected_parameters(response_format: Any):
    @tool(response_format=response_format)
    def find_it(number: int, shop: Annotated[str, InjectedToolArg] = "corner") -> Any:
        """Find it."""
        raise AssertionError(number, shop)

    received_params: list[Any] = []

    def mock(params: dict[str, Any]) -> str:
        received_params.append(params)
        return "mocked"

    found = create_agent("openai:m", tools=[find_it])
    with drive(found, mock_tools={"find_it": mock}) as rehearsal:
        run = rehearsal.run(when("Go", [call("find_it", {"number": 7}), say("Done.")]))
        assert run.results("find_it")[0].text == "mocked"
    assert received_params == [{"number": 7}]


def test_a_mocked_tool_is_restored():
    before = dict(vars(find_order))
    with drive(agent(), mock_tools={"find_order": "mocked"}, auto_assert=False):
        assert vars(find_order) != before
        assert find_order.invoke({"number": 7}) == "mocked"
    after = vars(find_order)  # what LangChain found out about it when it was called may stay
    assert {name: after.get(name) for name in before} == before


def test_a_tool_class_can_be_mocked():
    class Find(BaseTool):
        name: str = "find_order"
        description: str = "Find an order."

        def _run(self, number: int) -> str:
            raise AssertionError(number)

    found = create_agent("openai:m", tools=[Find()])
    with drive(found, mock_tools={"find_order": "7"}) as rehearsal:
        run = rehearsal.run(SCRIPT)
        assert run.results("find_order")[0].text == "7"
        [offered] = run.requests[0].tools
        assert [*offered.schema["properties"]] == ["number"]


def test_a_failing_node_is_emitted_and_fails_the_run():
    def explode(_: Any) -> None:
        raise ZeroDivisionError("on purpose")

    with drive(graph_of(explode)) as rehearsal:
        with pytest.raises(ZeroDivisionError, match="on purpose"):
            rehearsal.run(when("Go", [say("Done.")]))
        [end] = rehearsal.events.named("step.post")
    assert "on purpose" in end.data["error"]


def test_a_graph_without_messages_is_refused():
    class State(TypedDict):
        question: str

    def stay(state: Any) -> Any:
        return state

    with drive(graph_of(stay, State)) as rehearsal, pytest.raises(UsageError, match="question"):
        rehearsal.run(when("Go", [say("Done.")]))


class CustomerState(MessagesState):
    customer_id: int


def shop(*, checkpointer: Any = None) -> tuple[Any, list[tuple[int | None, int]]]:
    """Return a graph that asks its model, and the customers and message counts that it saw."""
    from langchain_openai import ChatOpenAI

    seen: list[tuple[int | None, int]] = []

    def answer(state: Any) -> Any:
        seen.append((state.get("customer_id"), len(state["messages"])))
        return {"messages": [ChatOpenAI(model="m").invoke(state["messages"])]}

    graph: Any = StateGraph(CustomerState)
    graph.add_node("answer", answer)
    graph.set_entry_point("answer")
    return graph.compile(checkpointer=checkpointer), seen


TWO_TURNS = (when("Hi", [say("Hello.")]), when("Bye", [say("Goodbye.")]))


@pytest.mark.parametrize("checkpointer", [None, InMemorySaver()], ids=["none", "checkpointer"])
def test_the_initial_state_of_a_graph_is_given(checkpointer: Any):
    graph, seen = shop(checkpointer=checkpointer)
    with drive(graph, state={"customer_id": 1, "messages": ["Earlier"]}) as rehearsal:
        rehearsal.run(*TWO_TURNS)
    assert seen == [(1, 2), (1, 4)]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"customer_id": 1}, "unknown option 'customer_id' for langgraph"),
        ({"state": {"customer": 1}}, "the input of the graph has no 'customer'"),
        ({"stat": {"customer_id": 1}}, "unknown option 'stat' for langgraph"),
    ],
)
def test_a_value_that_the_graph_would_ignore_is_refused(options: Any, message: str):
    graph, _ = shop()
    with pytest.raises(UsageError) as caught:
        drive(graph, **options)
    assert message in str(caught.value)
    assert "did you mean" in caught.value.hint or "available" in caught.value.hint


class ModelSync(middleware.AgentMiddleware):
    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        WRAPPED.append("model")
        return handler(request)


class ToolSync(middleware.AgentMiddleware):
    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        WRAPPED.append("tool")
        return handler(request)


@pytest.mark.parametrize(
    "kinds, calls",
    [
        ([ModelSync], ["model", "model"]),
        ([ToolSync], ["tool"]),
        ([ToolSync, ModelSync], ["model", "tool", "model"]),
    ],
)
def test_middleware_without_an_async_form_runs(kinds: list[Any], calls: list[str]):
    WRAPPED.clear()
    with drive(agent(middleware=[kind() for kind in kinds])) as rehearsal:
        run = rehearsal.run(SCRIPT)
        assert [(tool.name, tool.result.text) for tool in run.executed] == [
            ("find_order", "order 7 of corner")
        ]
        assert [event for event, _ in nodes(run.events)] == ["step.pre", "step.post"] * 3
    assert calls == WRAPPED
