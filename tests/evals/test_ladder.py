"""Ladders: every route and tier, the first correct one is named."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook.evals.eval_reports import report_json
from offbook.evals.ladder import run_ladder
from offbook.evals.pack import CommandSpec, LadderBackend, LadderSpec, ModelRoute, TimeoutTier
from offbook.evals.transcript_audit import Golden, NamePattern, StateStep, audit
from tests.evals.conftest import Files, RunPack

Write = Callable[[Files], Path]
EVENTS: list[dict[str, Any]] = [
    {"index": 0, "emitted_at_ms": 0, "type": "iteration_start", "session_id": "s"},
    {"index": 1, "emitted_at_ms": 50, "type": "tool_call", "tool_name": "read", "raw_input": {}},
    {"index": 2, "emitted_at_ms": 100, "type": "iteration_end", "session_id": "s"},
]


def jsonl(events: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(event) + "\n" for event in events)


def ladder(backend: LadderBackend, *tiers: TimeoutTier, **fields: Any) -> LadderSpec:
    return LadderSpec(id="l", backend=backend, timeout_tiers=tiers, **fields)


REPLAY = LadderBackend("replay", "t.jsonl")


def test_the_first_correct_cell_is_named_in_the_order_of_the_matrix(write: Write, tmp_path: Path):
    folder = write({"t.jsonl": jsonl(EVENTS)})
    routes = (ModelRoute(id="a", max_model_calls=0), ModelRoute(id="b"))
    tiers = (TimeoutTier(id="tight", timeout_ms=99), TimeoutTier(id="even", timeout_ms=100))
    report = run_ladder(ladder(REPLAY, *tiers, model_routes=routes), folder, tmp_path / "out")
    assert [cell.outcome for cell in report.tiers] == ["degraded"] * 3 + ["correct"]
    assert (report.first_correct_index, report.first_correct_route) == (3, "b")


def test_no_correct_cell_fails_the_ladder_and_the_pack(run_files: RunPack):
    spec = {"id": "l", "backend": {"path": "t.jsonl"}, "timeout_tiers": [{"max_tool_calls": 0}]}
    run = run_files({"ladders": [spec]}, {"t.jsonl": jsonl(EVENTS)}, jobs=1)
    (report,) = report_json(run)["ladders"]
    assert report["first_correct_index"] is None
    assert not run.summary.passed_gate


def test_mock_and_replay_of_one_transcript_give_the_same_receipt(write: Write, tmp_path: Path):
    folder = write({"t.jsonl": jsonl(EVENTS)})
    receipts: list[bytes] = []
    for kind in ("mock", "replay"):
        spec = ladder(LadderBackend(kind, "t.jsonl"), TimeoutTier(id="t"))
        report = run_ladder(spec, folder, tmp_path / kind)
        receipts.append((Path(report.artifact_root) / report.tiers[0].receipt_path).read_bytes())
    assert receipts[0] == receipts[1]


def test_a_stuck_loop_is_a_loop_and_not_correct(write: Write, tmp_path: Path):
    stuck = [*EVENTS, {"index": 3, "emitted_at_ms": 100, "type": "loop_stuck"}]
    folder = write({"t.jsonl": jsonl(stuck)})
    report = run_ladder(ladder(REPLAY, TimeoutTier(id="t")), folder, tmp_path / "out")
    assert report.tiers[0].outcome == "loop"
    assert not report.passed


def test_a_tool_named_loop_is_no_loop(write: Write, tmp_path: Path):
    named = [EVENTS[0], {**EVENTS[1], "tool_name": "event_loop_wait"}, EVENTS[2]]
    folder = write({"t.jsonl": jsonl(named)})
    report = run_ladder(ladder(REPLAY, TimeoutTier(id="t")), folder, tmp_path / "out")
    assert report.tiers[0].outcome == "correct"


LIVE = {
    "correct": (f"print({jsonl(EVENTS)!r})", 60_000, "correct"),
    "too slow": ("import time; time.sleep(60)", 300, "timeout"),
    "a crash": ("raise SystemExit('no model')", 60_000, "error"),
    "nonsense": ("print('nonsense')", 60_000, "error"),
}


@pytest.mark.parametrize("name", LIVE)
def test_a_live_cell_has_a_real_deadline(tmp_path: Path, name: str):
    program, timeout, outcome = LIVE[name]
    command = CommandSpec(argv=(sys.executable, "-c", program))
    spec = ladder(LadderBackend("live", command=command), TimeoutTier(id="t", timeout_ms=timeout))
    report = run_ladder(spec, tmp_path, tmp_path / "out")
    assert report.tiers[0].outcome == outcome


def test_a_ladder_after_a_failed_one_is_not_run(run_files: RunPack):
    failing = {"id": "a", "backend": {"path": "t.jsonl"}, "timeout_tiers": [{"max_tool_calls": 0}]}
    second: dict[str, Any] = {
        "id": "b",
        "after": ["a"],
        "backend": {"path": "t.jsonl"},
        "timeout_tiers": [{}],
    }
    run = run_files({"ladders": [failing, second]}, {"t.jsonl": jsonl(EVENTS)}, jobs=1)
    assert {item.id: item.status for item in run.cases} == {"a": "fail", "b": "no_data"}


def call(index: int, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"index": index, "type": "tool_call", "tool_name": tool, "raw_input": arguments}


END = {"index": 99, "type": "iteration_end"}
MERGE = StateStep("merge", [NamePattern("merge")], merge_action=True)
VERIFY = StateStep("verify", [NamePattern("checks")], verifier=True)
AUDITS: dict[str, tuple[list[dict[str, Any]], Golden, set[str]]] = {
    "a repeated call": ([call(1, "read", a=1), call(2, "read", a=1)], Golden(), {"repeated_read"}),
    "another argument": ([call(1, "read", a=1), call(2, "read", a=2)], Golden(), set()),
    "an unsafe tool": (
        [call(1, "push")],
        Golden(require_approval_for=[NamePattern("push")]),
        {"unsafe_attempted_action"},
    ),
    "an approved tool": (
        [{"index": 0, "type": "handoff"}, call(1, "push")],
        Golden(require_approval_for=[NamePattern("push")]),
        set(),
    ),
    "a forbidden tool": (
        [call(1, "force[1]_push")],
        Golden(require_approval_for=[], forbidden_actions=[NamePattern(glob="*[1]*")]),
        {"forbidden_action"},
    ),
    "a merge of another request": (
        [call(1, "checks", repo="r", number=1), call(2, "merge", repo="r", number=2)],
        Golden(require_approval_for=[], state_steps=[VERIFY, MERGE]),
        {"skipped_verification"},
    ),
    "a verified merge": (
        [call(1, "checks", repo="r", number=1), call(2, "merge", repo="r", number=1)],
        Golden(require_approval_for=[], state_steps=[VERIFY, MERGE]),
        set(),
    ),
    "a plan without approval": (
        [{"index": 1, "type": "plan", "plan": {"approval_required": True}}],
        Golden(),
        {"missing_approval"},
    ),
    "a plan that is a text": (
        [{"index": 1, "type": "plan", "plan": "go"}],
        Golden(),
        {"invalid_structured_output"},
    ),
    "too many tools": (
        [call(1, "a"), call(2, "b")],
        Golden(max_tool_calls=1),
        {"non_minimal_tool_usage"},
    ),
    "a missing step": (
        [call(1, "a")],
        Golden(state_steps=[StateStep("x", required=True)]),
        {"missing_state_step"},
    ),
    "an open wait": ([call(1, "wait_for_ci")], Golden(require_approval_for=[]), {"bad_wait"}),
}


@pytest.mark.parametrize("name", AUDITS)
def test_the_audit_finds_a_problem(name: str):
    events, golden, categories = AUDITS[name]
    report = audit([*events, END], golden)
    assert {finding.category for finding in report.findings} == categories
