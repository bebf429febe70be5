"""The checks of `offbook doctor` in the environment and in the project, and shell completion.

A check says what to do if something is missing. Only what is wrong fails the doctor: an extra that
is not installed is missing, a cassette with a secret is wrong.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Literal

import click
import msgspec

from offbook.errors import FormatError, UsageError, counted

State = Literal["ok", "missing", "wrong"]
EXTRAS = {  # the package that an extra installs, and what it is for
    "trustme": ("proxy", "HTTPS of programs without a base URL"),
    "opentelemetry-proto": ("otel", "spans to a collector"),
    "duckdb": ("duckdb", "SQL over the results of evals"),
}
TEST_FOLDERS = ("tests", "test")
CASSETTE_FOLDERS = (*TEST_FOLDERS, "cassettes", "evals")
PROBE = "import ctypes; raise SystemExit(ctypes.CDLL(None).unshare(0x50000000) != 0)"


class EnvironmentCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """A check of the environment or the project, and what to do about it."""

    name: str
    kind: Literal["environment", "project"]
    state: State
    detail: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.detail}; fix: {self.fix}" if self.fix else self.detail


def check_environment() -> Iterator[EnvironmentCheck]:
    """Check what is installed, and what this system permits."""

    def check(name: str, state: State, detail: str, fix: str = "") -> EnvironmentCheck:
        return EnvironmentCheck(name, "environment", state, detail, fix)

    system = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield check("Python", "ok", system)
    try:
        installed = version("pytest")
    except PackageNotFoundError:
        yield check("pytest", "missing", "not installed", "pip install pytest")
    else:
        plugins = {each.name for each in entry_points(group="pytest11")}
        if os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
            detail = f"{installed}; PYTEST_DISABLE_PLUGIN_AUTOLOAD is set: no fixture `offbook`"
            yield check("pytest", "wrong", detail, "pytest -p pytest_offbook.plugin")
        elif "offbook" not in plugins:
            detail = f"{installed}; the plugin of Offbook is not registered"
            yield check("pytest", "wrong", detail, "pip install --force-reinstall offbook")
        else:
            yield check("pytest", "ok", f"{installed}, with the fixture `offbook`")
    for package, (extra, use) in EXTRAS.items():
        try:
            yield check(f"offbook[{extra}]", "ok", f"{package} {version(package)}")
        except PackageNotFoundError:
            detail = f"not installed: {use}"
            yield check(f"offbook[{extra}]", "missing", detail, f"pip install 'offbook[{extra}]'")
    if sys.platform != "linux":
        yield check("--sealed", "missing", f"no network namespaces on {platform.system()}")
    elif subprocess.run([sys.executable, "-c", PROBE], check=False).returncode:  # noqa: S603 - our own interpreter
        fix = "sysctl -w kernel.unprivileged_userns_clone=1, or run as root"
        yield check("--sealed", "missing", "network namespaces are not permitted", fix)
    else:
        yield check("--sealed", "ok", "network namespaces are permitted")


def check_project(root: Path) -> Iterator[EnvironmentCheck]:
    """Check the settings, the tests, the cassettes and the ignored files of a project."""
    from offbook.files import read_settings, read_text

    def check(name: str, state: State, detail: str, fix: str = "") -> EnvironmentCheck:
        return EnvironmentCheck(name, "project", state, detail, fix)

    try:
        _, file = read_settings(root)
    except FormatError as error:
        yield check("settings", "wrong", str(error).splitlines()[0], error.hint or "edit the file")
    else:
        yield check("settings", "ok", str(file) if file.exists() else "none: the defaults")
    tests = [path for name in ("test_*.py", "*_test.py") for path in _project_files(root, name)]
    using = [path for path in tests if "offbook" in read_text(path)]
    if using:
        yield check("tests", "ok", f"{counted(len(using), 'file')} of {len(tests)} use Offbook")
    else:
        yield check("tests", "missing", "no test uses Offbook", "offbook init")
    yield from _check_cassettes(root)
    git = shutil.which("git")
    if git is None:
        return
    command = [git, "-C", str(root), "check-ignore", "-q", ".offbook/traces"]
    code = subprocess.run(command, capture_output=True, check=False).returncode  # noqa: S603 - git of the project
    if code == 0:
        yield check(".offbook", "ok", "ignored by git")
    elif code == 1:  # a folder without a repository is another code
        fix = "echo /.offbook/ >> .gitignore"
        yield check(".offbook", "missing", "the traces of runs are not ignored by git", fix)


def _project_files(root: Path, pattern: str) -> Iterator[Path]:
    """Yield the files of the project itself: not those of an environment or of packages."""
    yield from root.glob(pattern)
    for name in TEST_FOLDERS:
        yield from (root / name).rglob(pattern)


def _check_cassettes(root: Path) -> Iterator[EnvironmentCheck]:
    from offbook.sources.cassette.maintenance import find_cassettes, find_faults

    folders = [root / name for name in CASSETTE_FOLDERS if (root / name).is_dir()]
    files = [path for folder in folders for path in find_cassettes(folder)]
    wrong: list[Path] = []
    for path in files:
        try:
            faulty = bool(find_faults(path))
        except FormatError:
            faulty = True
        wrong += [path] if faulty else []
    if wrong:
        detail = f"{len(wrong)} of {counted(len(files), 'cassette')} must not be committed"
        names = " ".join(shlex.quote(os.path.relpath(path, root)) for path in wrong[:3])
        fix = f"offbook cassette verify {names}"
        yield EnvironmentCheck("cassettes", "project", "wrong", detail, fix)
    elif files:
        detail = f"{counted(len(files), 'cassette')}: no secrets, no edited requests"
        yield EnvironmentCheck("cassettes", "project", "ok", detail)


# --- Shell completion

COMPLETION_FILES = {  # where each shell looks for it
    "bash": ".local/share/bash-completion/completions/offbook",
    "fish": ".config/fish/completions/offbook.fish",
    "zsh": ".zfunc/_offbook",
}
COMPLETION_NOTES = {
    "bash": "it needs the package bash-completion; otherwise add to ~/.bashrc: source {file}",
    "fish": "",
    "zsh": "add to ~/.zshrc: fpath=(~/.zfunc $fpath); autoload -U compinit; compinit",
}


def install_completion(command: click.Command, shell: str, home: Path) -> tuple[Path, str]:
    """Write the completion of a shell; return the file, and what is left to do."""
    from click.shell_completion import get_completion_class

    from offbook.files import write_atomic

    kind = get_completion_class(shell) if shell in COMPLETION_FILES else None
    if kind is None:
        raise UsageError(
            f"no completion for the shell {shell or 'of this session'!r}",
            hint=f"SHELL={'|'.join(sorted(COMPLETION_FILES))} offbook doctor --completion",
        )
    file = home / COMPLETION_FILES[shell]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, kind(command, {}, "offbook", "_OFFBOOK_COMPLETE").source())
    return file, COMPLETION_NOTES[shell].format(file=file)
