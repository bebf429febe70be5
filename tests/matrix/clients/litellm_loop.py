"""A loop on litellm, for every provider."""

import asyncio
from typing import Any

import litellm
from harness import (
    ANTHROPIC,
    GOOGLE,
    OPENAI,
    PROMPT,
    SCHEMA,
    STREAM,
    VARIANT,
    call_weather,
    print_result,
)

MODELS = {
    "openai": ("openai/offbook-1", OPENAI),
    "anthropic": ("anthropic/offbook-1", ANTHROPIC),
    "gemini": ("gemini/offbook-1", f"{GOOGLE}/v1beta"),
}
TOOL = {"name": "get_weather", "description": "The weather.", "parameters": SCHEMA}


def complete() -> str:
    model, base = MODELS[VARIANT]
    history: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        response: Any = litellm.completion(
            model=model,
            api_base=base,
            api_key="none",
            messages=history,
            tools=[{"type": "function", "function": TOOL}],
            stream=STREAM,
        )
        if STREAM:
            response = litellm.stream_chunk_builder(list(response), messages=history)
        message = response.choices[0].message
        history.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            result = call_weather(call.function.arguments)
            history.append({"role": "tool", "tool_call_id": call.id, "content": result})


async def respond() -> str:
    history: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        response: Any = await litellm.aresponses(
            model="openai/gpt-4o",  # litellm fakes the stream of a model that it does not know
            api_base=OPENAI,
            api_key="none",
            input=history,
            tools=[{"type": "function", **TOOL}],
            stream=STREAM,
        )
        if STREAM:
            async for event in response:
                response = getattr(event, "response", response)
        items = [item if isinstance(item, dict) else item.model_dump() for item in response.output]
        calls = [item for item in items if item["type"] == "function_call"]
        if not calls:
            return "".join(part["text"] for item in items for part in item.get("content") or ())
        history += calls
        for call in calls:
            result = call_weather(call["arguments"])
            output = {"call_id": call["call_id"], "output": result}
            history.append({"type": "function_call_output", **output})


def embed() -> str:
    options = {"model": "openai/offbook-1", "api_base": OPENAI, "api_key": "none"}
    one, two = litellm.embedding(input=["a", "b"], **options).data
    assert one["embedding"] != two["embedding"]
    response: Any = litellm.completion(messages=[{"role": "user", "content": PROMPT}], **options)
    return response.choices[0].message.content


def main() -> str:
    if VARIANT == "embedding":
        return embed()
    return asyncio.run(respond()) if VARIANT == "responses" else complete()


print_result(main(), "litellm")
