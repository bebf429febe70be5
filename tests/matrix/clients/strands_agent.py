"""Strands, on OpenAI's and Anthropic's clients."""

from typing import Any

from strands import Agent, tool
from strands.models.anthropic import AnthropicModel
from strands.models.openai import OpenAIModel
from told import ANTHROPIC, MODEL, OPENAI, PROMPT, STREAM, VARIANT, get_weather, tell

model: Any
if VARIANT == "anthropic":
    options = {"base_url": ANTHROPIC, "api_key": "none"}
    model = AnthropicModel(client_args=options, model_id=MODEL, max_tokens=100)
else:
    options = {"base_url": OPENAI, "api_key": "none"}
    model = OpenAIModel(client_args=options, model_id=MODEL, stream=STREAM)
agent = Agent(model, tools=[tool(get_weather)], callback_handler=None)
tell(str(agent(PROMPT)).strip(), "strands-agents", "openai", "anthropic")
