"""The network of a test that uses the fixture `offbook`, from its fixtures to its last thread.

Without a permission nothing leaves the machine. A connection that is refused during the test is a
warning, if it did not fail the test itself; one that is tried after its end fails the test. If a
thread tries one when even the teardown is over, the whole session fails.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from offbook.surfaces.isolation import (
    ConnectionBlocked,
    NetworkGuard,
    OffbookWarning,
    block_network,
    disable_telemetry,
)

if TYPE_CHECKING:
    from collections.abc import Generator

PLUGIN_NAME = "offbook-isolation"
GUARD_KEY = pytest.StashKey[NetworkGuard]()


@contextmanager
def isolate_test(item: pytest.Item) -> Generator[None]:
    """Block the network in all phases of this test."""
    plugins = item.config.pluginmanager
    late: LateConnections | None = plugins.get_plugin(PLUGIN_NAME)
    if late is None:
        late = LateConnections()
        plugins.register(late, PLUGIN_NAME)
    allow = tuple(item.config.getini("offbook_allow"))

    def on_late(error: ConnectionBlocked) -> None:
        late.errors.append((item.nodeid, error))

    with disable_telemetry(), block_network(allow=allow, on_late=on_late) as guard:
        item.stash[GUARD_KEY] = guard
        yield


class LateConnections:
    """The connections that threads tried after the end of their test."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, ConnectionBlocked]] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Warn of the connections until the end of the test, fail for those after it."""
        guard = item.stash.get(GUARD_KEY, None)
        if guard is None:
            return (yield)
        during, guard.refused = guard.refused, []
        result = yield
        if guard.refused:
            pytest.fail(f"after the end of the test: {guard.refused[0]}", pytrace=False)
        for error in during:
            warnings.warn(OffbookWarning(f"a connection was refused: {error}"), stacklevel=1)
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """A test that failed shows its error, and no warnings."""
        if call.excinfo is not None and (guard := item.stash.get(GUARD_KEY, None)) is not None:
            guard.refused.clear()

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a session in which a thread tried a connection after its test."""
        if self.errors and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the tests and their connections."""
        if self.errors:
            terminalreporter.section("connections after the end of a test", red=True)
            for test, error in self.errors:
                terminalreporter.line(f"{test}: {error}")
