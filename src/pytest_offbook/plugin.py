"""The fixture `offbook` and its option; everything else is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from offbook.surfaces.capabilities import load_capabilities

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offbook.surfaces.fixtures import Offbook

# The hooks, options and fixtures of the capabilities.
pytest_plugins = [
    capability.pytest_plugin for capability in load_capabilities() if capability.pytest_plugin
]

ABOUT = """Which traces to keep: those of failing tests in the folder DIR (default: \
.offbook/traces); `all`: those of all tests; `never`: none."""

RECORD = """Ask the real model, with your keys, and record the cassettes that tests ask for \
(`offbook.cassette()`); without it they are replayed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for traces and recording."""
    group = parser.getgroup("offbook", "rehearse AI agents without the model")
    group.addoption("--offbook-traces", metavar="DIR|all|never", default=None, help=ABOUT)
    parser.addini("offbook_traces", ABOUT, default="")
    group.addoption("--offbook-record", action="store_true", help=RECORD)


@pytest.fixture
def offbook(request: pytest.FixtureRequest) -> Iterator[Offbook]:
    """Rehearsals for this test: `offbook.session(…)` and `offbook.drive(…)`.

    They end with the test, in plain and in `async def` tests alike. `offbook.cassette()` is a
    source for them: what was recorded with `--offbook-record`.
    """
    from pytest_offbook.rehearsals import open_offbook, raise_errors

    opened = open_offbook(request)
    yield opened
    raise_errors(opened.close())
