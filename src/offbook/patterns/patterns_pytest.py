"""Patterns in pytest: the fixture `pattern_harness`, and harnesses that were not disposed.

The plugin imports this module at every start, so everything else is imported when a test needs it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from offbook.patterns.harness import PatternHarness


def add_options(parser: pytest.Parser) -> None:
    """Add nothing: patterns have no options of pytest."""


def configure(config: pytest.Config) -> None:
    """Check after each test that its harnesses are disposed."""
    config.pluginmanager.register(LeakedHarnesses(), "offbook-leaked-harnesses")


def pattern_harness() -> Generator[PatternHarness]:
    """A harness for one test; it is checked and disposed at the end."""
    from offbook.patterns.harness import create_harness

    harness = create_harness()
    yield harness
    harness.dispose()


MARKERS: tuple[str, ...] = ()
FIXTURES = {"pattern_harness": pattern_harness}


class LeakedHarnesses:
    """Fails a test that left a harness open."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None]:
        """Dispose what is left after the fixtures, and fail."""
        yield
        module = sys.modules.get("offbook.patterns.harness")
        if module is None or not module.OPEN:
            return
        from offbook.errors import PatternError

        leaked = list(module.OPEN.values())
        for harness in leaked:
            harness.dispose(check=False)
        places = ", ".join(harness.created for harness in leaked)
        raise PatternError(
            f"a harness was not disposed: created at {places}",
            hint="write `with create_harness() as h:`, or use the fixture pattern_harness",
        )
