"""Passes the messages of an MCP client on stdin and stdout to a server over HTTP, and back.

    python stdio_bridge.py http://127.0.0.1:4000/s/…

It imports nothing but the standard library: clients wait for it at every start.
"""

from __future__ import annotations

import http.client
import re
import sys
import threading
from contextlib import suppress
from urllib.parse import urlsplit

TYPE_CHECKING = False  # as in typing, which takes long to import
if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = re.compile(rb'"protocolVersion"\s*:\s*"([^"]+)"')
FIRST_ERROR = 400
INTERNAL_ERROR = -32603
_output = threading.Lock()
_headers = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}


def _write(message: bytes) -> None:
    """Write a message as one line: a string of JSON has no line ends."""
    line = b" ".join(message.split(b"\n")).replace(b"\r", b"").strip()
    if not line:  # an accepted notification, or an event without data
        return
    with _output:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()


def _read(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the messages of a response: one, or one for each server-sent event."""
    if not (response.getheader("content-type") or "").startswith("text/event-stream"):
        yield response.read()
        return
    data: list[bytes] = []
    for line in response:
        text = line.rstrip(b"\r\n")
        if text.startswith(b"data:"):
            data.append(text[5:].removeprefix(b" "))
        elif not text:
            yield b"\n".join(data)
            data = []
    yield b"\n".join(data)


def _fail(body: bytes | None, reason: str) -> None:
    """Answer a request with an error; report that of a notification."""
    import json  # late: it is not needed in most cases

    number = None
    with suppress(ValueError, AttributeError):
        number = json.loads(body or b"").get("id")
    if number is None:
        sys.stderr.write(f"{reason}\n")
        return
    error = {"code": INTERNAL_ERROR, "message": reason}
    _write(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode())


def _pass_on(method: str, url: str, body: bytes | None = None) -> None:
    """Send a message, and write each message of the response."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.netloc)
    try:
        target = (address.path or "/") + (f"?{address.query}" if address.query else "")
        connection.request(method, target, body, _headers)
        response = connection.getresponse()
        if response.status >= FIRST_ERROR:
            text = response.read().decode("utf-8", "replace").strip()
            if body is not None:  # a server may have no stream, and no end of a session
                head = f"the MCP server answered with HTTP {response.status} {response.reason}"
                _fail(body, f"{head}: {text}" if text else head)
            return
        if session := response.getheader("mcp-session-id"):
            _headers["mcp-session-id"] = session
        for message in _read(response):
            if "mcp-protocol-version" not in _headers and (found := VERSION.search(message)):
                _headers["mcp-protocol-version"] = found[1].decode()
            _write(message)
    except (OSError, http.client.HTTPException) as error:
        if body is not None:
            _fail(body, f"the MCP server has gone: {error}")
    finally:
        connection.close()


def main(url: str) -> None:
    """Pass on messages until the end of stdin."""
    listening = False
    for line in sys.stdin.buffer:
        if not line.strip():
            continue
        first = "mcp-session-id" not in _headers
        thread = threading.Thread(target=_pass_on, args=("POST", url, line.strip()), daemon=True)
        thread.start()
        if first:  # the response has the id of the session, which all others need
            thread.join()
        elif not listening:  # what the server sends by itself
            listening = True
            threading.Thread(target=_pass_on, args=("GET", url), daemon=True).start()
    if "mcp-session-id" in _headers:
        _pass_on("DELETE", url)


if __name__ == "__main__":
    main(sys.argv[1])
