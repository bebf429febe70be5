"""pydantic-ai, with the models of every provider."""

import asyncio

from harness import PROMPT, STREAM, VARIANT, get_weather, print_result
from pydantic_ai import Agent

MODELS = {
    "chat": "openai-chat:offbook-1",
    "responses": "openai:offbook-1",
    "anthropic": "anthropic:offbook-1",
    "google": "google:offbook-1",
}
agent = Agent(MODELS[VARIANT], tools=[get_weather])


async def main() -> str:
    if not STREAM:
        return (await agent.run(PROMPT)).output
    async with agent.run_stream(PROMPT) as result:
        return await result.get_output()


print_result(asyncio.run(main()), "pydantic-ai-slim")
