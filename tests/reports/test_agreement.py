"""Reference parsers read the same names and statuses from the three reports of a run."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from offbook.exchange import Reply, Request, Text
from offbook.reports import Attempt, CtrfReport, JUnitReport, Suite, TapReport, collect_suite
from offbook.trace import Event, Trace
from offbook.workflows import check, evaluate_with_source, report, run, setup
from tests.reports.test_formats import (
    CTRF_SCHEMA,
    JUNIT_XSD,
    etree,
    from_ctrf,
    from_junit,
    from_tap,
    jsonschema,
    names_and_statuses,
    without_errors,
)

SPECIAL_TEXT = "\x00\x1b[31m# SKIP # TODO \\\"'<>&]]>🎭\u2028\ud800 ok 1 - \n  ---\n...Bail out!"
texts = st.text(st.characters() | st.sampled_from(SPECIAL_TEXT), max_size=30) | st.sampled_from(
    [
        "",
        " ",
        "same",
        "same",
        "# SKIP",
        "x" * 1000,
        "1..9",
        "Bail out! no",
        "\n---\n",
        "TAP version",
    ]
)


def verdict_event(name: str, status: str, message: str, actual: str) -> Event:
    data = {"check": name, "status": status, "message": message, "expected": "e", "actual": actual}
    return Event(1, "check.verdict", data)


statuses = st.sampled_from(["pass", "fail", "no_data", "warn", "error"])
verdicts = st.builds(verdict_event, texts, statuses, texts, texts)


def assert_reports_agree(suite: Suite, commands: Path) -> None:
    """Assert that names and statuses are the same in all reports, and that names are unique."""
    expected = names_and_statuses(suite)
    assert from_junit(JUnitReport().render(suite)) == expected
    assert from_ctrf(CtrfReport().render(suite)) == without_errors(expected)
    assert from_tap(TapReport().render(suite), commands) == without_errors(expected)
    names = [name for name, _ in expected]
    assert len(set(names)) == len(names)


@settings(
    max_examples=8,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(verdicts, min_size=1, max_size=40), st.booleans())
def test_the_three_reports_agree_on_any_verdicts(
    npm_parsers: Path,
    events: list[Event],
    flaky: bool,  # noqa: FBT001 - drawn
):
    history = (Attempt(1, f"timeout {SPECIAL_TEXT}", "timeout"),) if flaky else ()
    assert_reports_agree(
        collect_suite(events, f"suite {SPECIAL_TEXT}", trace="s.jsonl", history=history),
        npm_parsers,
    )


class Judge:
    """A judge that gives the plan the best score and everything else the worst."""

    async def reply(self, request: Request, /) -> Reply:
        score = 5 if "plan" in request.prompt.lower() else 1
        return Reply((Text(f'{{"reasoning": "quoted: \\"# SKIP\\"", "score": {score}}}'),))


@pytest.fixture
async def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run, check and evaluate a loop; some verdicts pass, some fail, some are errors."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    workspace = Path(setup("w", scratchpad="The plan is # TODO").workspace_path)
    await run("w", "Go", mock_responses=["\x1b[31mred\x1b[0m 🎭\nLOOP_COMPLETE"])
    check(
        "w",
        [
            {"type": "exit_code", "expected": 0},
            {"type": "exit_code", "expected": 0},
            {"type": "exit_code", "expected": 1},
            {"type": "stdout_contains", "pattern": "green # SKIP"},
            {"type": "event_occurred", "topic": 'a"<\x1b>'},
            {"type": "file_contains", "path": "a.txt", "pattern": "["},
            {"type": "cost_within", "max_dollars": 1},
        ],
    )
    evaluations = [
        {"criterion": "plan_quality", "target": "scratchpad"},
        {"criterion": "custom", "target": "output", "custom_prompt": "Is it calm?"},
    ]
    await evaluate_with_source(Judge(), "w", evaluations)
    return workspace


def test_assertions_and_evaluations_of_a_run_are_reported_together(judged: Path, npm_parsers: Path):
    history = (Attempt(1, "timeout after 30 s", "timeout"),)
    suite = collect_suite(Trace(judged.parent / "session.jsonl"), "w", history=history)
    statuses = [case.status for case in suite.cases]
    assert statuses == [
        *["passed", "passed", "failed", "failed", "failed", "error", "passed"],
        *["passed", "failed"],
    ]
    assert_reports_agree(suite, npm_parsers)
    for format_ in ("junit", "tap", "ctrf", "json"):
        written = report("w", format_, "w", include_traces=True, history=history)
        text = Path(written.report_path).read_text(encoding="utf-8")
        assert (written.tests, written.passed, written.failed) == (9, 4, 5)
        assert written.flaky
        assert "evaluate plan_quality scratchpad" in text
        assert str(judged.parent / "session.jsonl") in text


@pytest.mark.external
def test_the_reports_of_a_run_are_valid_according_to_the_schemas(judged: Path, shared_data: Path):
    junit = Path(report("w", "junit", "w", include_traces=True).report_path).read_bytes()
    schema = etree.XMLSchema(etree.parse(shared_data / JUNIT_XSD))
    assert schema.validate(etree.parse(io.BytesIO(junit))), schema.error_log
    ctrf = json.loads(Path(report("w", "ctrf", "w").report_path).read_bytes())
    published: Any = json.loads((shared_data / CTRF_SCHEMA).read_text())
    jsonschema.Draft7Validator(published).validate(ctrf)


def test_the_reference_tap_parser_fails_on_a_failed_case(judged: Path, npm_parsers: Path):
    written = Path(report("w", "tap", "w").report_path)
    process = subprocess.run(
        [npm_parsers / "tap-parser", "--strict"],
        input=written.read_bytes(),
        capture_output=True,
        check=False,
    )
    assert process.returncode == 1
