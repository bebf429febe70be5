"""Mirascope: a call with a tool, in the loop of its documentation, on two APIs of OpenAI."""

from typing import Any

from harness import MODEL, OPENAI, PROMPT, STREAM, VARIANT, get_weather, print_result
from mirascope import llm

llm.register_provider("openai", base_url=OPENAI, api_key="none")


@llm.call(f"openai/{MODEL}:{VARIANT}", tools=[llm.tool(get_weather)])
def ask(question: str) -> str:
    return question


response: Any = ask.stream(PROMPT) if STREAM else ask(PROMPT)
while True:
    if STREAM:
        response.finish()
    if not response.tool_calls:
        break
    response = response.resume(response.execute_tools())
print_result(response.text(), "mirascope", "openai")
