"""The doctor reports installed and tested versions, and a fix for the rest."""

import re
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest

from offbook.surfaces import PACKAGES, InstalledTool, find_installed
from offbook.surfaces.cli import main


@pytest.fixture
def only_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return an empty folder that is the whole PATH."""
    monkeypatch.delenv("OFFBOOK_CLIENTS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def add_codex(folder: Path, *lines: str) -> None:
    program = folder / "codex"
    program.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    program.chmod(0o755)


def find(name: str) -> InstalledTool:
    return next(tool for tool in find_installed() if tool.name == name)


def test_a_missing_client_has_the_command_that_installs_it(only_path: Path):
    tool = find("Claude Code")
    assert tool.installed is None
    assert tool.fix == f"npm install -g @anthropic-ai/claude-code@{tool.tested}"


def test_an_installed_client_reports_its_version(only_path: Path):
    add_codex(only_path, "echo codex-cli 9.8.7")
    tool = find("Codex")
    assert (tool.installed, tool.path) == ("9.8.7", str(only_path / "codex"))


def test_a_broken_client_is_distinguished_from_a_missing_one(
    only_path: Path, capsys: pytest.CaptureFixture[str]
):
    add_codex(only_path, "exit 1")
    with pytest.raises(SystemExit) as exit_:
        main(["doctor"])
    assert not exit_.value.code
    output = capsys.readouterr().out
    assert re.search(
        r"^Codex +does not run; tested with \S+; fix: reinstall it: npm install",
        output,
        re.MULTILINE,
    )
    assert re.search(
        r"^Gemini CLI +not installed; tested with \S+; fix: npm install", output, re.MULTILINE
    )
    assert re.search(rf"^openai +{re.escape(version('openai'))}", output, re.MULTILINE)


def test_a_broken_client_shows_what_it_printed(only_path: Path, capsys: pytest.CaptureFixture[str]):
    add_codex(only_path, "echo 'codex needs Node 22' >&2", "exit 1")
    with pytest.raises(SystemExit):
        main(["doctor"])
    assert "does not run: codex needs Node 22; tested with" in capsys.readouterr().out


def test_a_version_on_stderr_is_read(only_path: Path):
    add_codex(only_path, "echo codex-cli 9.8.7 >&2")
    assert find("Codex").installed == "9.8.7"


def test_npm_is_listed_for_the_sandbox(only_path: Path, capsys: pytest.CaptureFixture[str]):
    assert find("npm").fix == "install npm"
    program = only_path / "npm"
    program.write_text("#!/bin/sh\necho 11.19.1\n")
    program.chmod(0o755)
    with pytest.raises(SystemExit):
        main(["doctor"])
    assert re.search(r"^npm +11\.19\.1$", capsys.readouterr().out, re.MULTILINE)


def test_the_json_output_has_the_same_tools(only_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["doctor", "--json"])
    assert (
        msgspec.json.decode(capsys.readouterr().out, type=list[InstalledTool]) == find_installed()
    )


def test_a_missing_package_has_the_command_that_installs_it(
    only_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(PACKAGES, "no-such-package", "1.2")
    assert find("no-such-package").fix == "pip install no-such-package==1.2"


def test_the_tested_versions_are_those_of_the_lock(root: Path):
    lock = (root / "requirements.lock").read_text(encoding="utf-8")
    for name, tested in PACKAGES.items():
        assert f"\n{name}=={tested} " in lock
