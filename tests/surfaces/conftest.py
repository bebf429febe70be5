"""Fixtures for the tests of the surfaces."""

from collections.abc import Callable
from pathlib import Path

import pytest

from offbook.surfaces.cli import main


class Outcome:
    """The exit code and the output of a command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


Offbook = Callable[..., Outcome]


@pytest.fixture
def workspaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for the workspaces of this test and of the processes that it starts."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def offbook_command(capsys: pytest.CaptureFixture[str]) -> Offbook:
    """Return a function that runs a command in this process."""

    def run(*args: object) -> Outcome:
        with pytest.raises(SystemExit) as exit_:
            main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        assert isinstance(exit_.value.code, int)
        return Outcome(exit_.value.code, out, err)

    return run
