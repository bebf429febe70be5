"""Installs the homes of the matrix that are missing: `python -m tests.matrix.install [HOME…]`.

Each is a virtual environment or an npm prefix of its own under `.clients`, made once and kept until
the table names other packages. One that cannot be made leaves a log that says why, and the exit
code is 1.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence

from tests.matrix.homes import HOMES, ROOT, Home

PATIENCE = 600
NPM = ("--save-exact", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1")


class CannotInstallError(Exception):
    """Why a home could not be made."""


def install(home: Home) -> None:
    """Make a home, from nothing; its stamp comes last, so that half of one is done again."""
    home.stamp.unlink(missing_ok=True)
    home.folder.mkdir(parents=True, exist_ok=True)
    for command in _npm(home) if home.npm else _venv(home):
        _run(command, home)
    home.trouble.unlink(missing_ok=True)
    home.stamp.write_text(home.wanted, encoding="utf-8")


def _venv(home: Home) -> list[list[str]]:
    python = home.python
    packages = [*home.packages, *(["--no-deps"] if home.bare else [])]
    packages += ["--editable", str(ROOT)] if home.ours else []
    uv = shutil.which("uv")
    if uv:
        made = [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(home.folder)]
        return [made, [uv, "pip", "install", "--quiet", "--python", python, *packages]]
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return [[sys.executable, "-m", "venv", "--clear", str(home.folder)], [*pip, *packages]]


def _npm(home: Home) -> list[list[str]]:
    npm = shutil.which("npm")
    if npm is None:
        raise CannotInstallError("npm is missing")
    manifest = home.folder / "package.json"
    if not manifest.exists():
        manifest.write_text('{"private": true}\n', encoding="utf-8")
    prefix = ["--prefix", str(home.folder), "--fetch-timeout=20000"]
    return [[npm, "install", *prefix, *NPM, *home.packages]]


def _run(command: Sequence[str], home: Home) -> None:
    with home.trouble.open("w", encoding="utf-8") as log:
        try:
            ended = subprocess.run(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise CannotInstallError(f"{command[0]} took more than {PATIENCE} s") from error
    if ended.returncode:
        said = home.trouble.read_text(encoding="utf-8").strip().splitlines()
        raise CannotInstallError(f"{said[-1] if said else 'it said nothing'} ({home.trouble})")


def main(names: Sequence[str]) -> int:
    """Install the named homes, or all; tell what came of each that was missing."""
    failed = 0
    for home in [HOMES[name] for name in names or HOMES]:
        if home.ready:
            continue
        try:
            print(f"installing {home.name}: {' '.join(home.packages)}", flush=True)
            install(home)
        except (CannotInstallError, OSError) as error:
            failed = 1
            print(f"{home.name} cannot be installed: {error}", file=sys.stderr, flush=True)
            home.trouble.parent.mkdir(parents=True, exist_ok=True)
            home.trouble.write_text(f"{error}\n", encoding="utf-8")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
