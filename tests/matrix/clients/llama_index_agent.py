"""LlamaIndex: a function agent on two APIs of OpenAI, and a ReAct agent, which calls in text."""

import asyncio

from harness import OPENAI, PROMPT, STREAM, VARIANT, get_weather, print_result
from llama_index.core.agent.workflow import FunctionAgent, ReActAgent
from llama_index.llms.openai import OpenAI, OpenAIResponses

# LlamaIndex refuses the name of a model that it does not know.
options = {"model": "gpt-4o", "api_base": OPENAI, "api_key": "none"}
llm = OpenAIResponses(**options) if VARIANT == "responses" else OpenAI(**options)
kind = ReActAgent if VARIANT == "react" else FunctionAgent
agent = kind(tools=[get_weather], llm=llm, streaming=STREAM)


async def main() -> str:
    return str(await agent.run(PROMPT))


print_result(asyncio.run(main()), "llama-index-core", "llama-index-llms-openai", "openai")
