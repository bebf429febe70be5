"""google-genai, with automatic function calling."""

import asyncio
from typing import Any

from google import genai
from google.genai import types
from harness import (
    GOOGLE,
    MODEL,
    PROMPT,
    SCHEMA,
    STREAM,
    VARIANT,
    get_weather,
    join_chunks,
    print_result,
)

client = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=GOOGLE))
models = client.models
config: Any = {"tools": [get_weather]}


def automatic() -> str | None:
    if not STREAM:
        return models.generate_content(model=MODEL, contents=PROMPT, config=config).text
    chat = client.chats.create(model=MODEL, config=config)
    return join_chunks(chunk.text for chunk in chat.send_message_stream(PROMPT))


def other_endpoints() -> str | None:
    assert list(models.list())
    assert models.count_tokens(model=MODEL, contents=PROMPT).total_tokens
    assert models.embed_content(model=MODEL, contents=["a", "b"]).embeddings
    return models.generate_content(model=MODEL, contents=PROMPT).text


async def live() -> str:
    """Talk to the real host, whose requests the proxy of the run answers: it insists on TLS."""
    options = types.HttpOptions(base_url="https://generativelanguage.googleapis.com")
    live_client: Any = genai.Client(api_key="none", http_options=options)
    function = {"name": "get_weather", "parameters_json_schema": SCHEMA}
    setup: Any = {
        "response_modalities": ["TEXT"],
        "tools": [{"function_declarations": [function]}],
    }
    text = ""
    async with live_client.aio.live.connect(model=MODEL, config=setup) as session:
        turn = {"role": "user", "parts": [{"text": PROMPT}]}
        await session.send_client_content(turns=turn, turn_complete=True)
        async for message in session.receive():
            text += message.text or ""
            for call in message.tool_call.function_calls if message.tool_call else ():
                result = types.FunctionResponse(
                    id=call.id, name=call.name, response={"result": get_weather(**call.args)}
                )
                await session.send_tool_response(function_responses=[result])
    return text


if VARIANT == "live":
    print_result(asyncio.run(live()), "google-genai")
else:
    print_result((other_endpoints if VARIANT == "misc" else automatic)(), "google-genai")
