"""Griptape: an agent with a tool of its own."""

from griptape.artifacts import TextArtifact
from griptape.drivers.prompt.openai import OpenAiChatPromptDriver
from griptape.structures import Agent
from griptape.tools import BaseTool
from griptape.utils.decorators import activity
from harness import MODEL, OPENAI, PROMPT, STREAM, get_weather, print_result
from schema import Literal, Schema


class Weather(BaseTool):
    """The weather in a city."""

    @activity(
        config={
            "description": "Get the weather in a city.",
            "schema": Schema({Literal("city", description="The name of the city."): str}),
        }
    )
    def get_weather(self, city: str) -> TextArtifact:
        """Return the weather."""
        return TextArtifact(get_weather(city))


driver = OpenAiChatPromptDriver(
    model=MODEL, base_url=OPENAI, api_key="none", stream=STREAM, max_attempts=1
)
agent = Agent(prompt_driver=driver, tools=[Weather(off_prompt=False)])
agent.run(PROMPT)
print_result(agent.output.to_text(), "griptape", "openai")
