"""Ollama's SDK: chats with tools, completions of a prompt, models and embeddings."""

from typing import Any

import ollama
from harness import MODEL, PROMPT, STREAM, VARIANT, get_weather, join_chunks, print_result

client = ollama.Client()


def chat() -> str:
    history: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        message = ask(history)
        history.append(message)
        if not message.tool_calls:
            return message.content or ""
        for call in message.tool_calls:
            result = get_weather(**call.function.arguments)
            history.append({"role": "tool", "tool_name": call.function.name, "content": result})


def ask(history: list[Any]) -> ollama.Message:
    if not STREAM:
        return client.chat(MODEL, history, tools=[get_weather]).message
    content, calls = "", list[Any]()
    for part in client.chat(MODEL, history, tools=[get_weather], stream=True):
        content += part.message.content or ""
        calls += part.message.tool_calls or ()
    return ollama.Message(role="assistant", content=content, tool_calls=calls or None)


def generate() -> str:
    if STREAM:
        return join_chunks(part.response for part in client.generate(MODEL, PROMPT, stream=True))
    assert client.list().models
    assert client.show(MODEL).modelinfo
    assert client.generate(MODEL).done_reason == "load"
    one, two = client.embed(MODEL, ["a", "b"]).embeddings
    assert one != two
    assert len(client.embeddings(MODEL, "a").embedding) == len(one)
    return client.generate(MODEL, PROMPT).response


print_result((chat if VARIANT == "chat" else generate)(), "ollama")
