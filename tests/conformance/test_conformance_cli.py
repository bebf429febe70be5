"""`offbook conformance`: output, exit codes, reports, and the progress line of a terminal."""

import json
import os
import pty
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple, cast

import junitparser
import pytest

from offbook.surfaces.cli import main
from tests.forked import forked_command

RUN = ("--run", "sh {file}")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite with a case of each outcome."""
    folder = tmp_path / "suite"
    (folder / "sub").mkdir(parents=True)
    files = {
        "good.sh": "echo hi",
        "good.expected": "hi\n",
        "sub/error.sh": "echo boom >&2; exit 1",
        "sub/error.error": "boom",
        "bad.sh": "echo one; echo two",
        "bad.expected": "one\nthree\n",
        "known.sh": "# @xfail: issue 7\nexit 1",
        "known.expected": "hi",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def conformance(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("CI", raising=False)

    def run(*words: object) -> Outcome:
        with pytest.raises(SystemExit) as exit_:
            main(["conformance", *map(str, words)])
        assert isinstance(exit_.value.code, int)
        out, err = capsys.readouterr()
        return Outcome(exit_.value.code, out, err)

    return run


def test_the_failures_and_the_numbers_are_shown(suite: Path, conformance: Any):
    outcome = conformance(suite, *RUN)
    assert outcome.code == 1
    assert "FAIL  bad.sh: the output differs\n  --- expected\n" in outcome.out
    assert "\n  -three\n  +two\n" in outcome.out
    assert "good.sh" not in outcome.out
    assert "2 passed, 1 failed, 1 xfailed, 4 total in " in outcome.out
    assert outcome.err == ""  # no progress line without a terminal


def test_v_shows_every_case_with_its_time(suite: Path, conformance: Any):
    lines = conformance(suite, *RUN, "-v").out.splitlines()
    assert any(re.fullmatch(r"PASS  good\.sh \(\d+ ms\)", line) for line in lines)
    assert any(re.fullmatch(r"XFAIL known\.sh \(\d+ ms\): issue 7", line) for line in lines)


def test_a_long_difference_is_shortened_without_v(suite: Path, conformance: Any):
    (suite / "bad.sh").write_text("seq 1 100")
    assert "more lines; -v shows all" in conformance(suite, *RUN).out
    assert "\n  +100\n" in conformance(suite, *RUN, "-v").out


def test_timing_shows_percentiles_and_the_slowest(suite: Path, conformance: Any):
    out = conformance(suite, *RUN, "--timing").out
    assert re.search(r"average \d+ ms, p50 \d+ ms, p95 \d+ ms, p99 \d+ ms\nslowest:\n +\d+ ms", out)


def test_a_filter_selects_cases(suite: Path, conformance: Any):
    outcome = conformance(suite, *RUN, "--filter", "good|sub/")
    assert (outcome.code, "2 passed, 0 failed, 2 total" in outcome.out) == (0, True)


@pytest.mark.parametrize("words", [(), ("--filter", "no-such-case")])
def test_an_empty_run_is_a_failure(tmp_path: Path, words: tuple[str, ...], conformance: Any):
    outcome = conformance(tmp_path, *RUN, *words)
    assert outcome.code == 1
    assert "nothing was checked" in outcome.err


@pytest.mark.parametrize(
    "words, message",
    [
        ((), "no command to run the cases with"),
        (("--run", "sh"), "the command 'sh' does not name the file"),
        ((*RUN, "--filter", "re:("), "--filter: invalid pattern"),
        ((*RUN, "--jobs", "0"), "0 is not in the range"),
        ((*RUN, "--timeout", "0"), "0.0 is not in the range"),
        ((*RUN, "--fliter", "x"), "--filter"),
    ],
)
def test_wrong_usage_is_explained(
    suite: Path, words: tuple[str, ...], message: str, conformance: Any
):
    outcome = conformance(suite, *words)
    assert outcome.code == 2
    assert message in outcome.err


def test_a_missing_folder_is_an_error(tmp_path: Path, conformance: Any):
    outcome = conformance(tmp_path / "missing", *RUN)
    assert (outcome.code, "missing: no such folder" in outcome.err) == (2, True)


def test_two_expectations_are_refused_before_anything_runs(suite: Path, conformance: Any):
    (suite / "good.error").write_text("x")
    (suite / "bad.sh").write_text(f"touch {suite}/ran")
    outcome = conformance(suite, *RUN)
    assert outcome.code == 2
    assert "two expectations for one case" in outcome.err
    assert not (suite / "ran").exists()


def test_json_has_every_case_in_order(suite: Path, conformance: Any):
    report = json.loads(conformance(suite, *RUN, "--json").out)
    assert report["ok"] is False
    summary = {name: count for name, count in report["summary"].items() if name != "seconds"}
    assert summary == {
        "passed": 2, "failed": 1, "xfailed": 1, "xpassed": 0, "updated": 0, "total": 4,
    }  # fmt: skip
    outcomes = {each["name"]: each["outcome"] for each in report["results"]}
    assert list(outcomes.items()) == [
        ("bad.sh", "failed"),
        ("good.sh", "passed"),
        ("known.sh", "xfailed"),
        ("sub/error.sh", "passed"),
    ]


def test_junit_has_every_case(suite: Path, tmp_path: Path, conformance: Any):
    path = tmp_path / "junit.xml"
    conformance(suite, *RUN, "--junit", path)
    (report,) = cast("Any", junitparser.JUnitXml).fromfile(str(path))
    assert (report.tests, report.failures, report.skipped) == (4, 1, 1)
    cases = {case.name: case for case in report}
    assert "+two" in str(cases["bad.sh"].result[0].text)
    assert cases["known.sh"].result[0].message == "issue 7"


def test_an_update_is_written_and_shown(suite: Path, conformance: Any):
    outcome = conformance(suite, *RUN, "--update")
    assert outcome.code == 0
    assert f"WRITE bad.sh: wrote {suite}/bad.expected" in outcome.out
    assert (suite / "bad.expected").read_text() == "one\ntwo\n"
    assert conformance(suite, *RUN).code == 0


def test_an_update_is_refused_in_ci(suite: Path, conformance: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CI", "true")
    outcome = conformance(suite, *RUN, "--update")
    assert (outcome.code, "refused in CI" in outcome.err) == (2, True)
    assert (suite / "bad.expected").read_text() == "one\nthree\n"


def test_a_secret_in_the_output_is_not_shown(
    suite: Path, conformance: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-abcdefghijklmnop1234567890")
    (suite / "bad.sh").write_text("echo $OPENAI_API_KEY")
    outcome = conformance(suite, *RUN, "-v", "--junit", tmp_path / "junit.xml")
    assert "abcdefghijklmnop" not in outcome.out + (tmp_path / "junit.xml").read_text()


def test_settings_of_the_folder_are_used(suite: Path, conformance: Any):
    (suite / "conformance.toml").write_text('timeout = 0.2\n[run]\nsh = "sh {file}"\n')
    (suite / "bad.sh").write_text("sleep 100")
    outcome = conformance(suite)
    assert "FAIL  bad.sh: killed after 0.2 s" in outcome.out
    assert "2 passed, 1 failed" in outcome.out


def test_a_terminal_gets_a_line_of_progress_that_is_removed(suite: Path):
    ours, theirs = pty.openpty()
    command = forked_command("-m", "offbook", "conformance", suite, *RUN)
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, check=False)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # the end of a terminal
        pass
    os.close(ours)
    assert run.returncode == 1
    assert re.search(rb"\r\x1b\[K\d/4", shown)
    assert shown.endswith(b"\r\x1b[K")
