"""Langroid: a task whose agent has a tool of OpenAI's API."""

from byte_tokens import use_bytes

use_bytes()

import langroid as lr
import langroid.language_models as lm
from harness import MODEL, OPENAI, PROMPT, STREAM, get_weather, print_result
from langroid.agent.tool_message import ToolMessage
from langroid.utils.configuration import settings


class Weather(ToolMessage):
    """The weather in a city."""

    request: str = "get_weather"
    purpose: str = "Get the weather in a <city>."
    city: str

    def handle(self) -> str:
        """Return the weather."""
        return get_weather(self.city)


settings.cache, settings.stream = False, STREAM
model = lm.OpenAIGPTConfig(
    chat_model=MODEL, api_base=OPENAI, api_key="none", stream=STREAM, cache_config=None
)
config = lr.ChatAgentConfig(
    llm=model, use_tools=False, use_functions_api=True, use_tools_api=True, vecdb=None
)
agent = lr.ChatAgent(config)
agent.enable_message(Weather)
task = lr.Task(agent, interactive=False, done_if_no_response=[], done_if_response=[])
answer = task.run(PROMPT, turns=3)
print_result(answer.content if answer else None, "langroid", "openai")
