"""Several choices where a request wants them: the same reply under each number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from offbook.exchange import sse
from offbook.exchange.messages import JSON, to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST = 128
_decode = msgspec.json.Decoder(JSON).decode


def count_choices(parameters: JSON) -> int:
    """How many choices a request wants, as far as OpenAI gives them."""
    wanted = parameters.get("n")
    return wanted if isinstance(wanted, int) and 1 < wanted <= MOST else 1


def repeat_choice(completion: bytes, count: int) -> bytes:
    """The completion with its choice so many times."""
    whole = _decode(completion)
    (choice,) = whole["choices"]
    return to_json({**whole, "choices": [{**choice, "index": at} for at in range(count)]})


def repeat_events(events: Iterable[bytes], count: int) -> Iterator[bytes]:
    """The events, each choice in so many of them."""
    for event in events:
        data = event.removeprefix(b"data: ")
        chunk = _decode(data) if data.startswith(b"{") else {}
        if not chunk.get("choices"):
            yield event
            continue
        for at in range(count):
            (choice,) = chunk["choices"]
            yield sse.frame(to_json({**chunk, "choices": [{**choice, "index": at}]}))
