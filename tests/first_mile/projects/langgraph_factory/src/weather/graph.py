"""A graph that is built on demand."""

from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

from weather.tools import get_weather


def build_graph(temperature: float = 0.0):
    model = ChatOpenAI(model="gpt-5", temperature=temperature)
    return create_react_agent(model, tools=[get_weather], prompt="You are a helpful assistant.")
