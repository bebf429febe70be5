"""A page in the browser of the user cannot use a server of Offbook: its origin is another one."""

import pytest

from offbook.exchange import user
from offbook.sources.server import Server
from tests.sources.server.plain_dialect import body
from tests.sources.server.raw_http import Reader, connect, post
from tests.sources.server.test_http1 import Echo

BODY = body(user("Hi"))
KEY = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="
UPGRADE = ("connection: upgrade", "upgrade: websocket", KEY, "sec-websocket-version: 13")
FOREIGN = {
    "another site": ("origin: https://evil.example",),
    "a page without an origin": ("origin: null",),
    "another port of this machine": ("origin: http://127.0.0.1:1",),
    "this machine over TLS": ("origin: https://{host}",),
    "a form of another site": ("sec-fetch-site: cross-site", "content-type: text/plain"),
    "a subdomain": ("sec-fetch-site: same-site",),
    "an unknown relation": ("sec-fetch-site: unheard-of",),
    "its own origin, but another site": ("origin: http://{host}", "sec-fetch-site: cross-site"),
}
OWN = {
    "no browser": (),
    "its own page": ("origin: http://{host}", "sec-fetch-site: same-origin"),
    "the address bar": ("sec-fetch-site: none",),
}


def send(server: Server, headers: tuple[str, ...], *, websocket: bool = False) -> int:
    """Return the status of a request with these headers."""
    endpoint = server.mount(Echo())
    url = f"{endpoint.url}/plain"
    host = f"127.0.0.1:{server.port}"
    lines = [line.format(host=host) for line in (*headers, *(UPGRADE if websocket else ()))]
    with connect(url) as connection:
        method = "GET" if websocket else "POST"
        connection.sendall(post(url, b"" if websocket else BODY, *lines, method=method))
        status, _ = Reader(connection).head()
    assert bool(endpoint.received) == (status == 200)
    endpoint.close()
    return status


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("websocket", [False, True])
def test_a_page_of_another_origin_is_refused(
    server: Server, headers: tuple[str, ...], *, websocket: bool
) -> None:
    assert send(server, headers, websocket=websocket) == 403


@pytest.mark.parametrize("headers", OWN.values(), ids=OWN)
@pytest.mark.parametrize("websocket, status", [(False, 200), (True, 101)])
def test_a_client_that_is_no_foreign_page_is_answered(
    server: Server, headers: tuple[str, ...], *, websocket: bool, status: int
) -> None:
    assert send(server, headers, websocket=websocket) == status


def test_a_second_request_of_a_connection_is_refused_too(server: Server):
    endpoint = server.mount(Echo())
    url = f"{endpoint.url}/plain"
    with connect(url) as connection:
        reader = Reader(connection)
        connection.sendall(post(url, BODY))
        assert reader.response()[0] == 200
        connection.sendall(post(url, BODY, "origin: https://evil.example"))
        assert reader.response()[0] == 403
