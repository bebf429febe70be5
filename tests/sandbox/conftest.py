"""A temporary folder that must be empty after each verification."""

from collections.abc import Iterator
from pathlib import Path

import pytest


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
