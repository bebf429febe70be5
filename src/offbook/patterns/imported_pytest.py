"""A pytest plugin that writes the list of the project's files that a test run imported.

`offbook pattern test` reads it to know which changes concern a test.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

VARIABLE = "OFFBOOK_IMPORTED_FILES"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the list."""
    target = os.environ.get(VARIABLE)
    if not target:
        return
    files: set[str] = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and file.endswith(".py") and "site-packages" not in file:
            path = Path(file).resolve()
            if path.is_relative_to(session.config.rootpath):
                files.add(str(path))
    files |= {str(item.path) for item in session.items}
    Path(target).write_text(json.dumps(sorted(files)), encoding="utf-8")
