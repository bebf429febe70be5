"""Patterns in pytest: the fixture `pattern_harness`, and harnesses that were not disposed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from offbook.patterns.harness import PatternHarness

HARNESS_MODULE = "offbook.patterns.harness"

IMPORTS = (HARNESS_MODULE,)


def pytest_configure(config: pytest.Config) -> None:
    """Check after each test that its harnesses are disposed, and after this one."""
    config.pluginmanager.register(LeakedHarnesses(), "offbook-leaked-harnesses")
    dispose_leaked_harnesses()


def pattern_harness() -> Generator[PatternHarness]:
    """A harness for one test; it is checked and disposed at the end."""
    from offbook.patterns.harness import create_harness

    harness = create_harness()
    yield harness
    harness.dispose()


FIXTURES = (pattern_harness,)


class LeakedHarnesses:
    """Fails a test that left a harness open."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None]:
        """Dispose what is left after the fixtures, and fail."""
        yield
        dispose_leaked_harnesses()


def dispose_leaked_harnesses() -> None:
    """Dispose the harnesses that are open, and fail for them."""
    module = sys.modules.get(HARNESS_MODULE)
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
