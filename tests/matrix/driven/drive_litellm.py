"""A loop on litellm is driven as a function of the prompt, without an adapter."""

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
    history: list[Any] = [{"role": "user", "content": prompt}]
    tools = [{"type": "function", "function": TOOL}]
    while True:
        options: Any = {"model": model, "messages": history, "tools": tools, "stream": stream}
        response = asyncio.run(complete(options)) if awaited else litellm.completion(**options)
        if stream and not awaited:
            response = litellm.stream_chunk_builder(list(response))
        message = response.choices[0].message
        history.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content
        for tool_call in message.tool_calls:
            number = json.loads(tool_call.function.arguments)["number"]
            result = f"order {number}: one lamp"
            history.append({"role": "tool", "tool_call_id": tool_call.id, "content": result})


async def complete(options: Any) -> Any:
    response = await litellm.acompletion(**options)
    return (
        litellm.stream_chunk_builder([chunk async for chunk in response])
        if options["stream"]
        else response
    )


for model in ("openai/gpt-4o", "anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-pro"):
    for stream in (False, True):
        for awaited in (False, True):
            with drive(loop, model=model, stream=stream, awaited=awaited) as rehearsal:
                run = rehearsal.run(
                    when("Find order 7", [call("find_order", {"number": 7}), say("One lamp.")])
                )
                assert run.results("find_order")[0].text == "order 7: one lamp", model
                assert rehearsal.subject.result == run.output == "One lamp.", model
                assert not rehearsal.events.named("isolation.refused"), model
print("driven")
