"""agno: an agent on two APIs of OpenAI."""

from typing import Any

from agno.agent import Agent, RunCompletedEvent
from agno.models.openai import OpenAIChat, OpenAIResponses
from harness import MODEL, OPENAI, PROMPT, STREAM, VARIANT, get_weather, print_result

model = OpenAIResponses if VARIANT == "responses" else OpenAIChat
agent = Agent(model=model(id=MODEL, base_url=OPENAI, api_key="none"), tools=[get_weather])
answer: Any = agent.run(PROMPT, stream=STREAM, stream_events=STREAM)
if STREAM:
    (answer,) = (event for event in answer if isinstance(event, RunCompletedEvent))
print_result(answer.content, "agno", "openai")
