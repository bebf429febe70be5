"""`offbook determinism` reports equal and different runs."""

from pathlib import Path

import msgspec
import pytest

from offbook.sources.server import Server
from tests.sources.cassette.conversations import Counting
from tests.surfaces.conftest import Offbook

ASKING = """
import json, os, urllib.request
prompt = " ".join({"one", "two", "three", "four"})
body = {"model": "gpt-5", "messages": [{"role": "user", "content": prompt}]}
url, headers = os.environ["OPENAI_BASE_URL"], {"content-type": "application/json"}
data = json.dumps(body).encode()
urllib.request.urlopen(urllib.request.Request(f"{url}/chat/completions", data, headers))
"""
UNORDERED = "print(list({'one', 'two', 'three', 'four'}))"


def test_a_scenario_that_cannot_be_read_is_no_failed_run(tmp_path: Path, offbook_command: Offbook):
    (tmp_path / "broken.yaml").write_text("name: [")
    assert offbook_command("determinism", tmp_path / "broken.yaml").code == 2


def test_equal_and_different_runs_are_reported(tmp_path: Path, offbook_command: Offbook):
    (tmp_path / "same.py").write_text("print('hello')")
    (tmp_path / "other.py").write_text(UNORDERED)
    (tmp_path / "failing.py").write_text("raise SystemExit(3)")
    same = offbook_command("determinism", tmp_path / "same.py", "--runs", 3, "--freeze-clock")
    assert (same.code, "3 passes are equal (0 exchanges)" in same.out) == (0, True)
    failing = offbook_command("determinism", tmp_path / "failing.py")
    assert (failing.code, "each exited with 3" in failing.out) == (1, True)
    with Server() as server:
        url = server.mount(Counting(), run="").openai
        options = ("--upstream", url, "--runs", 4)
        other = offbook_command("determinism", tmp_path / "other.py", *options)
    assert (other.code, "at stdout line 1:" in other.out) == (1, True)
    report = offbook_command("determinism", tmp_path / "same.py", "--json")
    assert msgspec.json.decode(report.out)["divergences"] == []


SEED = "import os\nn = int(os.environ['PYTHONHASHSEED'])\n"  # a different number in every pass


@pytest.mark.parametrize(
    "code, cause",
    [
        ("print(['one two', 'two one'][n])", "the same words in another order, as of a set: sort"),
        ("print('2026-01-1%d' % n)", "dates differ: stop the clock with --freeze-clock, or ignore"),
        ("print('port', 4000 + n)", 'ports differ: ignore them with --redact \'{"patterns"'),
    ],
    ids=["order", "date", "port"],
)
def test_the_likely_cause_of_a_difference_is_named_with_what_to_do(
    tmp_path: Path, offbook_command: Offbook, code: str, cause: str
):
    (tmp_path / "other.py").write_text(SEED + code)
    assert f"  cause: {cause}" in offbook_command("determinism", tmp_path / "other.py").out


def test_a_different_request_is_shown_by_its_path_and_text(
    tmp_path: Path, offbook_command: Offbook
):
    (tmp_path / "other.py").write_text(ASKING)
    with Server() as server:
        url = server.mount(Counting(), run="").openai
        other = offbook_command("determinism", tmp_path / "other.py", "--upstream", url)
    assert "pass 1: model.request $.new[0].blocks[0].text: " in other.out
    assert "cause: the same words in another order" in other.out


@pytest.mark.parametrize(
    "code, expected",
    [
        ("print('x' * 99 + '\\n' * 1, end='')\nprint('y' * 200_000)\nprint(n)", "stdout line 3:"),
        (
            "print('a'); print('b'); print(n)",
            "stdout line 3:\n  before: a\n  before: b\n  pass 1: 0\n",
        ),
        ("print('long ' * 99 + 'z' * n)", "pass 2: long …"),
        ("print('same')\nif n: print('more')", "  pass 1: nothing\n  pass 2: more\n"),
        (
            "raise SystemExit(n)",
            "differs from pass 1 in its exit code:\n  pass 1: 0\n  pass 2: 1\n",
        ),
    ],
    ids=["after long output", "with context", "a longer line", "an additional line", "exit code"],
)
def test_the_first_difference_is_reported(
    tmp_path: Path, offbook_command: Offbook, code: str, expected: str
):
    (tmp_path / "other.py").write_text(SEED + code)
    result = offbook_command("determinism", tmp_path / "other.py")
    assert result.code == 1
    assert expected in result.out
