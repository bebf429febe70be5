"""AutoGen: an assistant agent, alone and in a team."""

import asyncio
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient
from harness import OPENAI, PROMPT, STREAM, VARIANT, get_weather, print_result

model = OpenAIChatCompletionClient(model="gpt-4o", base_url=OPENAI, api_key="none")
agent = AssistantAgent(
    "reporter",
    model_client=model,
    tools=[get_weather],
    model_client_stream=STREAM,
    max_tool_iterations=5,
)
# The prompt is a message, too.
team = RoundRobinGroupChat([agent], termination_condition=MaxMessageTermination(2))
runner: Any = team if VARIANT == "team" else agent


async def main() -> str:
    result = await runner.run(task=PROMPT)
    await model.close()
    return result.messages[-1].content


print_result(asyncio.run(main()), "autogen-agentchat", "autogen-ext", "openai")
