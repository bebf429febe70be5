"""Assertions on a run record: what each of them passes, fails and says."""

from typing import Any

import pytest

from offbook.checks import CheckContext, evaluate_all

RECORD: dict[str, Any] = {
    "status": "completed",
    "output": {"text": "refunded", "total": 7},
    "stages": [
        {"node_id": "plan", "status": "completed", "visible_text": "Look, then refund."},
        {"node_id": "refund", "status": "failed"},
    ],
    "tool_recordings": [{"tool_name": "find_order"}, {"tool_name": "refund"}],
    "hitl_questions": [{"prompt": "Which account?"}],
    "policy": {"side_effect_level": "workspace_write"},
}


def verdict(record: Any, **fields: Any) -> tuple[str, str]:
    (found,) = evaluate_all([fields], CheckContext([], record=record))
    return found.status, found.message


PASSING: list[dict[str, Any]] = [
    {"type": "record_status", "expected": "completed"},
    {"type": "stage_status", "stage": "plan", "expected": "completed"},
    {"type": "stage_status", "stage": "refund", "expected": "failed"},
    {"type": "stage_text", "contains": "then refund"},
    {"type": "stage_text", "contains": "then refund", "stage": "plan"},
    {"type": "question_asked", "contains": "account"},
    {"type": "recorded_tools", "expected": "refund"},
    {"type": "recorded_tools", "expected": ["refund", "find_order"]},
    {"type": "no_recorded_tools", "expected": ["rm", "curl"]},
    {"type": "side_effect_level", "expected": "workspace_write"},
    {"type": "side_effect_level", "expected": "network"},
    {"type": "record_output", "contains": "refunded"},
    {"type": "record_output", "expected": {"text": "refunded", "total": 7}},
    {"type": "record_value", "path": "/output/total", "expected": 7},
    {"type": "record_value", "path": "/output/total", "op": "ne", "expected": 8},
    {"type": "record_value", "path": "/output/total", "op": "lt", "expected": 8},
    {"type": "record_value", "path": "/output/total", "op": "le", "expected": 7},
    {"type": "record_value", "path": "/output/total", "op": "gt", "expected": 6},
    {"type": "record_value", "path": "/output/total", "op": "ge", "expected": 7},
    {"type": "record_value", "path": "/output/total", "op": "in", "expected": [6, 7]},
    {"type": "record_value", "path": "/output/text", "op": "contains", "expected": "fund"},
    {"type": "record_value", "path": "/output/text", "contains": "fund"},
    {"type": "record_value", "path": "/output/text", "op": "matches", "expected": "^refund"},
    {"type": "record_value", "path": "/output/text", "op": "not-matches", "expected": "^fund"},
    {"type": "record_value", "path": "/output/text", "op": "not-contains", "expected": "x"},
    {"type": "record_value", "path": "/output/text", "op": "exists"},
    {"type": "record_value", "path": "/output/gone", "op": "exists", "expected": False},
    {"type": "record_value", "path": "", "expected": RECORD},
]


@pytest.mark.parametrize("fields", PASSING, ids=str)
def test_an_assertion_on_a_record_that_has_it_passes(fields: dict[str, Any]):
    assert verdict(RECORD, **fields)[0] == "pass"


FAILING: list[tuple[dict[str, Any], str]] = [
    (
        {"type": "record_status", "expected": "failed"},
        "run status mismatch: expected failed, got completed",
    ),
    (
        {"type": "stage_status", "stage": "refund", "expected": "completed"},
        "stage refund status mismatch: expected completed, got failed",
    ),
    (
        {"type": "stage_status", "stage": "plam", "expected": "completed"},
        "missing stage plam; did you mean 'plan'?",
    ),
    (
        {"type": "stage_text", "contains": "sorry"},
        'visible text of any stage does not contain "sorry"',
    ),
    (
        {"type": "stage_text", "contains": "refund", "stage": "refund"},
        'visible text of stage refund does not contain "refund"',
    ),
    ({"type": "stage_text", "contains": "a", "stage": "gone"}, "missing stage gone"),
    (
        {"type": "question_asked", "contains": "Why?"},
        'no question to the user contains "Why?"',
    ),
    (
        {"type": "recorded_tools", "expected": ["refund", "rm"]},
        "never called: rm; called: find_order, refund",
    ),
    ({"type": "no_recorded_tools", "expected": ["rm", "refund"]}, "called: refund"),
    (
        {"type": "side_effect_level", "expected": "read_only"},
        "side effect level workspace_write exceeds read_only",
    ),
    ({"type": "record_output", "contains": "sorry"}, 'the output does not contain "sorry"'),
    (
        {"type": "record_value", "path": "/output/total", "op": "lt", "expected": 7},
        "/output/total: expected lt 7, got 7",
    ),
    (
        {"type": "record_value", "path": "/output/total", "op": "gt", "expected": 7},
        "/output/total: expected gt 7, got 7",
    ),
    (
        {"type": "record_value", "path": "/output/text", "op": "lt", "expected": 7},
        '/output/text: expected lt 7, got "refunded"',
    ),
    (
        {"type": "record_value", "path": "/output/total", "op": "matches", "expected": "7"},
        "/output/total: expected matches",
    ),
    (
        {"type": "record_value", "path": "/output/gone", "op": "ne", "expected": 7},
        "/output/gone is missing",
    ),
    ({"type": "record_value", "path": "/output/gone", "op": "exists"}, "/output/gone is "),
    (
        {"type": "record_value", "path": "/output/total", "op": "exists", "expected": False},
        "/output/total is 7",
    ),
    ({"type": "record_value", "path": "", "expected": {}}, "the record: expected eq {}, got {"),
]


