"""google-genai, with a function that it calls by itself."""

from typing import Any

from google import genai
from google.genai import types
from told import GOOGLE, MODEL, PROMPT, STREAM, VARIANT, get_weather, joined, tell

client = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=GOOGLE))
models = client.models
config: Any = {"tools": [get_weather]}


def auto() -> str | None:
    if not STREAM:
        return models.generate_content(model=MODEL, contents=PROMPT, config=config).text
    chat = client.chats.create(model=MODEL, config=config)
    return joined(chunk.text for chunk in chat.send_message_stream(PROMPT))


def misc() -> str | None:
    assert list(models.list())
    assert models.count_tokens(model=MODEL, contents=PROMPT).total_tokens
    assert models.embed_content(model=MODEL, contents=["a", "b"]).embeddings
    return models.generate_content(model=MODEL, contents=PROMPT).text


tell((misc if VARIANT == "misc" else auto)(), "google-genai")
