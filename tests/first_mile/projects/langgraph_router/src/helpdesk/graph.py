"""A help desk: a graph with conditional edges, compiled with a checkpointer."""

from typing import Annotated, Literal, TypedDict

from langchain_core.messages import AnyMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

TICKETS = {"T-1": "open", "T-2": "closed"}


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


@tool
def ticket_status(ticket: str) -> str:
    """Return the status of a ticket."""
    return TICKETS[ticket]


TOOLS = {tool.name: tool for tool in [ticket_status]}


def call_model(state: State) -> dict:
    model = ChatOpenAI(model="gpt-5-mini").bind_tools([*TOOLS.values()])
    system = SystemMessage("You are the help desk of a small company.")
    return {"messages": [model.invoke([system, *state["messages"]])]}


def call_tools(state: State) -> dict:
    results = []
    for call in state["messages"][-1].tool_calls:
        output = TOOLS[call["name"]].invoke(call["args"])
        results.append(ToolMessage(output, tool_call_id=call["id"]))
    return {"messages": results}


def route(state: State) -> Literal["tools", "__end__"]:
    return "tools" if state["messages"][-1].tool_calls else END


def make_graph():
    builder = StateGraph(State)
    builder.add_node("model", call_model)
    builder.add_node("tools", call_tools)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", route)
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=InMemorySaver())


def chat() -> None:
    graph = make_graph()
    config = {"configurable": {"thread_id": "1"}}
    while text := input("> "):
        state = graph.invoke({"messages": [("user", text)]}, config)
        print(state["messages"][-1].content)
