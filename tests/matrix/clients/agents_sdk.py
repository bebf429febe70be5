"""OpenAI Agents, on chat completions and on responses."""

import asyncio

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
)
from openai import AsyncOpenAI
from told import MODEL, PROMPT, STREAM, VARIANT, get_weather, tell

KINDS = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}
client = AsyncOpenAI(max_retries=0)
agent = Agent(
    name="weather",
    tools=[function_tool(get_weather)],
    model=KINDS[VARIANT](MODEL, openai_client=client),
)


async def main() -> str:
    if not STREAM:
        return (await Runner.run(agent, PROMPT)).final_output
    result = Runner.run_streamed(agent, PROMPT)
    async for _ in result.stream_events():
        pass
    return result.final_output


tell(asyncio.run(main()), "openai-agents")
