"""The arguments of a tool call, where a provider writes them as a text.

A model can write what is no JSON object. Such a text is kept as it is, under `RAW`, and goes out
as it came: so it can be recorded, and scripted too.
"""

from __future__ import annotations

import msgspec

from offbook.exchange.messages import JSON, to_json

RAW = "$raw"

_decode = msgspec.json.Decoder(dict).decode


def read_arguments(text: str) -> JSON:
    """The arguments in this text."""
    if not text:
        return {}
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return {RAW: text}


def write_arguments(arguments: JSON) -> str:
    """The text of these arguments."""
    raw = arguments.get(RAW)
    if isinstance(raw, str) and len(arguments) == 1:
        return raw
    return to_json(arguments).decode()


def read_input(text: str) -> JSON:
    """The arguments of a call of a custom tool, which takes a text and no JSON."""
    return {"input": text}


def write_input(arguments: JSON) -> str:
    """The text for a custom tool: its only argument, or all of them as JSON."""
    if len(arguments) == 1:
        (only,) = arguments.values()
        if isinstance(only, str):
            return only
    return write_arguments(arguments)
