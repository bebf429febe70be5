"""A temporary folder that must be empty after each verification."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from offbook.sandbox import watch_process


@pytest.fixture
def long_check(request: pytest.FixtureRequest) -> None:
    """Skip a test that takes seconds for each of many cases, except in `./dev clients`."""
    if request.config.getoption("markexpr") != "clients":
        pytest.skip("many starts of pi: run ./dev clients")


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of all temporary files of a test; nothing may be left in it."""
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def namespaces(tmp_path: Path) -> None:
    """Skip a test where a command cannot be watched."""
    reports = tmp_path / "reports"
    reports.mkdir()
    words = [sys.executable, "-I", "-S", watch_process.__file__, str(reports), str(tmp_path)]
    subprocess.run([*words, "sealed", "true"], check=True)
    (report,) = (json.loads(file.read_text()) for file in reports.iterdir())
    if "problem" in report:
        pytest.skip(report["problem"])
