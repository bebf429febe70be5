"""An agent with a real client: `python command_clients.py CLIENT PROMPT`.

It prints each answer of the model, then the number of other connections that were refused.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from offbook.determinism import block_network

TOOL = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


def openai_chat(prompt: str) -> str:
    import openai

    client: Any = openai.OpenAI()
    tools = [{"type": "function", "function": {"name": "find_order", "parameters": TOOL}}]
    messages: list[Any] = [{"role": "user", "content": prompt}]
    while True:
        answer = client.chat.completions.create(model="gpt-5", messages=messages, tools=tools)
        reply = answer.choices[0].message
        if not reply.tool_calls:
            return reply.content
        messages.append(reply)
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": "it is blue"}
            for call in reply.tool_calls
        ]


def openai_stream(prompt: str) -> str:
    import openai

    client: Any = openai.OpenAI()
    messages = [{"role": "user", "content": prompt}]
    stream = client.chat.completions.create(model="gpt-5", messages=messages, stream=True)
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    return "|".join(filter(None, pieces))


def openai_responses(prompt: str) -> str:
    import openai

    client: Any = openai.OpenAI()
    first = client.responses.create(model="gpt-5", input=prompt, instructions="Be kind.")
    second = client.responses.create(
        model="gpt-5", input="And then?", previous_response_id=first.id, instructions="Be kind."
    )
    return f"{first.output_text} / {second.output_text}"


def anthropic_messages(prompt: str) -> str:
    import anthropic

    client: Any = anthropic.Anthropic()
    tools = [{"name": "find_order", "input_schema": TOOL}]
    messages: list[Any] = [{"role": "user", "content": prompt}]
    while True:
        answer = client.messages.create(
            model="claude-sonnet-4-5", max_tokens=99, messages=messages, tools=tools
        )
        calls = [block for block in answer.content if block.type == "tool_use"]
        if not calls:
            return answer.content[0].text
        messages.append({"role": "assistant", "content": answer.content})
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": "it is blue"}
            for call in calls
        ]
        messages.append({"role": "user", "content": results})


def anthropic_stream(prompt: str) -> str:
    import anthropic

    client: Any = anthropic.Anthropic()
    asked = {"model": "claude-sonnet-4-5", "max_tokens": 99}
    with client.messages.stream(**asked, messages=[{"role": "user", "content": prompt}]) as stream:
        return "|".join(stream.text_stream)


def gemini(prompt: str) -> str:
    from google import genai  # pyright: ignore[reportMissingTypeStubs] - it has none

    client: Any = genai.Client()
    return client.models.generate_content(model="gemini-2.5-pro", contents=prompt).text


def pydantic_ai(prompt: str) -> str:
    from pydantic_ai import Agent

    agent: Any = Agent("openai:gpt-5")

    @agent.tool_plain
    def find_order(id: int) -> str:  # noqa: A002 - the tool's parameter
        """Find an order."""
        return f"order {id} is blue"

    return asyncio.run(agent.run(prompt)).output


def pydantic_ai_stream(prompt: str) -> str:
    from pydantic_ai import Agent

    async def ask() -> str:
        agent: Any = Agent("openai-chat:gpt-5")
        async with agent.run_stream(prompt) as run:
            pieces = run.stream_text(delta=True, debounce_by=None)
            return "|".join([piece async for piece in pieces])

    return asyncio.run(ask())


# Those of one SDK are asked in one process: to import it takes longer than to ask.
CLIENTS = {
    "openai": (openai_chat, openai_stream, openai_responses),
    "anthropic": (anthropic_messages, anthropic_stream),
    "google_genai": (gemini,),
    "pydantic_ai": (pydantic_ai, pydantic_ai_stream),
}

if __name__ == "__main__":
    with block_network() as border:
        for ask in CLIENTS[sys.argv[1]]:
            print(f"{ask.__name__}: {ask(sys.argv[2])}")  # noqa: T201 - read by the test
    print(f"refused: {len(border.refused)}")  # noqa: T201 - as above
