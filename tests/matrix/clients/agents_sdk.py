"""The OpenAI Agents SDK, on chat completions and on responses."""

import asyncio

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
)
from harness import MODEL, PROMPT, STREAM, VARIANT, get_weather, print_result
from openai import AsyncOpenAI

MODELS = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}
client = AsyncOpenAI(max_retries=0)
agent = Agent(
    name="weather",
    tools=[function_tool(get_weather)],
    model=MODELS[VARIANT](MODEL, openai_client=client),
)


async def main() -> str:
    if not STREAM:
        return (await Runner.run(agent, PROMPT)).final_output
    result = Runner.run_streamed(agent, PROMPT)
    async for _ in result.stream_events():
        pass
    return result.final_output


print_result(asyncio.run(main()), "openai-agents")
