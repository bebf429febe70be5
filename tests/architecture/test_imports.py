"""Importing Offbook, or merely having its pytest plugin, costs next to nothing."""

import subprocess
import sys
from collections.abc import Callable

import pytest

Imported = Callable[[str], set[str]]

NEWLY_IMPORTED = """
import sys
before = set(sys.modules)
import {module}
print(*sorted({{name.partition(".")[0] for name in set(sys.modules) - before}}))
"""


@pytest.fixture
def packages_imported_by(unwatched: dict[str, str]) -> Imported:
    """The top-level packages that a fresh Python imports for a module, but for its own library."""

    def imported(module: str) -> set[str]:
        outcome = subprocess.run(
            [sys.executable, "-c", NEWLY_IMPORTED.format(module=module)],
            env=unwatched,
            capture_output=True,
            text=True,
            check=False,
        )
        assert outcome.returncode == 0, outcome.stderr
        return set(outcome.stdout.split()) - sys.stdlib_module_names

    return imported


def test_import_offbook_brings_msgspec_at_most(packages_imported_by: Imported):
    assert packages_imported_by("offbook") <= {"offbook", "msgspec"}


def test_the_command_line_waits_with_everything_but_click(packages_imported_by: Imported):
    assert packages_imported_by("offbook.surfaces.cli") <= {"offbook", "msgspec", "click"}


def test_the_pytest_plugin_does_not_import_offbook(packages_imported_by: Imported):
    # pytest is there already whenever a plugin of it is loaded
    assert "offbook" not in packages_imported_by("pytest_offbook.plugin")
