"""The commands of evals: output, reports and exit codes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml

from tests.evals.conftest import RUN, Files
from tests.surfaces.conftest import Offbook, offbook_command

__all__ = ["offbook_command"]
Write = Callable[[Files], Path]


def pack(*statuses: str) -> dict[str, Any]:
    rubrics = [
        {"id": status, "assertions": [{"kind": "run-status", "expected": status}]}
        for status in set(statuses)
    ]
    cases = [
        {"id": f"case-{number}", "run": "run.json", "rubrics": [status]}
        for number, status in enumerate(statuses)
    ]
    return {"id": "p", "rubrics": rubrics, "cases": cases}


@pytest.fixture
def folder(write: Write, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a pack that passes and one that fails."""
    path = write(
        {
            "good.json": pack("completed", "completed"),
            "bad.json": pack("completed", "failed"),
            "run.json": RUN,
        }
    )
    monkeypatch.chdir(path)
    return path


def test_the_exit_code_is_the_gate(folder: Path, offbook_command: Offbook):
    assert offbook_command("eval", "run", "good.json").code == 0
    assert offbook_command("eval", "run", "bad.json").code == 1
    assert offbook_command("eval", "run", "nope.json").code == 2
    assert offbook_command("eval", "run").code == 2


def test_reports_agree_on_the_counts(folder: Path, offbook_command: Offbook):
    reports = ["junit=j.xml", "tap=t.tap", "ctrf=c.json", "json=r.json", "markdown=m.md"]
    options = [word for report in reports for word in ("--report", report)]
    assert offbook_command("eval", "run", "bad.json", *options).code == 1
    junit: Any = JUnitXml.fromfile(  # pyright: ignore[reportUnknownMemberType]
        str(folder / "j.xml")
    )
    assert (junit.tests, junit.failures) == (2, 1)
    assert (folder / "t.tap").read_text().count("not ok") == 1
    summary = json.loads((folder / "c.json").read_text())["results"]["summary"]
    assert (summary["passed"], summary["failed"]) == (1, 1)
    report = json.loads((folder / "r.json").read_text())
    assert (report["passed"], report["blocking_failed"], report["pass"]) == (1, 1, False)
    assert "| FAIL | case-1 | blocking |" in (folder / "m.md").read_text()


def test_runs_are_listed_shown_and_compared(folder: Path, offbook_command: Offbook):
    offbook_command("eval", "run", "good.json", "--output", ".offbook/evals/first")
    offbook_command("eval", "run", "bad.json", "--output", ".offbook/evals/second")
    rows = json.loads(offbook_command("eval", "list", "--json").out)
    assert {row["id"]: row["result"] for row in rows} == {"first": "passed", "second": "failed"}
    assert "run status mismatch" in offbook_command("eval", "show", "second", "case-1").out
    assert "did you mean 'case-1'" in offbook_command("eval", "show", "second", "case-11").err
    outcome = offbook_command("eval", "compare", "first", "second")
    assert (outcome.code, "case-1: 100% to 0% passed" in outcome.out) == (0, True)


def test_github_gets_a_summary_and_annotations(
    folder: Path, offbook_command: Offbook, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "summary.md"))
    outcome = offbook_command("eval", "run", "bad.json")
    assert "::error file=bad.json,title=case-1::run status mismatch" in outcome.err
    assert "## Evals failed: p" in (folder / "summary.md").read_text()


def test_packs_of_a_project_are_found(folder: Path, offbook_command: Offbook):
    assert "no package has eval packs" in offbook_command("eval", "run", "--package").err
    (folder / "pyproject.toml").write_text('[tool.offbook]\nevals = ["good.json"]\n')
    assert offbook_command("eval", "run", "--package").code == 0


WRONG = {
    "a shard": (["--shard", "3/2"], "1 ≤ i ≤ n"),
    "a report": (["--report", "junitt"], "did you mean 'junit'"),
    "a run to resume": (["--resume", "nope"], "no run 'nope'"),
    "a case": (["--case", "case-11"], "did you mean 'case-1'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_option_is_explained(folder: Path, offbook_command: Offbook, name: str):
    options, message = WRONG[name]
    outcome = offbook_command("eval", "run", "good.json", *options)
    assert (outcome.code, message in outcome.err) == (2, True), outcome.err


def test_a_judge_is_calibrated(folder: Path, offbook_command: Offbook):
    answers = [{"reasoning": "r", "score": score} for score in (5, 1, 5, 1)]
    lines = [json.dumps({"text": json.dumps(answer)}) for answer in answers]
    (folder / "judge.jsonl").write_text("\n".join(lines))
    examples = [{"output": f"t{n}", "score": s} for n, s in enumerate((1.0, 0.0, 1.0, 0.0))]
    rubric = {"id": "j", "kind": "llm-judge", "prompt": "Good?", "calibration": examples}
    content = {"rubrics": [rubric], "cases": [{"id": "c", "run": "run.json", "rubrics": ["j"]}]}
    (folder / "judged.json").write_text(json.dumps(content))
    outcome = offbook_command("judge", "calibrate", "judged.json", "--judge", "judge.jsonl")
    assert outcome.code == 0
    assert "agreement 1.00, kappa 1.00" in outcome.out


def test_a_classifier_without_cases_does_not_pass(folder: Path, offbook_command: Offbook):
    (folder / "d.json").write_text('[{"id": "a", "expected": "in_scope", "prompt": "x"}]')
    outcome = offbook_command("eval", "scope-triage", "d.json", "--max-cases", "0", "--json")
    assert outcome.code == 1
    assert json.loads(outcome.out)["accuracy"] == 0


def test_a_model_classifies_and_nonsense_abstains(folder: Path, offbook_command: Offbook):
    prompts = ["Fix it here", "Deploy the other repo", "Hm"]
    labels = ["in_scope", "out_of_scope", "ambiguous"]
    cases = [
        {"id": label, "expected": label, "prompt": prompt}
        for label, prompt in zip(labels, prompts, strict=True)
    ]
    (folder / "d.json").write_text(json.dumps({"cases": cases}))
    answers = ['{"label": "in_scope", "confidence": 0.9}', '{"label": "out_of_scope"}', "nonsense"]
    (folder / "m.jsonl").write_text("".join(json.dumps({"text": a}) + "\n" for a in answers))
    command = ["eval", "scope-triage", "d.json", "--model", "m.jsonl", "--json"]
    report = json.loads(offbook_command(*command).out)
    assert (report["correct_cases"], report["errors"], report["pass"]) == (3, 1, True)
