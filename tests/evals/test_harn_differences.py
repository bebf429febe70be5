"""Where Offbook is stricter than Harn: each row of the page `docs/guides/harn.md`."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook.checks import audit_transcript
from offbook.errors import FormatError
from offbook.evals import (
    ClassifierSettings,
    CommandSpec,
    LadderBackend,
    LadderSpec,
    TimeoutTier,
    check_replay,
    classify_by_rules,
    parse_friction_events,
    parse_replay_fixture,
    read_run_record,
    run_classifier,
    run_ladder,
)
from offbook.trace import Event
from tests.conftest import ROOT
from tests.evals.conftest import RUN, RunPack

PAGE = ROOT / "docs" / "guides" / "harn.md"
CASE: dict[str, Any] = {"id": "one", "run": "run.json"}
WITHOUT_USAGE = {key: value for key, value in RUN.items() if key != "usage"}
BAD_STATUS = {"kind": "run-status", "expected": "failed"}
JUDGED = {"id": "r", "kind": "llm-judge", "prompt": "Good?"}


def rubric(**assertion: Any) -> list[dict[str, Any]]:
    return [{"id": "r", "assertions": [assertion]}]


# a pack -> why it is refused
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a typo in a severity": ({"cases": [{**CASE, "severity": "wanring"}]}, "warning"),
    "an unknown key": ({"cases": [{**CASE, "treshold": {}}]}, "did you mean 'thresholds'"),
    "an unknown assertion kind": (
        {"rubrics": rubric(kind="run-statu"), "cases": [CASE]},
        "did you mean 'run-status'",
    ),
    "an unknown rubric id": ({"cases": [{**CASE, "rubrics": ["r"]}]}, "unknown rubric 'r'"),
    "a case id twice": ({"cases": [CASE, CASE]}, "defined twice"),
    "a missing fixture file": (
        {"fixtures": [{"id": "f", "kind": "run-record", "path": "no.json"}], "cases": [CASE]},
        "no.json",
    ),
    "a status assertion without `expected`": (
        {"rubrics": rubric(kind="run-status"), "cases": [{**CASE, "rubrics": ["r"]}]},
        "expected",
    ),
    "`min-score` without a judge": (
        {"cases": [{**CASE, "thresholds": {"min-score": 0.5}}]},
        "min",
    ),
    "a fixture of a reserved kind": (
        {
            "fixtures": [{"id": "f", "kind": "connector-payload", "path": "bad.json"}],
            "cases": [CASE],
        },
        "invalid JSON",
    ),
}

# a pack and its run -> the status of its case, whether the gate is open, and a word of the failure
STATUSES: dict[str, tuple[dict[str, Any], dict[str, Any], str, bool, str]] = {
    "a missing run file": (
        {"cases": [{**CASE, "run": "no.json"}]},
        *(RUN, "error", False, "no.json"),
    ),
    "a case that checks nothing": ({"cases": [CASE]}, RUN, "no_data", False, ""),
    "a threshold without usage": (
        {"cases": [{**CASE, "thresholds": {"max-cost-usd": 1}}]},
        *(WITHOUT_USAGE, "no_data", False, "no data"),
    ),
    "`path` and `op` of an assertion": (
        {
            "rubrics": rubric(path="/usage/input_tokens", op="lt", expected=3),
            "cases": [{**CASE, "rubrics": ["r"]}],
        },
        *(RUN, "fail", False, "/usage/input_tokens"),
    ),
    "a failing case with the severity `warning`": (
        {
            "rubrics": rubric(**BAD_STATUS),
            "cases": [{**CASE, "rubrics": ["r"], "severity": "warning"}],
        },
        *(RUN, "fail", True, "run status mismatch"),
    ),
    "an `llm-judge` rubric": (
        {"rubrics": [JUDGED], "cases": [{**CASE, "rubrics": ["r"]}]},
        *(RUN, "fail", False, "was not run"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_pack_is_refused(run_files: RunPack, name: str):
    pack, message = REFUSED[name]
    with pytest.raises(FormatError, match=re.escape(message)) as caught:
        run_files(pack, {"bad.json": "{"})
    assert caught.value.path


@pytest.mark.parametrize("name", STATUSES)
def test_a_case_does_not_pass(run_files: RunPack, name: str):
    pack, record, status, gate, word = STATUSES[name]
    run = run_files(pack, {"run.json": record})
    [case] = run.cases
    assert (case.status, run.summary.passed_gate) == (status, gate)
    assert word in " ".join(case.failures)


def ask_twice(folder: Path) -> None:
    path = folder / "run.json"
    prompts = ["Which repository?", "Which repository and branch?"]
    questions = [{"request_id": str(n), "prompt": text} for n, text in enumerate(prompts)]
    path.write_text(json.dumps({**RUN, "hitl_questions": questions}))
    rules = {"required_terms": ["repository"], "forbidden_terms": ["branch"], "max_questions": 2}
    fixture = {"eval_kind": "clarifying_question", "clarifying_question": rules}
    raw = {"_type": "replay_fixture", "expected_status": "completed", **fixture}
    verdicts = check_replay(parse_replay_fixture(raw, path), read_run_record(path).record)
    assert [v.message for v in verdicts if v.status == "fail"] == [
        "a question has a forbidden term: \"Which repository and branch?\" mentions 'branch'"
    ]


def act_before_approval(_folder: Path) -> None:
    named: list[tuple[str, dict[str, Any]]] = [
        ("plan", {"plan": {"approval_required": True}}),
        ("tool.call", {"tool": "push", "input": {}}),
        ("handoff", {}),
    ]
    events = [Event(0, name, data, seq) for seq, (name, data) in enumerate(named)]
    golden = {"_type": "golden", "require_approval_for": [{"name": "push"}]}
    found = audit_transcript(events, golden).findings
    assert [finding.category for finding in found] == ["unsafe_attempted_action"]


def keep_a_secret(folder: Path) -> None:
    event: dict[str, Any] = {
        "kind": "tool_gap",
        "redacted_summary": "x",
        "metadata": {"api_key": "hunter2"},
    }
    [parsed] = parse_friction_events([event], folder / "friction.json")
    assert parsed.metadata == {"api_key": "[redacted]"}


def write_ladder(folder: Path, **event: Any) -> LadderSpec:
    lines: list[dict[str, Any]] = [
        {"type": "tool_call", "raw_input": {}, **event},
        {"type": "iteration_end"},
    ]
    (folder / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    tiers = (TimeoutTier(id="t"),)
    return LadderSpec(id="l", backend=LadderBackend("replay", "t.jsonl"), timeout_tiers=tiers)


def name_a_tool_loop(folder: Path) -> None:
    report = run_ladder(write_ladder(folder, tool_name="event_loop_wait"), folder, folder / "out")
    assert (report.tiers[0].outcome, report.tiers[0].oracle_warn_findings) == ("correct", 1)


def run_a_live_ladder(folder: Path) -> None:
    spec = LadderSpec(
        id="l",
        backend=LadderBackend("live", command=CommandSpec(argv=("sleep", "60"))),
        timeout_tiers=(TimeoutTier(id="t", timeout_ms=200),),
    )
    assert run_ladder(spec, folder, folder / "out").tiers[0].outcome == "timeout"


def classify_nothing(_folder: Path) -> None:
    settings = ClassifierSettings()
    report, _ = run_classifier([], classify_by_rules(settings), settings)
    assert (report.passed, report.accuracy) == (False, 0)


OTHER: dict[str, Callable[[Path], None]] = {
    "a second question with a forbidden term": ask_twice,
    "an action before its plan was approved": act_before_approval,
    "a secret in the metadata of a friction event": keep_a_secret,
    "a tool named `loop` in a warning": name_a_tool_loop,
    "a ladder with a live backend": run_a_live_ladder,
    "an empty dataset": classify_nothing,
}


@pytest.mark.parametrize("name", OTHER)
def test_another_difference_holds(tmp_path: Path, name: str):
    OTHER[name](tmp_path)


def test_the_page_lists_every_difference_and_no_other():
    table = PAGE.read_text().partition("| case | Harn | Offbook |\n|---|---|---|\n")[2]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table.split("\n\n")[0].splitlines()]
    assert sorted(rows) == sorted([*REFUSED, *STATUSES, *OTHER])
