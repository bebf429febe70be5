"""The Anthropic SDK: messages, and the tool runner."""

import json
from collections.abc import Callable
from typing import Any

import anthropic
from harness import (
    MODEL,
    PROMPT,
    RETRIES,
    SCHEMA,
    STREAM,
    VARIANT,
    call_weather,
    get_weather,
    print_result,
)
from pydantic import BaseModel

if VARIANT == "bedrock":
    client: Any = anthropic.AnthropicBedrock(aws_region="eu-west-1", max_retries=RETRIES)
else:
    client = anthropic.Anthropic(max_retries=RETRIES)
TOOLS: Any = [{"name": "get_weather", "description": "The weather.", "input_schema": SCHEMA}]


class Weather(BaseModel):
    city: str
    degrees: int


def send(history: list[Any]) -> Any:
    options: dict[str, Any] = {
        "model": MODEL,
        "max_tokens": 100,
        "messages": history,
        "tools": TOOLS,
    }
    if VARIANT == "helper":
        with client.messages.stream(**options) as events:
            return events.get_final_message()
    if not STREAM:
        return client.messages.create(**options)
    return assemble(client.messages.create(**options, stream=True))


def assemble(events: Any) -> Any:
    """Return the message assembled from the raw events."""
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
                piece = getattr(delta, "text", None) or getattr(delta, "partial_json", "")
                pieces[event.index] = pieces.get(event.index, "") + piece
            case "message_delta":
                message.stop_reason = event.delta.stop_reason
            case _:
                pass
    for index, block in enumerate(message.content):
        if block.type == "text":
            block.text = pieces.get(index, "")
        elif block.type == "tool_use":
            block.input = json.loads(pieces.get(index) or "{}")
    return message


def messages() -> str:
    history: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        response = send(history)
        calls = [block for block in response.content if block.type == "tool_use"]
        if response.stop_reason != "tool_use":
            return "".join(block.text for block in response.content if block.type == "text")
        content = [block.model_dump(exclude_none=True) for block in response.content]
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": call_weather(call.input)}
            for call in calls
        ]
        history += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]


def parse() -> str:
    history: Any = [{"role": "user", "content": PROMPT}]
    response = client.messages.parse(
        model=MODEL, max_tokens=100, messages=history, output_format=Weather
    )
    return repr(response.parsed_output)


def runner() -> str:
    tool = anthropic.beta_tool(get_weather)
    options: Any = {"thread": False} if VARIANT == "runner-nothread" else {}
    response = client.beta.messages.tool_runner(
        model=MODEL,
        max_tokens=100,
        tools=[tool],
        messages=[{"role": "user", "content": PROMPT}],
        stream=STREAM,
        **options,
    )
    last: Any = response.until_done()
    return "".join(block.text for block in last.content if block.type == "text")


def other_endpoints() -> str:
    history: Any = [{"role": "user", "content": PROMPT}]
    assert client.models.list().data
    assert client.messages.count_tokens(model=MODEL, messages=history).input_tokens > 0
    response = client.messages.create(model=MODEL, max_tokens=100, messages=history)
    return "".join(block.text for block in response.content if block.type == "text")


VARIANTS: dict[str, Callable[[], str]] = {
    "messages": messages,
    "bedrock": messages,
    "helper": messages,
    "parse": parse,
    "runner": runner,
    "runner-nothread": runner,
    "misc": other_endpoints,
}
print_result(VARIANTS[VARIANT](), "anthropic")
