"""The fixture `offbook` and its option; everything else is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offbook.surfaces.fixtures import Offbook

ABOUT = """Which traces to keep: those of failing tests in the folder DIR (default: \
.offbook/traces); `all`: those of all tests; `never`: none."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """One option, and the same in the configuration file."""
    group = parser.getgroup("offbook", "rehearse AI agents without the model")
    group.addoption("--offbook-traces", metavar="DIR|all|never", default=None, help=ABOUT)
    parser.addini("offbook_traces", ABOUT, default="")


@pytest.fixture
def offbook(request: pytest.FixtureRequest) -> Iterator[Offbook]:
    """Rehearsals for this test: `offbook.session(…)` and `offbook.drive(…)`.

    They end with the test, in plain and in `async def` tests alike.
    """
    from pytest_offbook.rehearsals import blame, watch_test

    opened = watch_test(request)
    yield opened
    blame(opened.close())
