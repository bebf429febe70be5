"""Strands, on OpenAI's and Anthropic's clients."""

from typing import Any

from harness import ANTHROPIC, MODEL, OPENAI, PROMPT, STREAM, VARIANT, get_weather, print_result
from strands import Agent, tool
from strands.models.anthropic import AnthropicModel
from strands.models.openai import OpenAIModel

model: Any
if VARIANT == "anthropic":
    options = {"base_url": ANTHROPIC, "api_key": "none"}
    model = AnthropicModel(client_args=options, model_id=MODEL, max_tokens=100)
else:
    options = {"base_url": OPENAI, "api_key": "none"}
    model = OpenAIModel(client_args=options, model_id=MODEL, stream=STREAM)
agent = Agent(model, tools=[tool(get_weather)], callback_handler=None)
print_result(str(agent(PROMPT)).strip(), "strands-agents", "openai", "anthropic")
