"""A server with the plain dialect, for the tests of this folder."""

from collections.abc import Iterator

import pytest

from offbook.sources.server.server import Server
from tests.sources.server.plain_dialect import recognise


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server in a thread of its own."""
    with Server(recognise=recognise) as started:
        yield started
