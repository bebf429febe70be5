"""What the model answers, piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.exchange.dialects.dialect import Answer
from offbook.exchange.messages import JSON
from offbook.exchange.pieces import cut_reply, cut_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offbook.exchange.reply import Reply

from offbook.exchange.dialects.gemini.encode import FINISHES, write_parts
from offbook.exchange.messages import to_json


def answer_stream(reply: Reply, tail: bytes, *, array: bool) -> Answer:
    """The response in pieces; the last one tells why it ended."""
    groups = list(_cut(reply))
    last = len(groups) - 1
    finish = b'"finishReason":%b' % to_json(FINISHES[reply.stop])
    results = [
        b'{"candidates":[{"content":{"parts":%b,"role":"model"},"index":0%b}],%b'
        % (to_json(parts), b"," + finish if at == last else b"", tail)
        for at, parts in enumerate(groups)
    ]
    if array:
        headers = {"content-type": "application/json; charset=UTF-8"}
        chunks = [b"[" + results[0], *(b",\r\n" + result for result in results[1:]), b"]"]
        return Answer(200, headers, b"", tuple(chunks))
    headers = {"content-type": "text/event-stream", "cache-control": "no-cache"}
    return Answer(200, headers, b"", tuple(b"data: %b\r\n\r\n" % result for result in results))


def _cut(reply: Reply) -> Iterator[list[JSON]]:
    """The parts of each piece: texts come bit by bit, calls whole and together."""
    calls: list[JSON] = []
    some = False
    for part in write_parts(reply.blocks):
        some = True
        if "functionCall" in part:
            calls.append(part)
            continue
        if calls:
            yield calls
            calls = []
        yield from _cut_part(part, reply)
    if calls:
        yield calls
    if not some:
        yield [{"text": ""}]


def _cut_part(part: JSON, reply: Reply) -> Iterator[list[JSON]]:
    text = part.get("text", "")
    pieces = cut_words(text) if "thought" in part else cut_reply(reply, text)
    if not pieces:
        yield [part]
        return
    *others, last = pieces
    about = {"thought": True} if "thought" in part else {}
    for piece in others:
        yield [{"text": piece, **about}]
    yield [{**part, "text": last}]
