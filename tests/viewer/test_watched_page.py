"""`offbook view --watch`: tests run again after a change, and the page gets their results."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from click.testing import CliRunner

from offbook.surfaces.cli import offbook
from offbook.viewer import PageTrace
from offbook.viewer.watched_page import ResultsFeed, find_test_files

SECONDS = 300
AGENT = "def answer(text):\n    return text.upper()\n"
PLAYBOOK = "- {when: Go, do: [{say: hello}]}\n"
TESTS = """
from {name} import answer
from pathlib import Path
from offbook.sources.loading import read_script

def test_{name}(offbook):
    run = offbook.session().run(*read_script(Path("{name}.yaml")))
    assert answer(run.output) == "HELLO"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    for name in ("agent", "other"):
        (tmp_path / f"{name}.py").write_text(AGENT)
        (tmp_path / f"{name}.yaml").write_text(PLAYBOOK)
        (tmp_path / f"test_{name}.py").write_text(TESTS.format(name=name))
    return tmp_path


def read_results(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    """Yield the outcomes of both tests, each time that the page gets them."""
    outcomes: dict[str, str] = {}
    for line in lines:
        if line.startswith("data: {"):
            record: dict[str, Any] = msgspec.json.decode(line.removeprefix("data: "))
            if "clear" in record:
                outcomes = {}
            elif "trace" in record:
                name = record["trace"]["name"].split("::")[-1]
                outcomes[name] = record["trace"]["test"]["outcome"]
                if len(outcomes) == 2:
                    yield outcomes


def test_a_change_runs_the_tests_that_it_affects(project: Path):
    command = [sys.executable, "-m", "offbook", "view", "--watch", "."]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=project, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            with httpx.stream("GET", f"{url}events", timeout=SECONDS) as reply:
                results = read_results(reply.iter_lines())
                assert next(results) == {"test_agent": "passed", "test_other": "passed"}
                (project / "agent.py").write_text(AGENT.replace("upper", "lower"))
                assert next(results) == {"test_agent": "failed", "test_other": "passed"}
                (project / "agent.py").write_text(AGENT)
                assert next(results) == {"test_agent": "passed", "test_other": "passed"}
                (project / "other.yaml").write_text(PLAYBOOK.replace("hello", "bye"))
                assert next(results) == {"test_agent": "passed", "test_other": "failed"}
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert process.returncode == 130
    assert output.count("1 passed") == 3  # both at the start, and the repaired one
    assert output.count("1 failed") == 2


def test_a_page_that_is_opened_later_gets_the_last_results_only():
    feed = ResultsFeed(Path("project"))
    feed.show([PageTrace("first", [])])
    feed.show([PageTrace("second", [])])
    lines = feed.lines[feed.first :]
    records = [msgspec.json.decode(line, type=dict[str, Any]) for line in lines]
    assert records[0] == {"clear": True}
    assert [record["trace"]["name"] for record in records if "trace" in record] == ["second"]


def test_test_files_of_installed_packages_and_hidden_folders_are_left_out(tmp_path: Path):
    for name in (
        "test_a.py",
        "b_test.py",
        "sub/test_c.py",
        ".venv/test_d.py",
        "node_modules/test_e.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = [str(path.relative_to(tmp_path)) for path in find_test_files([tmp_path])]
    assert sorted(found) == ["b_test.py", "sub/test_c.py", "test_a.py"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["nothing"], "no such file or folder: nothing"),
        (["."], "no test files in ."),
        ([".", "--live"], "--live and --watch exclude each other"),
    ],
)
def test_nothing_to_watch_is_a_usage_error(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    outcome = CliRunner().invoke(offbook, ["view", "--watch", *arguments])
    assert message in str(outcome.exception)
