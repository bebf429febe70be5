"""Haystack: an agent on two APIs of OpenAI."""

from harness import MODEL, OPENAI, PROMPT, STREAM, VARIANT, get_weather, print_result
from haystack.components.agents import Agent
from haystack.components.generators.chat import (
    OpenAIChatGenerator,
    OpenAIResponsesChatGenerator,
)
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

generator = OpenAIResponsesChatGenerator if VARIANT == "responses" else OpenAIChatGenerator
agent = Agent(
    chat_generator=generator(api_key=Secret.from_token("none"), model=MODEL, api_base_url=OPENAI),
    tools=[create_tool_from_function(get_weather)],
    streaming_callback=(lambda _chunk: None) if STREAM else None,
)
result = agent.run([ChatMessage.from_user(PROMPT)])
print_result(result["last_message"].text, "haystack-ai", "openai")
