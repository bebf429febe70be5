"""./dev lists its commands, and reports what is missing before it starts."""

import shutil
import subprocess
from pathlib import Path

import pytest

NEEDED = ["cat", "cksum", "dirname", "head", "mktemp", "rm", "sh"]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Return a folder for PATH with the tools that every system has, and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in NEEDED:
        found = shutil.which(tool)
        assert found is not None
        (folder / tool).symlink_to(found)
    return folder


@pytest.fixture
def checkout(root: Path, tmp_path: Path) -> Path:
    """Return the files that ./dev reads, in a path with a space, without a .venv."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    for name in ["dev", "pyproject.toml", "requirements.lock", "requirements-runtime.lock"]:
        shutil.copy(root / name, folder)
    return folder


def dev(checkout: Path, path: Path, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "dev", command],
        cwd=path,
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )


def add_python(path: Path, words: str) -> None:
    python = path / "python3"
    python.write_text(f'#!/bin/sh\necho "{words}"\nexit 1\n')
    python.chmod(0o755)


def test_help_needs_nothing(checkout: Path, bare: Path):
    outcome = dev(checkout, bare, "help")
    assert outcome.returncode == 0
    for command in [
        "demo",
        "test",
        "check",
        "pythons",
        "clients",
        "docs",
        "bench",
        "lock",
        "setup",
    ]:
        assert f"\n  {command} " in outcome.stdout


def test_an_unknown_command_is_named(checkout: Path, bare: Path):
    outcome = dev(checkout, bare, "tset")
    assert outcome.returncode == 2
    assert "unknown command 'tset'" in outcome.stderr


def test_a_missing_python_is_reported_with_the_names_that_were_tried(checkout: Path, bare: Path):
    outcome = dev(checkout, bare, "test")
    assert outcome.returncode == 1
    assert "tried: python3.13 python3.12 python3.11 python3; found: none" in outcome.stderr


def test_an_old_python_is_reported_with_its_version(checkout: Path, bare: Path):
    add_python(bare, "Python 3.9.2")
    outcome = dev(checkout, bare, "test")
    assert outcome.returncode == 1
    assert "found: python3 (Python 3.9.2)" in outcome.stderr
    assert not (checkout / ".venv").exists()
