"""Passes the messages of an MCP client on stdin and stdout to a server over HTTP, and back.

    python stdio_bridge.py http://127.0.0.1:4000/s/…

It imports nothing but the standard library: clients wait for it at every start.
"""

import http.client
import sys
import threading
from urllib.parse import urlsplit

_output = threading.Lock()
_headers = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}


def _write(line: bytes) -> None:
    with _output:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()


def _pass_on(method: str, url: str, body: bytes | None = None) -> None:
    """Send a message, and write each message of the response."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.netloc)
    try:
        connection.request(method, address.path, body, _headers)
        response = connection.getresponse()
        if session := response.getheader("mcp-session-id"):
            _headers["mcp-session-id"] = session
        for line in response:  # a stream of server-sent events, or an error as JSON
            if line.startswith((b"data: ", b"{")):
                _write(line.removeprefix(b"data: ").strip())
    except OSError as error:
        sys.stderr.write(f"the MCP server has gone: {error}\n")
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
