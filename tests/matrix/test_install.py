"""A home that fails to install reports the reason and is not ready."""

from pathlib import Path

import pytest

from tests.matrix import homes
from tests.matrix.homes import HOMES, Home
from tests.matrix.install import main


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    node = Home("node", ("openai@1",), npm=True)
    monkeypatch.setattr(homes, "CLIENTS_FOLDER", tmp_path)
    monkeypatch.setitem(HOMES, "node", node)
    return node


def test_a_failed_installation_reports_its_reason(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("PATH", "")
    assert "not tried" in home.describe_missing()
    assert main(["node"]) == 1
    assert not home.ready
    assert "node is not installed: npm is missing" in home.describe_missing()
    assert "node cannot be installed: npm is missing" in capsys.readouterr().err


def test_a_home_with_other_versions_is_not_ready(home: Home):
    home.folder.mkdir()
    home.stamp.write_text("openai@1")
    assert home.ready
    home.stamp.write_text("openai@0")
    assert not home.ready
