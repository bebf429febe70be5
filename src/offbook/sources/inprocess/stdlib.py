"""http.client: what urllib, and under urllib3 requests and botocore, make their requests with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offbook.determinism.patches import lay
from offbook.sources.inprocess.socketless import Socketless
from offbook.sources.inprocess.transport import find_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Stdlib:
    """Python's own connections."""

    modules = ("http.client",)

    def patch(self, module: Any) -> Iterable[Callable[[], None]]:
        """Connect to the line, also where a connection from before is used again."""
        yield lay(module.HTTPConnection, "putrequest", _begin)
        yield lay(module.HTTPConnection, "connect", connect)
        if hasattr(module, "HTTPSConnection"):
            yield lay(module.HTTPSConnection, "connect", connect)


def connect(original: Callable[..., None], connection: Any) -> None:
    """Connect to the line instead of the host, or of the proxy before it."""
    if not join_line(connection):
        original(connection)


def join_line(connection: Any) -> bool:
    """Whether this connection now leads to the line."""
    tunnel = getattr(connection, "_tunnel_host", None)
    host = tunnel or connection.host
    port = connection._tunnel_port if tunnel else connection.port  # noqa: SLF001 - no other way
    found = find_line(host, port)
    if found is None:
        return False
    connection.sock = Socketless(found)
    return True


def _begin(original: Callable[..., None], connection: Any, *args: Any, **named: Any) -> None:
    old = connection.sock
    if old is not None and not isinstance(old, Socketless) and join_line(connection):
        old.close()
    original(connection, *args, **named)
