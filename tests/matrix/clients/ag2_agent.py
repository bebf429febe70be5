"""AG2: an agent on two APIs of OpenAI."""

import asyncio

from ag2 import Agent
from ag2.config import OpenAIConfig, OpenAIResponsesConfig
from harness import MODEL, OPENAI, PROMPT, STREAM, VARIANT, get_weather, print_result

kind = OpenAIResponsesConfig if VARIANT == "responses" else OpenAIConfig
config = kind(MODEL, api_key="none", base_url=OPENAI, streaming=STREAM)
agent = Agent("reporter", config=config, tools=[get_weather])


async def main() -> str:
    return (await agent.ask(PROMPT)).body or ""


print_result(asyncio.run(main()), "ag2", "openai")
