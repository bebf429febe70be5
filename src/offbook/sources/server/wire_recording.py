"""Records the bytes of exchanges in the trace: the requests of clients, and their responses.

One event `model.wire` for each exchange has both sides, without secrets and of limited size. A head
is rendered from the parsed headers, with their names in lower case. The framing of chunks is left
out.
"""

from __future__ import annotations

from base64 import b64encode
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from offbook.secrets import (
    MASK,
    hide_bytes,
    is_secret_name,
    known_secret_bytes,
    remember_credentials,
)
from offbook.secrets.masks import hide_parts
from offbook.sources.server.connection import render_head
from offbook.trace.events import UNSET, WireData

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
    from offbook.trace.hub import Hub

MAX_BYTES = 64 * 1024  # of each side; the middle of a longer one is left out
SECRET_PARAMETERS = {"key", "sig", "signature"}  # of a query, in addition to the usual names


class WireExchange:
    """One request, and the bytes that answer it; `exchange` is its id in the trace, if it has one.

    A WebSocket message has no head: it is the `message`.
    """

    def __init__(self, hub: Hub, request: HttpRequest, message: bytes | None = None) -> None:
        remember_credentials(request.headers)
        self.exchange = ""
        self._hub = hub
        self._request = _request_bytes(request) if message is None else message

    def record(self, response: HttpResponse) -> HttpResponse:
        """Emit a response and return it; a stream in progress is emitted at its end."""
        if response.live_chunks is not None:
            live = self.follow(response.live_chunks, _head_bytes(response))
            return msgspec.structs.replace(response, live_chunks=live)
        # Without a chunk, a response that breaks off has no head either.
        sent = not response.ending or response.chunks
        body = b"".join((response.body, *response.chunks))
        self.emit(_head_bytes(response) + body if sent else b"", response.ending)
        return response

    async def follow(
        self, chunks: AsyncIterator[bytes], head: bytes = b"", *, separator: bytes = b""
    ) -> AsyncIterator[bytes]:
        """Yield the chunks of a response in progress; emit what was sent at its end."""
        sent: list[bytes] = []
        ending = "reset"
        try:
            async for chunk in chunks:
                sent.append(chunk)
                yield chunk
            ending = ""
        finally:
            self.emit(head + separator.join(sent), ending)

    def emit(self, response: bytes, ending: str = "") -> None:
        """Emit both sides; `ending` is what came in place of the end of the response."""
        sides = _limit(self._request), _limit(response)
        self._hub.emit_data(WireData(*sides, self.exchange or UNSET, ending or UNSET))


def _request_bytes(request: HttpRequest) -> bytes:
    query = parse_qsl(request.query, keep_blank_values=True)
    shown = [
        (name, MASK if name.lower() in SECRET_PARAMETERS or is_secret_name(name) else value)
        for name, value in query
    ]
    target = f"{request.path}?{urlencode(shown, safe='[]')}" if query else request.path
    lines = "".join(f"{name}: {_hide(name, text)}\r\n" for name, text in request.headers.items())
    head = f"{request.method} {target} HTTP/1.1\r\n{lines}\r\n"
    return head.encode("latin-1", "replace") + request.body


def _head_bytes(response: HttpResponse) -> bytes:
    headers = {name: _hide(name, text) for name, text in response.headers.items()}
    return render_head(msgspec.structs.replace(response, headers=headers), "")


def _hide(name: str, value: str) -> str:
    return MASK if is_secret_name(name) else value


def _limit(raw: bytes) -> dict[str, Any]:
    """Return bytes for JSON, without secrets. Of long ones, the `start` and the `end`."""
    known = known_secret_bytes()
    # before they are cut: half a secret is not recognised
    hidden = hide_bytes(_hide_split(raw, known), known)
    half = MAX_BYTES // 2
    is_long = len(hidden) > MAX_BYTES
    parts = {"start": hidden[:half], "end": hidden[-half:]} if is_long else {"start": hidden}
    try:
        hidden.decode()
    except UnicodeDecodeError:
        encoded = {name: b64encode(part).decode() for name, part in parts.items()}
        return {"size": len(raw), "encoding": "base64", **encoded}
    # A character at a cut is left out.
    texts = {name: part.decode("utf-8", "ignore") for name, part in parts.items()}
    return {"size": len(raw), **texts}


def _hide_split(raw: bytes, known: tuple[bytes, ...]) -> bytes:
    """Return a stream of JSON objects without the secrets that are split over their texts.

    The texts of one field, such as `choices.0.delta.content`, are parts of one text.
    """
    lines = raw.split(b"\n")
    objects: dict[int, Any] = {}
    fields: dict[str, list[tuple[int, Any, Any]]] = {}  # the lines, objects and keys of its texts
    for number, line in enumerate(lines):
        prefix, brace, _ = line.partition(b"{")
        if not brace or prefix.strip() not in {b"", b"data:"}:
            continue
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            objects[number] = msgspec.json.decode(line[len(prefix) :])
            for path, holder, key in _texts(objects[number]):
                fields.setdefault(path, []).append((number, holder, key))
    changed: set[int] = set()
    for places in fields.values():
        parts = [holder[key].encode() for _, holder, key in places]
        if len({*parts}) > 1:  # an id is in every object
            for (number, holder, key), part, hidden in zip(
                places, parts, hide_parts(parts, known, MASK.encode()), strict=True
            ):
                if hidden is not part:
                    holder[key] = hidden.decode()
                    changed.add(number)
    for number in changed:
        prefix, _, rest = lines[number].partition(b"{")
        lines[number] = prefix + msgspec.json.encode(objects[number]) + b"\r" * rest.endswith(b"\r")
    return b"\n".join(lines) if changed else raw


def _texts(value: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the path of each text in a JSON value, and where it is: its object or list, its key."""
    keys: Iterable[Any] = value if hasattr(value, "keys") else range(len(value))
    for key in keys:
        if isinstance(value[key], str):
            yield f"{path}.{key}", value, key
        elif isinstance(value[key], (dict, list)):
            yield from _texts(value[key], f"{path}.{key}")
