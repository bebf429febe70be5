"""The arguments, the tool and the result line of every script here."""

import json
import os
import sys
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

VARIANT, MODE, PROMPT = sys.argv[1:4]
STREAM = MODE == "stream"
OPENAI, ANTHROPIC = os.environ["OPENAI_BASE_URL"], os.environ["ANTHROPIC_BASE_URL"]
GOOGLE = os.environ["GOOGLE_GEMINI_BASE_URL"]
MODEL = "offbook-1"
RETRIES = int(os.environ.get("RETRIES", "0"))  # bench/checkup_matrix.py: the default of the SDKs
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def get_weather(city: str) -> str:
    """Get the weather in a city.

    Args:
        city: The name of the city.
    """
    return f"21 degrees in {city}"


def call_weather(arguments: str | dict[str, Any]) -> str:
    """Return the result of the tool for the arguments of a call."""
    parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
    return get_weather(**parsed)


def print_result(text: object, *packages: str, **fields: object) -> None:
    """Print the text that the client received, and the versions of its packages."""
    fields.setdefault("versions", " ".join(f"{name} {version(name)}" for name in packages))
    print()  # some clients leave an unfinished line
    print(json.dumps({"text": text, **fields}), flush=True)


def join_chunks(chunks: Iterable[str | None]) -> str:
    """Join the texts of a stream."""
    return "".join(filter(None, chunks))
