"""`offbook view`, `offbook report` and `pytest --offbook-html`: the files that they write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from offbook.surfaces.cli import offbook
from tests.forked import run_pytest
from tests.viewer.test_html_page import read_lines

pytest_plugins = ["pytester"]

TEST = """
from offbook import say, when


def test_good(offbook):
    offbook.session().run(when("Hi", [say("Hello.")]))


def test_bad(offbook):
    offbook.session().run(when("Hi", [say("Hello.")]))
    assert 1 == 2
"""
EVENTS = [
    {"ts": 1, "event": "check.verdict", "data": {"check": "a", "status": "pass"}, "seq": 1},
    {"ts": 2, "event": "_meta.run_end", "data": {"ok": True}, "seq": 2},
]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    return path


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_pytest_writes_the_rehearsals_of_all_tests(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(TEST)
    outcome = run_pytest(pytester, "--offbook-html=page.html", *workers)
    outcome.assert_outcomes(passed=1, failed=1)
    outcome.stdout.fnmatch_lines(["offbook: *page.html: 2 traces"])
    lines = read_lines((pytester.path / "page.html").read_text("utf-8"))
    traces: list[dict[str, Any]] = [
        line["trace"] for line in lines if isinstance(line, dict) and "trace" in line
    ]
    found = {each["name"].rpartition("::")[2]: each["test"]["outcome"] for each in traces}
    assert found == {"test_good": "passed", "test_bad": "failed"}
    (frame,) = [frame for each in traces for frame in each["test"].get("frames", [])]
    assert frame["lines"][frame["line"] - frame["first"]] == "    assert 1 == 2"
    assert frame["function"] == "test_bad"


def test_pytest_says_if_there_is_nothing_to_show(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_plain(): pass")
    outcome = run_pytest(pytester, "--offbook-html=page.html")
    outcome.stdout.fnmatch_lines(["*no page was written: no test used the fixture offbook*"])
    assert not (pytester.path / "page.html").exists()


@pytest.mark.parametrize(
    "name, start",
    [
        ("junit", "<?xml"),
        ("tap", "TAP version 14"),
        ("tap13", "TAP version 13"),
        ("ctrf", "{"),
        ("json", "{"),
        ("html", "<!doctype html>"),
    ],
)
def test_a_report_is_written_in_each_format(trace: Path, name: str, start: str) -> None:
    outcome = CliRunner().invoke(offbook, ["report", str(trace), "--format", name])
    assert outcome.output.startswith(start)


def test_a_folder_without_traces_is_an_error(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(offbook, ["view", str(tmp_path)])
    assert "no traces in this folder" in str(outcome.exception)


def test_the_page_of_a_folder_has_all_its_traces(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text('{"no": "event"}\n')
    target = tmp_path / "page.html"
    outcome = CliRunner().invoke(offbook, ["view", str(tmp_path), "-o", str(target)])
    assert outcome.exception is None
    names = [line["trace"]["name"] for line in read_lines(target.read_text()) if "trace" in line]
    assert names == [trace.name]


HEADER = '{"ts":1,"event":"_meta.trace","data":{"format":"offbook.trace","version":1}}\n'


@pytest.mark.parametrize("content", ["", HEADER], ids=["empty", "header"])
@pytest.mark.parametrize(
    "words", [["view"], *(["report", "--format", f] for f in ("junit", "html"))]
)
def test_a_trace_without_events_is_refused(tmp_path: Path, words: list[str], content: str):
    path = tmp_path / "empty.jsonl"
    path.write_text(content)
    outcome = CliRunner().invoke(offbook, [*words, str(path), "-o", str(tmp_path / "page")])
    assert "no events in this trace" in str(outcome.exception)
    assert not (tmp_path / "page").exists()
