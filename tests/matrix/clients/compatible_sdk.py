"""The SDKs of providers and gateways with OpenAI's format."""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from harness import MODEL, OPENAI, PROMPT, SCHEMA, STREAM, VARIANT, call_weather, print_result

TOOL: Any = {"name": "get_weather", "description": "Get the weather.", "parameters": SCHEMA}
TOOLS: Any = [{"type": "function", "function": TOOL}]


def create(module: str, name: str, **options: Any) -> Callable[..., Any]:
    return getattr(import_module(module), name)(**options).chat.completions.create


def openrouter() -> Callable[..., Any]:
    from openrouter import OpenRouter

    key, url = os.environ["OPENROUTER_API_KEY"], os.environ["OPENROUTER_API_BASE"]
    return OpenRouter(api_key=key, server_url=url).chat.send


ASK: dict[str, Callable[[], Callable[..., Any]]] = {
    "groq": lambda: create("groq", "Groq"),
    "together": lambda: create("together", "Together"),
    "portkey-ai": lambda: create("portkey_ai", "Portkey", base_url=OPENAI, api_key="none"),
    "openrouter": openrouter,
}


def ask(history: list[Any]) -> tuple[str, list[Any]]:
    response = send(model=MODEL, messages=history, tools=TOOLS, stream=STREAM)
    if not STREAM:
        message = response.choices[0].message
        return message.content or "", list(message.tool_calls or ())
    text, calls = "", list[Any]()
    for chunk in response:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for part in choice.delta.tool_calls or ():
                if int(part.index) == len(calls):
                    calls.append(part)
                else:
                    calls[int(part.index)].function.arguments += part.function.arguments
    return text, calls


send = ASK[VARIANT]()
history: list[Any] = [{"role": "user", "content": PROMPT}]
while True:
    text, calls = ask(history)
    if not calls:
        break
    made = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.function.name, "arguments": call.function.arguments},
        }
        for call in calls
    ]
    history.append({"role": "assistant", "content": text, "tool_calls": made})
    for call in calls:
        result = call_weather(call.function.arguments)
        history.append({"role": "tool", "tool_call_id": call.id, "content": result})
print_result(text, VARIANT)
