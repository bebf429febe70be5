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


FAILING_TEST = """
from offbook import say, when

def test_greeting(offbook):
    run = offbook.session().run(when("Hi", [say("Hi.")]))
    assert run.output == "Bye.", object()
"""


@pytest.fixture
def failed_test(tmp_path: Path) -> str:
    (tmp_path / "test_shop.py").write_text(FAILING_TEST)
    words = ("-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist")
    return run_python("-m", "pytest", "test_shop.py", *words, cwd=tmp_path).stdout


def test_the_trace_under_a_failed_test_ends_in_its_verdict(failed_test: str):
    lines = failed_test.partition("offbook trace")[2].partition("kept:")[0].splitlines()
    assert lines[-2:] == ["└─ passed", "✗ test: AssertionError: <object object>"]


def test_a_kept_trace_ends_in_the_verdict_of_the_test(failed_test: str, tmp_path: Path):
    kept = failed_test.partition("kept: ")[2].splitlines()[0]
    shown = run_python("-m", "offbook", "show", kept, cwd=tmp_path).stdout
    assert "✗ test: AssertionError: <object object>" in shown


def test_a_failed_test_shows_the_fixture_without_an_address(failed_test: str):
    assert "offbook = <offbook of test_shop-test_greeting>" in failed_test
