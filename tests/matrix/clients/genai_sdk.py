"""google-genai, with automatic function calling."""

from typing import Any

from google import genai
from google.genai import types
from harness import GOOGLE, MODEL, PROMPT, STREAM, VARIANT, get_weather, join_chunks, print_result

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


print_result((other_endpoints if VARIANT == "misc" else automatic)(), "google-genai")
