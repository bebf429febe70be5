"""Atomic Agents: an object of a model, with a second attempt."""

import asyncio

import instructor
from atomic_agents.agents.base_agent import BaseAgent, BaseAgentConfig, BaseAgentInputSchema
from atomic_agents.lib.base.base_io_schema import BaseIOSchema
from harness import MODEL, OPENAI, PROMPT, STREAM, print_result
from openai import AsyncOpenAI, OpenAI


class Weather(BaseIOSchema):
    """The weather in a city."""

    city: str
    degrees: int


client = instructor.from_openai(
    (AsyncOpenAI if STREAM else OpenAI)(base_url=OPENAI, api_key="none")
)
agent = BaseAgent(BaseAgentConfig(client=client, model=MODEL, output_schema=Weather))
question = BaseAgentInputSchema(chat_message=PROMPT)


async def read_stream() -> object:
    answer: object = None
    async for partial in agent.run_async(question):
        answer = partial
    return answer


answer = asyncio.run(read_stream()) if STREAM else agent.run(question)
print_result(f"{answer.city}: {answer.degrees}", "atomic-agents", "instructor", "openai")
