"""The messages of the first mistakes: what is wrong, where, and what to do."""

import sys
from pathlib import Path

import pytest

from offbook import call, say, session, when
from tests.forked import run_python

SCRIPT = "- when: Hello\n  do:\n    - call: price\n    - say: Done.\n"
AGENT = """
import os, urllib.request
body = b'{"model": "m", "messages": [{"role": "user", "content": "Hello"}]}'
urllib.request.urlopen(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop.yaml").write_text(SCRIPT)
    (tmp_path / "agent.py").write_text(AGENT)
    return tmp_path


def run_script(project: Path, *words: str):
    command = ("run", "--script", "shop.yaml", *words, "--", sys.executable, "agent.py")
    return run_python("-m", "offbook", *command, cwd=project)


def test_a_failed_run_keeps_its_trace_and_says_how_to_show_it(project: Path):
    result = run_script(project)
    assert result.returncode == 1
    assert "trace: offbook show .offbook/traces/shop.jsonl" in result.stderr
    assert (project / ".offbook" / "traces" / "shop.jsonl").exists()


def test_a_given_trace_is_named(project: Path):
    assert "trace: offbook show run.jsonl" in run_script(project, "--trace", "run.jsonl").stderr
    assert not (project / ".offbook").exists()


def test_a_passing_run_keeps_no_trace(project: Path):
    (project / "shop.yaml").write_text("- when: Hello\n  do:\n    - say: Done.\n")
    assert run_script(project).returncode == 0
    assert not (project / ".offbook").exists()


def test_the_fix_of_a_playbook_in_yaml_is_yaml(project: Path):
    error = run_script(project).stderr
    assert "add unknown: true to the call" in error
    assert "unknown=True" not in error


def test_a_missing_result_names_the_nearest_tool():
    with session() as rehearsal:
        run = rehearsal.run(when("Hi", [call("bash", {"command": "echo hi"}), say("Hi.")]))
    with pytest.raises(IndexError, match="'bahs' has 0 results: did you mean 'bash'"):
        run.results("bahs")[0]
    with pytest.raises(IndexError, match=r"'bash' has 1 result$"):
        run.results("bash")[1]
