"""The doctor says what is here, what was tried, and what to do about the rest."""

import re
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest

from offbook.runs.doctor import PACKAGES, InstalledTool, find_installed
from offbook.surfaces.cli import main


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that is all of the PATH."""
    monkeypatch.delenv("OFFBOOK_CLIENTS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def add_codex(folder: Path, *lines: str) -> None:
    program = folder / "codex"
    program.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    program.chmod(0o755)


def find(name: str) -> InstalledTool:
    return next(finding for finding in find_installed() if finding.name == name)


def test_what_is_missing_comes_with_the_command_that_installs_it(alone: Path):
    found = find("Claude Code")
    assert found.installed is None
    assert found.do == f"npm install -g @anthropic-ai/claude-code@{found.tested}"


def test_what_is_installed_is_asked_for_its_version(alone: Path):
    add_codex(alone, "echo codex-cli 9.8.7")
    found = find("Codex")
    assert (found.installed, found.place) == ("9.8.7", str(alone / "codex"))


def test_what_does_not_run_is_told_apart_from_what_is_missing(
    alone: Path, capsys: pytest.CaptureFixture[str]
):
    add_codex(alone, "exit 1")
    with pytest.raises(SystemExit) as ended:
        main(["doctor"])
    assert not ended.value.code
    told = capsys.readouterr().out
    assert re.search(
        r"^Codex +does not run; \S+ was tested: mend it: npm install", told, re.MULTILINE
    )
    assert re.search(r"^Gemini CLI +is missing; \S+ was tested: npm install", told, re.MULTILINE)
    assert re.search(rf"^openai +{re.escape(version('openai'))}", told, re.MULTILINE)


def test_machines_get_the_same(alone: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["doctor", "--json"])
    assert (
        msgspec.json.decode(capsys.readouterr().out, type=list[InstalledTool]) == find_installed()
    )


def test_a_package_that_is_missing_is_named(alone: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(PACKAGES, "no-such-package", "1.2")
    assert find("no-such-package").do == "pip install no-such-package==1.2"


def test_the_packages_are_tested_in_the_versions_of_the_lock(root: Path):
    lock = (root / "requirements.lock").read_text(encoding="utf-8")
    for name, tested in PACKAGES.items():
        assert f"\n{name}=={tested} " in lock
