"""Mistral's SDK, which has no variable for its URL: chats with tools, and embeddings."""

import os
from typing import Any

from harness import MODEL, PROMPT, SCHEMA, STREAM, call_weather, print_result
from mistralai.client import Mistral

client = Mistral(
    api_key=os.environ["MISTRAL_API_KEY"],
    server_url=os.environ["MISTRAL_API_BASE"].removesuffix("/v1"),
)
TOOL: Any = {"name": "get_weather", "description": "Get the weather.", "parameters": SCHEMA}
TOOLS: Any = [{"type": "function", "function": TOOL}]


def ask(history: list[Any]) -> tuple[str, list[Any]]:
    if not STREAM:
        choice = client.chat.complete(model=MODEL, messages=history, tools=TOOLS).choices[0]
        assert choice.finish_reason == ("tool_calls" if choice.message.tool_calls else "stop")
        return choice.message.content, choice.message.tool_calls or []
    text, calls = "", list[Any]()
    for event in client.chat.stream(model=MODEL, messages=history, tools=TOOLS):
        delta = event.data.choices[0].delta
        text += delta.content or ""
        calls += delta.tool_calls or ()
    assert event.data.usage.total_tokens is not None
    return text, calls


history: list[Any] = [{"role": "user", "content": PROMPT}]
assert len(client.embeddings.create(model=MODEL, inputs=["a", "b"]).data) == 2
while True:
    text, calls = ask(history)
    if not calls:
        break
    history.append({"role": "assistant", "content": text, "tool_calls": calls})
    for call in calls:
        assert len(call.id) == 9
        result = call_weather(call.function.arguments)
        history.append({"role": "tool", "tool_call_id": call.id, "content": result})
print_result(text, "mistralai")
