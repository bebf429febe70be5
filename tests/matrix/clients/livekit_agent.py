"""LiveKit Agents: a session without audio, as its own tests run one."""

import asyncio

from harness import MODEL, OPENAI, PROMPT, VARIANT, get_weather, print_result
from livekit.agents import Agent, AgentSession, function_tool
from livekit.agents.utils import http_context
from livekit.plugins import openai


class Weather(Agent):
    """An agent with a tool."""

    def __init__(self) -> None:
        super().__init__(instructions="Answer questions about the weather.")

    @function_tool
    async def get_weather(self, city: str) -> str:
        """Get the weather in a city.

        Args:
            city: The name of the city.
        """
        return get_weather(city)


async def run() -> str:
    kind = openai.responses.LLM if VARIANT == "responses" else openai.LLM
    # Its WebSocket takes the base URL as it is.
    base = OPENAI + "/responses" if VARIANT == "responses" else OPENAI
    model = kind(model=MODEL, base_url=base, api_key="none")
    # Responses come over a WebSocket, by the session of a job.
    async with http_context.open(), model, AgentSession(llm=model) as session:
        await session.start(Weather())
        result = await session.run(user_input=PROMPT)
        messages = [event.item for event in result.events if event.type == "message"]
        return messages[-1].text_content


print_result(asyncio.run(run()), "livekit-agents", "livekit-plugins-openai", "openai")
