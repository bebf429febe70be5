"""smolagents, with agents that call tools and agents that write code."""

from typing import Any

from harness import MODEL, OPENAI, PROMPT, STREAM, VARIANT, get_weather, print_result
from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool

model = OpenAIServerModel(MODEL, api_base=OPENAI, api_key="none")
kind: Any = CodeAgent if VARIANT == "code" else ToolCallingAgent
agent = kind([tool(get_weather)], model, stream_outputs=STREAM, verbosity_level=0)
print_result(agent.run(PROMPT), "smolagents")
