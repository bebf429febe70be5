"""The reports of a run show what failed, what was flaky and what was left out."""

import json
from pathlib import Path
from typing import Any

import pytest

from offbook.evals import (
    RESULTS,
    CaseResult,
    FinishedRun,
    RunSummary,
    github_annotations,
    render_counts,
    render_markdown,
    render_table,
    report_json,
    summarize_cases,
    summarize_run,
    to_suites,
)
from offbook.secrets import outgoing
from offbook.trace import Verdict


def finished(folder: Path, *results: CaseResult) -> FinishedRun:
    """Return a run with these results."""
    lines = [json.dumps({"id": result.id, "millis": 4}) for result in results]
    (folder / RESULTS).write_text("".join(f"{line}\n" for line in lines))
    cases = summarize_cases(results)
    return FinishedRun(folder, summarize_run("r", ["p"], cases), cases)


def failure(name: str, **fields: Any) -> CaseResult:
    verdicts = (Verdict("check", "fail", "too slow"),)
    return CaseResult(name, status="fail", verdicts=verdicts, **fields)


def passes(count: int) -> list[CaseResult]:
    return [CaseResult(f"c{number}", number=number) for number in range(count)]


def test_a_long_table_has_the_failing_cases_and_the_number_of_the_others(tmp_path: Path):
    run = finished(tmp_path, *passes(200), failure("bad", number=200))
    assert list(render_table(run)) == [
        "FAIL     bad",
        "         too slow",
        "         … and 200 passing cases",
        "FAIL 200 passed, 1 blocking failed, 0 warning, 0 informational, 201 total",
    ]


def test_a_long_page_has_the_failing_cases_first(tmp_path: Path):
    lines = render_markdown(finished(tmp_path, *passes(100), failure("bad", number=100)))
    rows = [line for line in lines.splitlines() if line.startswith(("| fail", "| passed"))]
    assert (len(rows), rows[0]) == (100, "| fail | bad | blocking | 0/1 | too slow |")
    assert lines.endswith("\n… and 1 more case\n")


def test_the_ids_of_cases_are_not_taken_for_secrets(tmp_path: Path):
    page = render_markdown(finished(tmp_path, CaseResult("order-1"), failure("order-2", number=1)))
    assert outgoing(page) == page


COUNTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "without data": ({"no_data": 2}, ["2 without data"]),
    "one error": ({"errors": 1}, ["1 error,"]),
    "errors": ({"errors": 2}, ["2 errors,"]),
    "flaky": ({"flaky": 1}, ["1 flaky"]),
    "a run that stopped": (
        {"not_run": 3, "stopped": "interrupted", "cost_usd": 0.5},
        ["3 not run", "\nstopped: interrupted\ncost of this run: 0.5000 USD"],
    ),
    "kept results": (
        {"unverified": tuple("abcdefghijkl"), "unverified_reason": "a real model"},
        ["kept, not known to be unchanged (a real model): a, b, c, d, e, f, g, h, i, j and 2 more"],
    ),
}


@pytest.mark.parametrize("fields, shown", COUNTS.values(), ids=COUNTS)
def test_a_count_is_shown_if_there_is_any(fields: dict[str, Any], shown: list[str]):
    text = "\n".join(render_counts(RunSummary("r", ["p"], **fields)))
    assert [part for part in shown if part not in text] == []
    others = {"without data", "error", "flaky", "not run", "stopped"}
    assert not [word for word in others if word in text and word not in " ".join(shown)]


@pytest.mark.parametrize(
    "severity, key, mark",
    [("warning", "warnings", "warning: "), ("informational", "informational", "info: ")],
)
def test_a_failure_of_a_lower_severity_is_shown_and_passes(
    tmp_path: Path, severity: str, key: str, mark: str
):
    result = failure("bad", severity=severity)
    run = finished(tmp_path, result)
    assert f"         {mark}too slow" in render_table(run)
    (case,) = to_suites(run)[0].cases
    assert (case.status, case.message) == ("skipped", f"{severity}: too slow")
    verdict = {"check": "check", "status": "fail", "message": "too slow"}
    stored = {"id": "bad", "status": "fail", "severity": severity, "verdicts": [verdict]}
    (tmp_path / RESULTS).write_text(json.dumps({**stored, "error": "lost", "cached": True}) + "\n")
    (reported,) = report_json(run)["cases"]
    assert (reported["pass"], reported[key]) == (True, ["too slow", "lost"])
    assert (reported["error"], reported["cached"], "trace" in reported) == ("lost", True, False)


def test_a_flaky_case_has_its_failed_trials(tmp_path: Path):
    trials = [CaseResult("c", 1), failure("c", trial=2), CaseResult("c", 3)]
    run = finished(tmp_path, *trials)
    (case,) = to_suites(run)[0].cases
    assert [attempt.error for attempt in case.history] == ["1 of 3 trials failed: too slow"]
    assert case.millis == 12
    assert next(iter(render_table(run))).startswith("FAIL     c  2/3 passed (")


# a file of a pack -> the line of its case
PACKS = {
    "pack.json": ('{"cases": [\n{"id": "bad", "run": "x"}]}', 2),
    "pack.toml": ('[[cases]]\nname = "x"\nid = "bad"  # slow\n', 3),
    "pack.yaml": ("cases:\n  - id: bad\n", 2),
    "other.toml": ('[[cases]]\nid = "bad-2"\n', 0),
    "gone.toml": (None, 0),
}


@pytest.mark.parametrize("name", PACKS)
def test_an_annotation_has_the_line_of_its_case(tmp_path: Path, name: str):
    text, line = PACKS[name]
    if text is not None:
        (tmp_path / name).write_text(text)
    run = finished(tmp_path, CaseResult("good"), failure("bad", number=1))
    (command,) = github_annotations(run, [tmp_path / name])
    assert (f"{name},line={line}," in command) is (line > 0)
    assert command.endswith("title=bad::too slow")
