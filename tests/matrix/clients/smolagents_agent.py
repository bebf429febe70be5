"""smolagents, whose agents call tools or write code."""

from typing import Any

from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool
from told import MODEL, OPENAI, PROMPT, STREAM, VARIANT, get_weather, tell

model = OpenAIServerModel(MODEL, api_base=OPENAI, api_key="none")
kind: Any = CodeAgent if VARIANT == "code" else ToolCallingAgent
agent = kind([tool(get_weather)], model, stream_outputs=STREAM, verbosity_level=0)
tell(agent.run(PROMPT), "smolagents")
