"""A rule without its data is "no data" with the reason, never a pass."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook.evals import Evidence, Rubric, evaluate_rubric, parse_run_record

NO_STAGES: dict[str, Any] = {"_type": "run_record", "id": "r", "status": "completed", "stages": []}


def evidence_of(**fields: Any) -> Evidence:
    return Evidence(parse_run_record({**NO_STAGES, **fields}, Path("run.json")))


@pytest.mark.parametrize(
    "rule, evidence, status, message",
    [
        (
            {"kind": "run-status", "expected": "completed"},
            Evidence(),
            "no_data",
            "no data: the case has no run record",
        ),
        (
            {"path": "/id", "expected": "r"},
            Evidence(),
            "no_data",
            "no data: the case has no run record",
        ),
        (
            {"kind": "suggestion", "expected": "workflow"},
            evidence_of(),
            "no_data",
            "no data: the case has no friction events",
        ),
        (
            {"kind": "check", "check": {"type": "file_exists", "path": "a"}},
            Evidence(),
            "no_data",
            "no data: the case has no trace",
        ),
        (
            {"kind": "tool-never", "expected": "rm"},
            evidence_of(),
            "no_data",
            "no data: the run called no tool",
        ),
        (
            {"kind": "side-effect-level", "expected": "read_only"},
            evidence_of(),
            "no_data",
            "no data: the run record has no policy.side_effect_level",
        ),
        (
            {"kind": "side-effect-level", "expected": "read_only"},
            evidence_of(policy={"side_effect_level": "raed_only"}),
            "error",
            "unknown side effect level 'raed_only'",
        ),
        (
            {"kind": "visible-text-contains", "contains": "x"},
            evidence_of(),
            "fail",
            "the run has no stages",
        ),
    ],
)
def test_a_rule_without_data_does_not_pass(
    rule: dict[str, Any], evidence: Evidence, status: str, message: str
):
    rubric = msgspec.convert({"id": "r", "assertions": [rule]}, Rubric)
    (verdict,) = evaluate_rubric(rubric, evidence)
    assert verdict.status == status
    assert verdict.message.startswith(message)


@pytest.mark.parametrize("kind", ["friction", "context-pack-suggestion"])
def test_a_friction_rubric_needs_friction_events(kind: str):
    rule = {"kind": "run-status", "expected": "completed"}
    rubric = msgspec.convert({"id": "r", "kind": kind, "assertions": [rule]}, Rubric)
    (verdict,) = evaluate_rubric(rubric, evidence_of())
    assert (verdict.status, verdict.message) == (
        "no_data",
        "no data: the rubric 'r' needs friction events",
    )
