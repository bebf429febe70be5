"""The heads of requests. A client sends the same one again and again: it is read once."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

import msgspec

END = b"\r\n\r\n"
CACHE_SIZE = 256
CACHED_HEAD_LIMIT = 8192
HOSTS = frozenset({"127.0.0.1", "localhost"})
UNCACHED_HEADERS = frozenset(
    {"expect", "transfer-encoding", "upgrade"}
)  # these ask for more than a look


class RequestHead(msgspec.Struct, frozen=True):
    """What was said before the body.

    `path` is that inside of the `run` whose name it began with; `local` tells whether the `host`
    is this machine, and no name that somebody points here; `length` is the body's.
    """

    method: str
    path: str
    query: str = ""
    headers: dict[str, str] = {}
    host: str = ""
    local: bool = True
    run: str = ""
    length: int = 0
    raw: bytes = b""


def parse_head(
    method: str, target: bytes, headers: dict[str, str], raw: bytes = b""
) -> RequestHead:
    """The head with these parts, as a parser found them."""
    given, _, query = target.partition(b"?")
    path = (unquote_to_bytes(given) if b"%" in given else given).decode("utf-8", "replace")
    run = ""
    if path.startswith("/s/"):
        run, slash, rest = path[3:].partition("/")
        path = slash + rest or "/"
    host = headers.get("host", "")
    name, _, port = host.partition(":")
    local = name.lower() in HOSTS and (not port or port.isdigit())
    length = int(headers.get("content-length", 0))
    return RequestHead(
        method, path, query.decode("latin-1"), headers, host, local, run, length, raw
    )


class HeadCache:
    """The latest heads, by their bytes."""

    def __init__(self) -> None:
        self._known: dict[bytes, RequestHead] = {}

    def find(self, raw: bytes) -> RequestHead | None:
        """The head of these bytes, if it was there before."""
        return self._known.get(raw)

    def keep(self, head: RequestHead) -> None:
        """Know it again, if its bytes say all about it: where it ends, and how its body comes."""
        raw = head.raw
        if len(raw) > CACHED_HEAD_LIMIT or not raw[:1].isalpha() or not raw.endswith(END):
            return
        if raw.count(b"\n") != raw.count(b"\r\n"):  # by other line ends, it may have ended before
            return
        if UNCACHED_HEADERS.isdisjoint(head.headers):
            if len(self._known) >= CACHE_SIZE:
                self._known.clear()
            self._known[raw] = head
