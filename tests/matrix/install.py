"""Install the missing homes of the matrix: `python -m tests.matrix.install [HOME…]`.

Each is a virtual environment or an npm prefix under `.clients`, created once and kept until its
packages change in the table. A failed installation leaves a log with the reason, and the exit code
is 1.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence

from tests.matrix.homes import HOMES, ROOT, Home

TIMEOUT = 1800  # a busy machine needs 15 minutes for the largest home
NPM = ("--save-exact", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1")


class CannotInstallError(Exception):
    """The installation of a home failed."""


def install(home: Home) -> None:
    """Create a home. The stamp is written last, so that a partial home is created again."""
    home.stamp.unlink(missing_ok=True)
    home.folder.mkdir(parents=True, exist_ok=True)
    for command in _npm(home) if home.npm else _venv(home):
        _run(command, home)
    home.error_log.unlink(missing_ok=True)
    home.stamp.write_text(home.expected_stamp, encoding="utf-8")


def _venv(home: Home) -> list[list[str]]:
    python = home.python
    packages = [*home.packages, *(["--no-deps"] if home.no_deps else [])]
    packages += ["--editable", str(ROOT)] if home.with_offbook else []
    uv = shutil.which("uv")
    if uv:
        create = [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(home.folder)]
        pip = [uv, "pip", "install", "--quiet", "--python", python]
    else:
        create = [sys.executable, "-m", "venv", "--clear", str(home.folder)]
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    bare = [[*pip, "--no-deps", *home.bare]] if home.bare else []
    return [create, [*pip, *packages], *bare]


def _npm(home: Home) -> list[list[str]]:
    npm = shutil.which("npm")
    if npm is None:
        raise CannotInstallError("npm is missing")
    manifest = home.folder / "package.json"
    if not manifest.exists():
        manifest.write_text('{"private": true}\n', encoding="utf-8")
    prefix = ["--prefix", str(home.folder), "--fetch-timeout=20000"]
    return [[npm, "install", *prefix, *NPM, *home.npm_options, *home.packages]]


def _run(command: Sequence[str], home: Home) -> None:
    with home.error_log.open("w", encoding="utf-8") as log:
        try:
            completed = subprocess.run(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                timeout=TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise CannotInstallError(f"{command[0]} took more than {TIMEOUT} s") from error
    if completed.returncode:
        lines = home.error_log.read_text(encoding="utf-8").strip().splitlines()
        raise CannotInstallError(f"{lines[-1] if lines else 'no output'} ({home.error_log})")


def main(names: Sequence[str]) -> int:
    """Install the named homes that are missing, or all; return 1 if one failed."""
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
            home.error_log.parent.mkdir(parents=True, exist_ok=True)
            home.error_log.write_text(f"{error}\n", encoding="utf-8")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
