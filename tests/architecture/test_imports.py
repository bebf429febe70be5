"""Importing Offbook, or merely having its pytest plugin, costs next to nothing."""

import os
import subprocess
import sys

NEWLY_IMPORTED = """
import sys
before = set(sys.modules)
import {module}
print(*sorted({{name.partition(".")[0] for name in set(sys.modules) - before}}))
"""


def packages_imported_by(module: str) -> set[str]:
    """The top-level packages that a fresh Python imports for a module, but for its own library."""
    # Coverage, when it watches processes, imports modules of its own.
    environment = {key: value for key, value in os.environ.items() if "COVERAGE" not in key}
    outcome = subprocess.run(
        [sys.executable, "-c", NEWLY_IMPORTED.format(module=module)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    return set(outcome.stdout.split()) - sys.stdlib_module_names


def test_import_offbook_brings_msgspec_at_most():
    assert packages_imported_by("offbook") <= {"offbook", "msgspec"}


def test_the_command_line_waits_with_everything_but_click():
    assert packages_imported_by("offbook.surfaces.cli") <= {"offbook", "msgspec", "click"}


def test_the_pytest_plugin_does_not_import_offbook():
    # pytest is there already whenever a plugin of it is loaded
    assert "offbook" not in packages_imported_by("pytest_offbook.plugin")
