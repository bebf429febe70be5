"""Anthropic's own client: messages, and its tool runner."""

import json
from collections.abc import Callable
from typing import Any

import anthropic
from pydantic import BaseModel
from told import MODEL, PROMPT, SCHEMA, STREAM, VARIANT, answer, get_weather, tell

client = anthropic.Anthropic(max_retries=0)
TOOLS: Any = [{"name": "get_weather", "description": "The weather.", "input_schema": SCHEMA}]


class Weather(BaseModel):
    city: str
    degrees: int


def ask(said: list[Any]) -> Any:
    options: dict[str, Any] = {"model": MODEL, "max_tokens": 100, "messages": said, "tools": TOOLS}
    if VARIANT == "helper":
        with client.messages.stream(**options) as events:
            return events.get_final_message()
    if not STREAM:
        return client.messages.create(**options)
    return gather(client.messages.create(**options, stream=True))


def gather(events: Any) -> Any:
    """The message that the raw events tell."""
    message: Any = None
    pieces: dict[int, str] = {}
    for event in events:
        match event.type:
            case "message_start":
                message = event.message
            case "content_block_start":
                message.content.append(event.content_block)
            case "content_block_delta":
                delta = event.delta
                said = getattr(delta, "text", None) or getattr(delta, "partial_json", "")
                pieces[event.index] = pieces.get(event.index, "") + said
            case "message_delta":
                message.stop_reason = event.delta.stop_reason
            case _:
                pass
    for at, block in enumerate(message.content):
        if block.type == "text":
            block.text = pieces.get(at, "")
        elif block.type == "tool_use":
            block.input = json.loads(pieces.get(at) or "{}")
    return message


def messages() -> str:
    said: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        made = ask(said)
        calls = [block for block in made.content if block.type == "tool_use"]
        if made.stop_reason != "tool_use":
            return "".join(block.text for block in made.content if block.type == "text")
        content = [block.model_dump(exclude_none=True) for block in made.content]
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": answer(call.input)}
            for call in calls
        ]
        said += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]


def parse() -> str:
    said: Any = [{"role": "user", "content": PROMPT}]
    made = client.messages.parse(model=MODEL, max_tokens=100, messages=said, output_format=Weather)
    return repr(made.parsed_output)


def runner() -> str:
    tool = anthropic.beta_tool(get_weather)
    options: Any = {"thread": False} if VARIANT == "runner-nothread" else {}
    made = client.beta.messages.tool_runner(
        model=MODEL,
        max_tokens=100,
        tools=[tool],
        messages=[{"role": "user", "content": PROMPT}],
        stream=STREAM,
        **options,
    )
    last: Any = made.until_done()
    return "".join(block.text for block in last.content if block.type == "text")


def misc() -> str:
    said: Any = [{"role": "user", "content": PROMPT}]
    assert client.models.list().data
    assert client.messages.count_tokens(model=MODEL, messages=said).input_tokens > 0
    made = client.messages.create(model=MODEL, max_tokens=100, messages=said)
    return "".join(block.text for block in made.content if block.type == "text")


WAYS: dict[str, Callable[[], str]] = {
    "messages": messages,
    "helper": messages,
    "parse": parse,
    "runner": runner,
    "runner-nothread": runner,
    "misc": misc,
}
tell(WAYS[VARIANT](), "anthropic")
