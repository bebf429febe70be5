"""What cannot be installed says why, and never counts as installed."""

from pathlib import Path

import pytest

from tests.matrix import homes
from tests.matrix.homes import HOMES, Home
from tests.matrix.install import main


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home("node", ("openai@1",), npm=True)
    monkeypatch.setattr(homes, "PLACE", tmp_path)
    monkeypatch.setitem(HOMES, "node", made)
    return made


def test_a_home_that_cannot_be_made_says_why(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("PATH", "")
    assert "not tried" in home.complain()
    assert main(["node"]) == 1
    assert not home.ready
    assert "node is not installed: npm is missing" in home.complain()
    assert "node cannot be installed: npm is missing" in capsys.readouterr().err


def test_a_home_of_other_versions_is_not_the_one_that_is_wanted(home: Home):
    home.folder.mkdir()
    home.stamp.write_text("openai@1")
    assert home.ready
    home.stamp.write_text("openai@0")
    assert not home.ready
