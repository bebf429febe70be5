"""A server with the plain dialect."""

from collections.abc import Iterator

import pytest

from offbook.sources.server import Server
from tests.sources.server.plain_dialect import detect_plain


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server in a separate thread."""
    with Server(detect_dialect=detect_plain) as started:
        yield started
