"""The plugin of pytest for `offbook view --watch`: traces and outcomes in a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from offbook.viewer.viewer_pytest import TRACES_OPTION, PageHooks

if TYPE_CHECKING:
    import pytest

VARIABLE = "OFFBOOK_WATCHED_TRACES"
OUTCOMES = "tests.json"


def pytest_configure(config: pytest.Config) -> None:
    """Keep the traces of all tests in the folder of the variable."""
    folder = Path(os.environ[VARIABLE])
    setattr(config.option, TRACES_OPTION, str(folder))
    config.pluginmanager.register(OutcomeHooks(folder / OUTCOMES, folder), "offbook-watched")


class OutcomeHooks(PageHooks):
    """Writes the outcomes in place of a page."""

    def pytest_sessionfinish(self, session: pytest.Session) -> None:  # noqa: ARG002 - that of the page
        """Write the outcome of each test."""
        self.path.write_bytes(msgspec.json.encode(self.tests))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name no page."""
