"""Semantic Kernel: a chat completion agent with a plugin, and an agent on the Responses API."""

import asyncio

from harness import MODEL, OPENAI, PROMPT, STREAM, VARIANT, get_weather, print_result
from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent, OpenAIResponsesAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import KernelPlugin, kernel_function

client = AsyncOpenAI(base_url=OPENAI, api_key="none")
plugin = KernelPlugin("weather", functions=[kernel_function(get_weather)])
agent: ChatCompletionAgent | OpenAIResponsesAgent
if VARIANT == "responses":
    agent = OpenAIResponsesAgent(ai_model_id=MODEL, client=client, plugins=[plugin])
else:
    service = OpenAIChatCompletion(MODEL, async_client=client)
    agent = ChatCompletionAgent(service=service, plugins=[plugin])


async def main() -> str:
    if not STREAM:
        return str(await agent.get_response(PROMPT))
    return "".join([str(chunk) async for chunk in agent.invoke_stream(PROMPT)])


print_result(asyncio.run(main()), "semantic-kernel", "openai")
