"""urllib3: the connections of requests and botocore, which connect in a way of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offbook.determinism.patches import lay
from offbook.sources.inprocess.stdlib import join_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Urllib3:
    """The connections that are made of http.client's."""

    modules = ("urllib3.connection",)

    def patch(self, module: Any) -> Iterable[Callable[[], None]]:
        """Connect to the line; what nobody can overhear needs no certificate."""
        yield lay(module.HTTPConnection, "connect", _connect)
        yield lay(module.HTTPSConnection, "connect", _connect)


def _connect(original: Callable[..., None], connection: Any) -> None:
    if join_line(connection):
        connection.is_verified = True
    else:
        original(connection)
