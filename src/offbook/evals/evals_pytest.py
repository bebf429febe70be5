"""Eval packs in pytest: with `--offbook-evals`, each case and each slice of a pack is one test."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

OPTION = "--offbook-evals"
OPTIONS = {
    OPTION: {
        "action": "store_true",
        "default": False,
        "help": "Collect eval packs (*.eval.toml): one test for each case.",
    },
}


def pytest_configure(config: pytest.Config) -> None:
    """Collect packs if the option is given."""
    if config.getoption(OPTION):
        from offbook.evals.packs_pytest import PackCollector

        config.pluginmanager.register(PackCollector(config), "offbook-evals")