@pytest.mark.parametrize("fields, message", FAILING, ids=str)
def test_an_assertion_on_a_record_without_it_fails(fields: dict[str, Any], message: str):
    status, shown = verdict(RECORD, **fields)
    assert status == "fail"
    assert message in shown


EMPTY: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "record_status", "expected": "a"}, "fail", "expected a, got none"),
    ({"type": "stage_status", "stage": "a", "expected": "b"}, "fail", "missing stage a"),
    ({"type": "stage_text", "contains": "a"}, "fail", "the run has no stages"),
    ({"type": "recorded_tools", "expected": "a"}, "fail", "never called: a; called: no tool"),
    ({"type": "no_recorded_tools", "expected": "a"}, "no_data", "the run called no tool"),
    ({"type": "side_effect_level", "expected": "none"}, "no_data", "no policy.side_effect_level"),
    ({"type": "record_output", "contains": "a"}, "no_data", "the run has no output"),
]


@pytest.mark.parametrize("fields, status, message", EMPTY, ids=str)
def test_an_empty_record_passes_nothing(fields: dict[str, Any], status: str, message: str):
    found, shown = verdict({}, **fields)
    assert found == status
    assert message in shown


SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
# the output, what is expected of it -> the status, and the message
JSON: list[tuple[Any, Any, str, str]] = [
    ('{"n": 1}', True, "pass", ""),
    ("null", True, "pass", ""),
    ({"n": 1}, True, "pass", ""),
    ("{n: 1}", True, "fail", "output is not JSON: "),
    ("NaN", True, "fail", "output is not JSON: "),
    ("Sure! {}", True, "fail", "output is not JSON: "),
    ("Sure! {}", False, "pass", ""),
    ('{"n": 1}', False, "fail", 'output is JSON: "{'),
    ('{"n": 1}', SCHEMA, "pass", ""),
    ({"n": 1}, SCHEMA, "pass", ""),
    ('{"n": "1"}', SCHEMA, "fail", "output is not what the schema allows: /n: "),
    ("[]", SCHEMA, "fail", "output is not what the schema allows: /: "),
    ("none", SCHEMA, "fail", "output is not JSON: "),
    ("{}", {}, "error", "the operator is-json takes true, false or a JSON schema"),
    ("{}", "object", "error", "the operator is-json takes true, false or a JSON schema"),
    ("{}", {"type": "objekt"}, "error", "invalid JSON schema"),
]


@pytest.mark.parametrize("output, expected, status, message", JSON, ids=str)
def test_an_output_is_json_of_a_schema(output: Any, expected: Any, status: str, message: str):
    record = {"output": output}
    found, shown = verdict(record, type="record_output", op="is-json", expected=expected)
    assert (found, message in shown) == (status, True), shown


HELD: list[tuple[Any, Any]] = [
    ("the code is X-1", "X-1"),
    ("the code is 4711", 4711),
    ({"answer": "the code is X-1"}, "X-1"),
    ({"steps": [{"note": ["my X-1"]}]}, "X-1"),
    ({"X-1": True}, "X-1"),
    ({"code": 4711}, "4711"),
    ({"code": "Größe"}, "Größe"),
    ({"code": 'a "quoted" text'}, '"quoted"'),
    ([["a"], 5], 5),
    ([{"id": 7}], {"id": 7}),
]
NOT_HELD: list[tuple[Any, Any]] = [
    ({"text": "other"}, "X-1"),
    (["15", 15], 51),
    ([15], 5),
    ([1], True),
    ([{"id": 7}], {"id": 8}),
    ({"a": "x", "b": "y"}, '", "'),
]


@pytest.mark.parametrize(
    "output, expected, contains, not_contains",
    [*((*pair, "pass", "fail") for pair in HELD), *((*pair, "fail", "pass") for pair in NOT_HELD)],
    ids=str,
)
def test_not_contains_is_the_negation_of_contains(
    output: Any, expected: Any, contains: str, not_contains: str
):
    record = {"output": output}
    keys = [{"contains": expected}] if isinstance(expected, str) else []
    for fields in ({"op": "contains", "expected": expected}, *keys):
        for place in ({"type": "record_output"}, {"type": "record_value", "path": "/output"}):
            assert verdict(record, **place, **fields)[0] == contains
    fields = {"type": "record_output", "op": "not-contains", "expected": expected}
    assert verdict(record, **fields)[0] == not_contains
