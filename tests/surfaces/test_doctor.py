"""The doctor reports installed and tested versions, and a fix for the rest."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook.surfaces import (
    PACKAGES,
    EnvironmentCheck,
    InstalledTool,
    check_environment,
    check_project,
    find_installed,
)
from offbook.surfaces.cli import main


@pytest.fixture
def only_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return an empty folder that is the whole PATH, and the project."""
    monkeypatch.delenv("OFFBOOK_CLIENTS", raising=False)
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", raising=False)
    monkeypatch.chdir(tmp_path)
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
    rows = msgspec.json.decode(capsys.readouterr().out, type=list[dict[str, Any]])
    tools = [row for row in rows if row["kind"] in {"client", "package"}]
    assert msgspec.convert(tools, list[InstalledTool]) == find_installed()
    assert {row["kind"] for row in rows} == {"client", "package", "environment", "project"}


def test_a_missing_package_has_the_command_that_installs_it(
    only_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(PACKAGES, "no-such-package", "1.2")
    assert find("no-such-package").fix == "pip install no-such-package==1.2"


def test_the_tested_versions_are_those_of_the_lock(root: Path):
    lock = (root / "requirements.lock").read_text(encoding="utf-8")
    for name, tested in PACKAGES.items():
        assert f"\n{name}=={tested} " in lock


# --- The environment and the project


def project_checks(root: Path) -> dict[str, EnvironmentCheck]:
    return {check.name: check for check in check_project(root)}


def test_an_empty_project_is_told_to_begin(tmp_path: Path):
    check = project_checks(tmp_path)["tests"]
    assert (check.state, check.fix) == ("missing", "offbook init")


def test_a_test_that_uses_offbook_is_found(tmp_path: Path):
    (tmp_path / "test_shop.py").write_text("def test_shop(offbook): ...\n")
    (tmp_path / "test_other.py").write_text("def test_other(): ...\n")
    assert project_checks(tmp_path)["tests"].detail == "1 file of 2 use Offbook"


def test_a_misspelt_setting_is_wrong(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text("[tool.offbook]\nbudgt = 1\n")
    check = project_checks(tmp_path)["settings"]
    assert check.state == "wrong"
    assert "budgt" in check.detail


CASSETTE = """\
format: offbook.cassette
version: 1
interactions:
  - id: 1
    request: {{prompt_hash: "sha256:...", prompt: Hi}}
    response: {{output: "{output}"}}
"""
SECRET = "sk-proj-" + "Zk3vQ9xLm2Rt7Wp5Yb8Nc4Jd6Hf1Gs0A"


@pytest.mark.parametrize("output, state", [("Hello.", "ok"), (SECRET, "wrong")])
def test_a_cassette_with_a_secret_is_wrong(output: str, state: str, tmp_path: Path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/hi.yaml").write_text(CASSETTE.format(output=output))
    check = project_checks(tmp_path)["cassettes"]
    assert check.state == state
    assert check.fix == ("" if state == "ok" else "offbook cassette verify tests/hi.yaml")


def test_the_doctor_fails_for_a_project_with_something_wrong(
    only_path: Path, capsys: pytest.CaptureFixture[str]
):
    (only_path / "pyproject.toml").write_text("[tool.offbook]\nbudgt = 1\n")
    with pytest.raises(SystemExit) as exit_:
        main(["doctor"])
    assert exit_.value.code == 1
    output = capsys.readouterr().out
    assert re.search(r"^! settings .*budgt.*fix: ", output, re.MULTILINE)
    assert output.endswith("1 wrong: see the lines with !\n")


def test_plugins_that_are_not_loaded_are_wrong(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    [check] = [check for check in check_environment() if check.name == "pytest"]
    assert (check.state, check.fix) == ("wrong", "pytest -p pytest_offbook.plugin")


# --- Completion

SHELLS = {
    "bash": (".local/share/bash-completion/completions/offbook", "_OFFBOOK_COMPLETE=bash_complete"),
    "fish": (".config/fish/completions/offbook.fish", "_OFFBOOK_COMPLETE=fish_complete"),
    "zsh": (".zfunc/_offbook", "#compdef offbook"),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_is_written_where_the_shell_looks(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    name, content = SHELLS[shell]
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    with pytest.raises(SystemExit) as exit_:
        main(["doctor", "--completion"])
    assert not exit_.value.code
    assert content in (tmp_path / name).read_text()


def test_a_shell_without_completion_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("SHELL", "/bin/csh")
    with pytest.raises(SystemExit) as exit_:
        main(["doctor", "--completion"])
    assert exit_.value.code == 2
    assert "no completion for the shell 'csh'" in capsys.readouterr().err


def test_the_written_completion_completes_in_bash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/bash")
    with pytest.raises(SystemExit):
        main(["doctor", "--completion"])
    script = tmp_path / SHELLS["bash"][0]
    words = "COMP_WORDS=(offbook casse); COMP_CWORD=1; _offbook_completion offbook"
    ended = subprocess.run(
        ["/bin/bash", "-c", f'. "{script}"; {words}; echo "${{COMPREPLY[@]}}"'],
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout == "cassette\n", ended.stderr
