"""Importing Offbook, or installing its pytest plugin, costs almost nothing."""

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
    """Return the third-party packages that importing a module brings in, in a new process."""

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


def test_import_offbook_imports_no_other_package(packages_imported_by: Imported):
    assert packages_imported_by("offbook") <= {"offbook"}


def test_the_command_line_imports_click_and_msgspec_only(packages_imported_by: Imported):
    assert packages_imported_by("offbook.surfaces.cli") <= {"offbook", "msgspec", "click"}


def test_the_pytest_plugin_imports_no_package_but_pytest(packages_imported_by: Imported):
    imported = packages_imported_by("pytest_offbook.plugin")
    assert imported - packages_imported_by("pytest") <= {"offbook", "pytest_offbook"}
