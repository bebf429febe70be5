"""The forked processes of these tests come from a server that no test ends."""

import pytest

from tests.forked import forked_command


@pytest.fixture(autouse=True, scope="session")
def server() -> None:
    # Started in a process that plays a behaviour, it would end with it.
    for imports in ((), ("openai",)):
        forked_command(imports=imports)
