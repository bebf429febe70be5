"""The OpenAI SDK: chat completions and responses, with every method."""

from collections.abc import Callable
from typing import Any

import openai
from harness import (
    MODEL,
    PROMPT,
    RETRIES,
    SCHEMA,
    STREAM,
    VARIANT,
    call_weather,
    join_chunks,
    print_result,
)
from pydantic import BaseModel

client = openai.OpenAI(max_retries=RETRIES)
TOOL = {"name": "get_weather", "description": "Get the weather.", "parameters": SCHEMA}
CHAT_TOOLS: Any = [{"type": "function", "function": TOOL}]
SHORT_TOOL: Any = {"type": "function", **TOOL}
RESPONSES_TOOLS: Any = [{"type": "function", "strict": False, **TOOL}]


class Weather(BaseModel):
    city: str
    degrees: int


def chat() -> str:
    history: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        message = (chat_stream if STREAM else chat_plain)(history)
        history.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        history += [
            {
                "role": "tool",
                "tool_call_id": call["id"],
                "content": call_weather(call["function"]["arguments"]),
            }
            for call in message["tool_calls"]
        ]


def chat_plain(history: list[Any]) -> dict[str, Any]:
    response = client.chat.completions.create(model=MODEL, messages=history, tools=CHAT_TOOLS)
    return response.choices[0].message.model_dump(exclude_none=True)


def chat_stream(history: list[Any]) -> dict[str, Any]:
    content, calls = "", dict[int, dict[str, Any]]()
    with client.chat.completions.create(
        model=MODEL,
        messages=history,
        tools=CHAT_TOOLS,
        stream=True,
        stream_options={"include_usage": True},
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
    response = {"role": "assistant", "content": content}
    return {**response, "tool_calls": list(calls.values())} if calls else response


def chat_helper() -> str:
    history: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        with client.chat.completions.stream(
            model=MODEL, messages=history, tools=CHAT_TOOLS
        ) as events:
            message = events.get_final_completion().choices[0].message
        history.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        if not message.tool_calls:
            return message.content or ""
        for call in message.tool_calls:
            result = call_weather(call.function.arguments)
            history.append({"role": "tool", "tool_call_id": call.id, "content": result})


def chat_parse() -> str:
    history: Any = [{"role": "user", "content": PROMPT}]
    response = client.chat.completions.parse(model=MODEL, messages=history, response_format=Weather)
    return repr(response.choices[0].message.parsed)


def respond(history: Any, previous: Any) -> Any:
    options: dict[str, Any] = {"model": MODEL, "input": history, "tools": RESPONSES_TOOLS}
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
    """Send the whole conversation, or only the id of the previous response."""
    history: list[Any] = [{"role": "user", "content": PROMPT}]
    previous = None
    while True:
        response = respond(history, previous)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response.output_text
        results = [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": call_weather(call.arguments),
            }
            for call in calls
        ]
        if VARIANT == "previous":
            assert client.responses.retrieve(response.id).id == response.id
            history, previous = results, response
        else:
            history += [item.model_dump(exclude_none=True) for item in response.output] + results


def responses_parse() -> str:
    response = client.responses.parse(model=MODEL, input=PROMPT, text_format=Weather)
    return repr(response.output_parsed)


def websocket() -> str:
    history: Any = PROMPT
    options: dict[str, Any] = {"model": MODEL, "tools": RESPONSES_TOOLS}
    with client.responses.connect() as connection:
        while True:
            connection.response.create(input=history, **options)
            response = next(e.response for e in connection if e.type == "response.completed")
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return response.output_text
            options["previous_response_id"] = response.id
            history = [
                {
                    "type": "function_call_output",
                    "call_id": call.call_id,
                    "output": call_weather(call.arguments),
                }
                for call in calls
            ]


def realtime() -> str:
    with client.realtime.connect(model=MODEL) as connection:
        session: Any = {"type": "realtime", "output_modalities": ["text"], "tools": [SHORT_TOOL]}
        connection.session.update(session=session)
        content: Any = [{"type": "input_text", "text": PROMPT}]
        item: Any = {"type": "message", "role": "user", "content": content}
        while True:
            connection.conversation.item.create(item=item)
            connection.response.create()
            done = next(event for event in connection if event.type == "response.done")
            output: Any = (done.response.output or [])[0]
            if output.type != "function_call":
                return output.content[0].text
            result = call_weather(output.arguments)
            item = {"type": "function_call_output", "call_id": output.call_id, "output": result}


def other_endpoints() -> str:
    assert client.models.list().data
    one, two = client.embeddings.create(model=MODEL, input=["a", "b"]).data
    assert one.embedding != two.embedding
    response = client.responses.create(model=MODEL, input=PROMPT)
    return join_chunks([response.output_text])


VARIANTS: dict[str, Callable[[], str]] = {
    "chat": chat,
    "chat-helper": chat_helper,
    "chat-parse": chat_parse,
    "responses": responses,
    "responses-helper": responses,
    "responses-parse": responses_parse,
    "previous": responses,
    "websocket": websocket,
    "realtime": realtime,
    "misc": other_endpoints,
}
print_result(VARIANTS[VARIANT](), "openai")
