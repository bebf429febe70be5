"""A loop on litellm is a function of the prompt: nothing of it is known, and nothing has to be."""

import os

os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_API_KEY": "none"}
os.environ |= {"ANTHROPIC_API_KEY": "none", "GEMINI_API_KEY": "none"}

import asyncio
import json
from typing import Any

import litellm

from offbook import call, drive, say, when

TOOL = {
    "name": "find_order",
    "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}},
}


def loop(prompt: str, *, model: str, stream: bool, awaited: bool) -> str:
    said: list[Any] = [{"role": "user", "content": prompt}]
    tools = [{"type": "function", "function": TOOL}]
    while True:
        options: Any = {"model": model, "messages": said, "tools": tools, "stream": stream}
        made = asyncio.run(ask(options)) if awaited else litellm.completion(**options)
        if stream and not awaited:
            made = litellm.stream_chunk_builder(list(made))
        message = made.choices[0].message
        said.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content
        for one in message.tool_calls:
            number = json.loads(one.function.arguments)["number"]
            told = f"order {number}: one lamp"
            said.append({"role": "tool", "tool_call_id": one.id, "content": told})


async def ask(options: Any) -> Any:
    made = await litellm.acompletion(**options)
    return (
        litellm.stream_chunk_builder([chunk async for chunk in made]) if options["stream"] else made
    )


for model in ("openai/gpt-4o", "anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-pro"):
    for stream in (False, True):
        for awaited in (False, True):
            with drive(loop, model=model, stream=stream, awaited=awaited) as rehearsal:
                run = rehearsal.run(
                    when("Find order 7", [call("find_order", {"number": 7}), say("One lamp.")])
                )
                assert run.results("find_order")[0].text == "order 7: one lamp", model
                assert rehearsal.subject.result == run.text == "One lamp.", model
                assert not rehearsal.events.named("isolation.refused"), model
print("driven")
