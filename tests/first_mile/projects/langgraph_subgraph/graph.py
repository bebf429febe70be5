"""A research team: a graph inside of a graph."""

from langchain_core.messages import SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def search(query: str) -> str:
    """Search the archive."""
    return f"Three papers about {query}."


model = ChatOpenAI(model="gpt-5")


def research(state: MessagesState):
    messages = [SystemMessage("You search the archive."), *state["messages"]]
    return {"messages": [model.bind_tools([search]).invoke(messages)]}


def summarize(state: MessagesState):
    return {"messages": [model.invoke([SystemMessage("Summarize."), *state["messages"]])]}


researcher = StateGraph(MessagesState)
researcher.add_node("research", research)
researcher.add_node("tools", ToolNode([search]))
researcher.add_edge(START, "research")
researcher.add_conditional_edges("research", tools_condition)
researcher.add_edge("tools", "research")

builder = StateGraph(MessagesState)
builder.add_node("researcher", researcher.compile())
builder.add_node("summarize", summarize)
builder.add_edge(START, "researcher")
builder.add_edge("researcher", "summarize")
builder.add_edge("summarize", END)
graph = builder.compile()
