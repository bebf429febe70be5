"""litellm, as it speaks to every provider."""

import asyncio
from typing import Any

import litellm
from told import ANTHROPIC, GOOGLE, OPENAI, PROMPT, SCHEMA, STREAM, VARIANT, answer, tell

MODELS = {
    "openai": ("openai/offbook-1", OPENAI),
    "anthropic": ("anthropic/offbook-1", ANTHROPIC),
    "gemini": ("gemini/offbook-1", f"{GOOGLE}/v1beta"),
}
TOOL = {"name": "get_weather", "description": "The weather.", "parameters": SCHEMA}


def complete() -> str:
    model, base = MODELS[VARIANT]
    said: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        made: Any = litellm.completion(
            model=model,
            api_base=base,
            api_key="none",
            messages=said,
            tools=[{"type": "function", "function": TOOL}],
            stream=STREAM,
        )
        if STREAM:
            made = litellm.stream_chunk_builder(list(made), messages=said)
        message = made.choices[0].message
        said.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            told = answer(call.function.arguments)
            said.append({"role": "tool", "tool_call_id": call.id, "content": told})


async def respond() -> str:
    said: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        made: Any = await litellm.aresponses(
            model="openai/gpt-4o",  # of a model that it does not know, it makes the stream up
            api_base=OPENAI,
            api_key="none",
            input=said,
            tools=[{"type": "function", **TOOL}],
            stream=STREAM,
        )
        if STREAM:
            async for event in made:
                made = getattr(event, "response", made)
        items = [item if isinstance(item, dict) else item.model_dump() for item in made.output]
        calls = [item for item in items if item["type"] == "function_call"]
        if not calls:
            return "".join(part["text"] for item in items for part in item.get("content") or ())
        said += calls
        for call in calls:
            told = answer(call["arguments"])
            output = {"call_id": call["call_id"], "output": told}
            said.append({"type": "function_call_output", **output})


def embed() -> str:
    options = {"model": "openai/offbook-1", "api_base": OPENAI, "api_key": "none"}
    one, two = litellm.embedding(input=["a", "b"], **options).data
    assert one["embedding"] != two["embedding"]
    made: Any = litellm.completion(messages=[{"role": "user", "content": PROMPT}], **options)
    return made.choices[0].message.content


def main() -> str:
    if VARIANT == "embedding":
        return embed()
    return asyncio.run(respond()) if VARIANT == "responses" else complete()


tell(main(), "litellm")
