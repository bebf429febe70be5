"""Microsoft's Agent Framework: an agent on two APIs of OpenAI."""

import asyncio

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from harness import MODEL, OPENAI, PROMPT, STREAM, VARIANT, get_weather, print_result

client = OpenAIChatClient if VARIANT == "responses" else OpenAIChatCompletionClient
agent = Agent(client(MODEL, api_key="none", base_url=OPENAI), tools=[get_weather])


async def main() -> str:
    if not STREAM:
        return (await agent.run(PROMPT)).text
    stream = agent.run(PROMPT, stream=True)
    # Some updates replace the text before them, so the texts cannot be joined.
    assert [update async for update in stream]
    return (await stream.get_final_response()).text


print_result(asyncio.run(main()), "agent-framework-core", "agent-framework-openai", "openai")
