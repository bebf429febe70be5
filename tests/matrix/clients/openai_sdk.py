"""OpenAI's own client: chat completions and responses, in every way that it has."""

from collections.abc import Callable
from typing import Any

import openai
from pydantic import BaseModel
from told import MODEL, PROMPT, SCHEMA, STREAM, VARIANT, answer, joined, tell

client = openai.OpenAI(max_retries=0)
ABOUT = {"name": "get_weather", "description": "How the weather is.", "parameters": SCHEMA}
CHAT: Any = [{"type": "function", "function": ABOUT}]
RESPONSES: Any = [{"type": "function", "strict": False, **ABOUT}]


class Weather(BaseModel):
    city: str
    degrees: int


def chat() -> str:
    said: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        message = (chat_stream if STREAM else chat_plain)(said)
        said.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        said += [
            {
                "role": "tool",
                "tool_call_id": call["id"],
                "content": answer(call["function"]["arguments"]),
            }
            for call in message["tool_calls"]
        ]


def chat_plain(said: list[Any]) -> dict[str, Any]:
    made = client.chat.completions.create(model=MODEL, messages=said, tools=CHAT)
    return made.choices[0].message.model_dump(exclude_none=True)


def chat_stream(said: list[Any]) -> dict[str, Any]:
    content, calls = "", dict[int, dict[str, Any]]()
    with client.chat.completions.create(
        model=MODEL, messages=said, tools=CHAT, stream=True, stream_options={"include_usage": True}
    ) as chunks:
        for chunk in chunks:
            for choice in chunk.choices:
                content += choice.delta.content or ""
                for part in choice.delta.tool_calls or ():
                    call = calls.setdefault(part.index, {"type": "function", "function": {}})
                    call["id"] = call.get("id") or part.id
                    function = part.function
                    for key in ("name", "arguments"):
                        piece = getattr(function, key, None) or ""
                        call["function"][key] = call["function"].get(key, "") + piece
    made = {"role": "assistant", "content": content}
    return {**made, "tool_calls": list(calls.values())} if calls else made


def helper() -> str:
    said: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        with client.chat.completions.stream(model=MODEL, messages=said, tools=CHAT) as events:
            message = events.get_final_completion().choices[0].message
        said.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        if not message.tool_calls:
            return message.content or ""
        for call in message.tool_calls:
            told = answer(call.function.arguments)
            said.append({"role": "tool", "tool_call_id": call.id, "content": told})


def parse() -> str:
    said: Any = [{"role": "user", "content": PROMPT}]
    made = client.chat.completions.parse(model=MODEL, messages=said, response_format=Weather)
    return repr(made.choices[0].message.parsed)


def respond(said: Any, previous: Any) -> Any:
    options: dict[str, Any] = {"model": MODEL, "input": said, "tools": RESPONSES}
    if previous is not None:
        options["previous_response_id"] = previous.id
    if VARIANT == "responses-helper":
        with client.responses.stream(**options) as events:
            return events.get_final_response()
    if not STREAM:
        return client.responses.create(**options)
    last = None
    for event in client.responses.create(**options, stream=True):
        last = getattr(event, "response", last)
    return last


def responses() -> str:
    """The conversation is sent again, or the response before is named."""
    said: list[Any] = [{"role": "user", "content": PROMPT}]
    previous = None
    while True:
        made = respond(said, previous)
        calls = [item for item in made.output if item.type == "function_call"]
        if not calls:
            return made.output_text
        results = [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": answer(call.arguments),
            }
            for call in calls
        ]
        if VARIANT == "previous":
            assert client.responses.retrieve(made.id).id == made.id
            said, previous = results, made
        else:
            said += [item.model_dump(exclude_none=True) for item in made.output] + results


def responses_parse() -> str:
    made = client.responses.parse(model=MODEL, input=PROMPT, text_format=Weather)
    return repr(made.output_parsed)


def websocket() -> str:
    said: Any = PROMPT
    options: dict[str, Any] = {"model": MODEL, "tools": RESPONSES}
    with client.responses.connect() as connection:
        while True:
            connection.response.create(input=said, **options)
            made = next(e.response for e in connection if e.type == "response.completed")
            calls = [item for item in made.output if item.type == "function_call"]
            if not calls:
                return made.output_text
            options["previous_response_id"] = made.id
            said = [
                {
                    "type": "function_call_output",
                    "call_id": call.call_id,
                    "output": answer(call.arguments),
                }
                for call in calls
            ]


def misc() -> str:
    assert client.models.list().data
    one, two = client.embeddings.create(model=MODEL, input=["a", "b"]).data
    assert one.embedding != two.embedding
    made = client.responses.create(model=MODEL, input=PROMPT)
    return joined([made.output_text])


WAYS: dict[str, Callable[[], str]] = {
    "chat": chat,
    "chat-helper": helper,
    "chat-parse": parse,
    "responses": responses,
    "responses-helper": responses,
    "responses-parse": responses_parse,
    "previous": responses,
    "websocket": websocket,
    "misc": misc,
}
tell(WAYS[VARIANT](), "openai")
