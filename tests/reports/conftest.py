"""Reference parsers for reports; those from npm are installed once into .venv."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PARSERS = ("tap-parser@18.3.4",)


@pytest.fixture(scope="session")
def npm_parsers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the commands of the parsers; skip the test without npm."""
    if shutil.which("npm") is None:
        pytest.skip("npm is missing, and the TAP parser is installed with it")
    home = Path(sys.prefix) / "offbook-npm" / "-".join(PARSERS).replace("@", "-")
    if not (home / "done").exists():
        fresh = tmp_path_factory.mktemp("npm")
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", *PARSERS]
        subprocess.run(command, cwd=fresh, check=True, capture_output=True)
        (fresh / "done").touch()
        home.parent.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError, shutil.Error):  # another worker was faster
            shutil.move(fresh, home)
    return home / "node_modules" / ".bin"
