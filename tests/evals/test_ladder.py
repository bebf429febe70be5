"""Ladders: every route and tier, the first correct one is named."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook.checks import DEFAULT_POLICY, audit_transcript
from offbook.evals import (
    CaseResult,
    CommandSpec,
    Evaluator,
    LadderBackend,
    LadderSpec,
    ModelRoute,
    RunOptions,
    TimeoutTier,
    Trial,
    read_pack,
    report_json,
    run_ladder,
)
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


@pytest.mark.parametrize("kind", ["note", "iteration_end"])
def test_a_transcript_without_calls_and_steps_is_no_data(write: Write, kind: str):
    event = {"index": 0, "emitted_at_ms": 0, "type": kind, "session_id": "s"}
    spec = {**spec_of("l"), "persona": "helper"}
    folder = write({"pack.json": {"ladders": [spec]}, "t.jsonl": jsonl([event])})
    (result,) = evaluate(folder)
    assert (result.status, result.problems) == (
        "no_data",
        ["no data: the transcript has no model calls, no tools and no steps"],
    )


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


CHARGE = {"type": "tool_call", "tool_name": "create_charge", "raw_input": {"eur": 5}}
UNAPPROVED = [EVENTS[0], {**EVENTS[1], **CHARGE}, EVENTS[2]]


@pytest.mark.parametrize(
    "persona, golden, outcome",
    [
        ("merge_captain", None, "degraded"),  # its own rules: a change needs an approval
        ("clerk", None, "correct"),  # only the rules that need no settings
        ("clerk", {"rules": [{"rule": "approval"}]}, "degraded"),
    ],
)
def test_a_ladder_is_audited_by_its_golden_or_the_rules_of_its_persona(
    write: Write, tmp_path: Path, persona: str, golden: Any, outcome: str
):
    files: Files = {"t.jsonl": jsonl(UNAPPROVED)}
    if golden is not None:
        files["t.golden.json"] = json.dumps(golden)
    spec = ladder(REPLAY, TimeoutTier(id="t"), persona=persona)
    report = run_ladder(spec, write(files), tmp_path / "out")
    assert report.tiers[0].outcome == outcome


def test_the_transcript_of_a_cell_is_a_trace_that_can_be_audited_again(
    write: Write, tmp_path: Path
):
    tier = TimeoutTier(id="t", max_sweeps=2)
    report = run_ladder(ladder(REPLAY, tier), write({"t.jsonl": jsonl(EVENTS)}), tmp_path / "out")
    cell = report.tiers[0]
    again = audit_transcript(Path(report.artifact_root) / cell.transcript_path, DEFAULT_POLICY)
    assert (
        (again.event_count, again.tool_call_count) == (cell.event_count, cell.tool_calls) == (6, 2)
    )


def test_the_cost_of_a_cell_is_that_of_its_events(write: Write, tmp_path: Path):
    events = [{**event, "cost_usd": 0.25} for event in EVENTS]
    tiers = (TimeoutTier(id="tight", max_cost_usd=0.5), TimeoutTier(id="even", max_cost_usd=0.75))
    report = run_ladder(ladder(REPLAY, *tiers), write({"t.jsonl": jsonl(events)}), tmp_path / "out")
    assert [cell.outcome for cell in report.tiers] == ["degraded", "correct"]


@pytest.mark.parametrize("rule, outcome", [("approval", "degraded"), (("stuck", "correct"))])
def test_a_ladder_is_audited_by_the_golden_that_it_names(
    write: Write, tmp_path: Path, rule: str, outcome: str
):
    golden = json.dumps({"rules": [{"rule": rule}]})
    folder = write({"t.jsonl": jsonl(UNAPPROVED), "rules.json": golden})
    spec = ladder(REPLAY, TimeoutTier(id="t"), golden="rules.json")
    assert run_ladder(spec, folder, tmp_path / "out").tiers[0].outcome == outcome


def evaluate(folder: Path) -> list[CaseResult]:
    """Return the results of all ladders of a pack, evaluated in this process."""
    loaded = read_pack(folder / "pack.json")
    with Evaluator([loaded], RunOptions(), folder / "out") as evaluator:
        return [
            evaluator.evaluate(Trial(0, number, 1)) for number in range(len(loaded.pack.ladders))
        ]


def spec_of(spec_id: str, **fields: Any) -> dict[str, Any]:
    tiers = [{"id": "t", "max_tool_calls": fields.pop("calls", 1)}]
    return {"id": spec_id, "backend": {"path": "t.jsonl"}, "timeout_tiers": tiers, **fields}


# the ladder -> its status, the message of its verdict or error, and its severity
RESULTS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "a correct tier": (spec_of("l"), "pass", "", "blocking"),
    "no correct tier": (
        spec_of("l", calls=0),
        *("fail", "no tier was correct: default::t degraded", "blocking"),
    ),
    "a severity": (spec_of("l", severity="warn"), "pass", "", "warning"),
    "a missing transcript": (
        spec_of("l", backend={"path": "nope.jsonl"}),
        *("error", "nope.jsonl", "blocking"),
    ),
    "a failed predecessor": (
        spec_of("l", after=["first"]),
        *("no_data", "not run: the ladder 'first' has no correct cell", "blocking"),
    ),
    "a correct predecessor": (spec_of("l", after=["second"]), "pass", "", "blocking"),
}


@pytest.mark.parametrize("name", RESULTS)
def test_the_result_of_a_ladder_is_that_of_a_case(write: Write, name: str):
    spec, status, message, severity = RESULTS[name]
    ladders = [spec, spec_of("first", calls=0), spec_of("second")]
    result = evaluate(write({"pack.json": {"ladders": ladders}, "t.jsonl": jsonl(EVENTS)}))[0]
    assert (result.status, result.severity) == (status, severity)
    assert message in "; ".join(result.problems)
    if status == "pass":
        assert result.verdicts[0].actual == "default::t"


def test_a_ladder_before_another_one_runs_once(write: Write):
    program = f"open('runs', 'a').write('x'); print({jsonl(EVENTS)!r})"
    backend = {"kind": "live", "command": [sys.executable, "-c", program]}
    ladders = [spec_of("b", after=["a"]), spec_of("a", backend=backend)]
    folder = write({"pack.json": {"ladders": ladders}, "t.jsonl": jsonl(EVENTS)})
    assert [result.status for result in evaluate(folder)] == ["pass", "pass"]
    assert (folder / "runs").read_text() == "x"


@pytest.mark.parametrize("severity, gate", [("blocking", False), ("warning", True)])
def test_a_ladder_whose_process_was_killed_is_an_error_of_its_severity(
    run_files: RunPack, severity: str, *, gate: bool
):
    # The parent of the supervisor of the command.
    command = "kill -9 $(sed -n 's/^PPid://p' /proc/$PPID/status)"
    backend = {"kind": "live", "command": command}
    spec = spec_of("l", backend=backend, severity=severity, name="The climb")
    run = run_files({"ladders": [spec, spec_of("m")]}, {"t.jsonl": jsonl(EVENTS)}, cache=True)
    assert [(item.label, item.status) for item in run.cases] == [
        ("The climb", "error"),
        ("m", "pass"),
    ]
    assert run.cases[0].failures == ("the process of the case was killed by SIGKILL",)
    assert run.summary.passed_gate is gate


def test_a_turn_of_an_earlier_transcript_is_a_model_call(tmp_path: Path):
    events = [{"index": n, "emitted_at_ms": n, "type": "turn_start"} for n in range(2)]
    path = tmp_path / "t.jsonl"
    path.write_text(jsonl(events))
    assert audit_transcript(path, DEFAULT_POLICY).model_call_count == 2
