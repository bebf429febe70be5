"""A plugin of pytest that reports the files that the tests used: see `watched_tests`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from offbook.runs.result_identity import watch_used_files
from offbook.runs.watched_tests import write_report

if TYPE_CHECKING:
    import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Note the files until the end of the tests."""
    watching = ExitStack()
    used = watching.enter_context(watch_used_files())

    def finish() -> None:
        watching.close()
        write_report(used)

    config.add_cleanup(finish)
