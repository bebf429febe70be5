"""What every script here does alike: its arguments, its tool, and the line that tells what came."""

import json
import os
import sys
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

VARIANT, WAY, PROMPT = sys.argv[1:4]
STREAM = WAY == "stream"
OPENAI, ANTHROPIC = os.environ["OPENAI_BASE_URL"], os.environ["ANTHROPIC_BASE_URL"]
GOOGLE = os.environ["GOOGLE_GEMINI_BASE_URL"]
MODEL = "offbook-1"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def get_weather(city: str) -> str:
    """How the weather is in a city.

    Args:
        city: The name of the city.
    """
    return f"21 degrees in {city}"


def answer(arguments: str | dict[str, Any]) -> str:
    """What the tool says to the arguments of a call."""
    given = json.loads(arguments) if isinstance(arguments, str) else arguments
    return get_weather(**given)


def tell(text: object, *packages: str, **more: object) -> None:
    """Print what the client understood, and which versions it is made of."""
    more.setdefault("versions", " ".join(f"{name} {version(name)}" for name in packages))
    print()  # some have left their own words in the line
    print(json.dumps({"text": text, **more}), flush=True)


def joined(pieces: Iterable[str | None]) -> str:
    """The pieces of a stream."""
    return "".join(filter(None, pieces))
