"""A target that does not do the same twice is found out, and told where."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from offbook.errors import UsageError
from offbook.runs.determinism import check_determinism, find_command
from tests.sources.cassette.talks import Counting

ASKING = """
import json, os, sys, urllib.request
{extra}
body = json.dumps({{"model": "gpt-5", "messages": [{{"role": "user", "content": {prompt}}}]}})
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
request = urllib.request.Request(url, body.encode(), {{"content-type": "application/json"}})
print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
"""
SAME = ASKING.format(extra="print(os.getcwd())", prompt='"hello"')
SETS = ASKING.format(extra="", prompt='" ".join({"one", "two", "three", "four", "five"})')
PRINTS = ASKING.format(extra="print(list({'one', 'two', 'three', 'four'}))", prompt='"hello"')
EXITS = "import os\nraise SystemExit(0 if os.environ['PYTHONHASHSEED'] == '0' else 3)"


def script(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "agent.py"
    path.write_text(text)
    return find_command(str(path))[0]


def test_a_target_that_does_the_same_each_time_agrees(tmp_path: Path):
    model = Counting()
    report = check_determinism(script(tmp_path, SAME), live=model, runs=3)
    assert report.divergences == ()
    assert (report.runs, report.exchanges, model.asked) == (3, 2, 1)


@pytest.mark.parametrize(
    "text, what",
    [(SETS, "exchange"), (PRINTS, "line of stdout"), (EXITS, "the exit code")],
)
def test_what_differs_is_named_with_its_place(tmp_path: Path, text: str, what: str):
    report = check_determinism(script(tmp_path, text), live=Counting())
    (divergence,) = report.divergences
    assert (divergence.run, divergence.what) == (2, what)
    assert "pass 1:" in str(divergence)
    assert divergence.first != divergence.other


def test_without_shuffling_the_order_of_sets_is_no_divergence(tmp_path: Path):
    report = check_determinism(script(tmp_path, SETS), live=Counting(), shuffle=False)
    assert report.divergences == ()


def test_a_target_that_needs_a_model_and_has_none_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="--cassette FILE, or --live"):
        check_determinism(script(tmp_path, SAME))


def test_a_cassette_beside_the_target_is_found(tmp_path: Path):
    (tmp_path / "agent.py").write_text(SAME)
    (tmp_path / "agent.cassette.yaml").write_text("interactions:\n")
    command, cassette = find_command(str(tmp_path / "agent.py"))
    assert command == [sys.executable, str(tmp_path / "agent.py")]
    assert cassette == tmp_path / "agent.cassette.yaml"


def test_a_test_is_run_by_pytest(tmp_path: Path):
    path = tmp_path / "test_one.py"
    path.write_text("def test_it():\n    assert True\n")
    command, _ = find_command(f"{path}::test_it")
    assert command[1:3] == ["-m", "pytest"]
    assert check_determinism(command).divergences == ()


@pytest.mark.parametrize("runs", [0, 1])
def test_one_run_agrees_with_nobody(runs: int):
    with pytest.raises(UsageError, match="cannot be compared"):
        check_determinism(["true"], runs=runs)


def test_an_unknown_target_is_refused():
    with pytest.raises(UsageError, match="no such target"):
        find_command("nowhere.py")
