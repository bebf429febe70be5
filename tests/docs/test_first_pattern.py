"""A first test of a pattern, from an empty folder, by the script of the page."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.forked import forked_command, forked_python

PAGE = Path(__file__).resolve().parents[2] / "docs" / "getting-started" / "first-pattern.md"
SCRIPT = PAGE.with_suffix(".sh")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a PATH with an `offbook` that runs in a fork."""
    folder = tmp_path_factory.mktemp("bin")
    command = shlex.join(forked_command("-m", "offbook"))
    (folder / "offbook").write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    (folder / "offbook").chmod(0o755)
    return os.pathsep.join([str(folder), os.environ["PATH"]])


def run_script(folder: Path, path: str, script: Path = SCRIPT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(script)],
        cwd=folder,
        env={**os.environ, **forked_python(), "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_first_test_is_written_passes_and_fails_for_a_broken_pattern(tmp_path: Path, path: str):
    result = run_script(tmp_path, path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 passed" in result.stdout
    assert "1 failed, 1 passed" in result.stdout
    assert result.stdout.endswith("fails for a broken one\n")


def test_the_script_fails_if_the_broken_pattern_passes(tmp_path: Path, path: str):
    script = tmp_path / "harmless.sh"
    script.write_text(SCRIPT.read_text().replace("value.get() + 2/", "value.get() + 1 /"))
    folder = tmp_path / "empty"
    folder.mkdir()
    result = run_script(folder, path, script)
    assert result.returncode == 1
    assert "the test passes for a broken pattern" in result.stderr


def test_the_script_starts_from_an_empty_folder_only(tmp_path: Path, path: str):
    (tmp_path / "counter.py").write_text("")
    assert run_script(tmp_path, path).returncode == 2


def test_the_page_and_the_script_have_the_same_pattern():
    pattern = SCRIPT.read_text().partition("<<'END'\n")[2].partition("END\n")[0]
    assert pattern in PAGE.read_text()
