"""The parameters, defaults and result fields of the tools do not change."""

from __future__ import annotations

import inspect as signatures
from typing import Any, get_type_hints

import msgspec
import pytest

from offbook.checks import Evaluation, assertion_class
from offbook.surfaces.mcp_server import describe_tools
from offbook.trace import EventFilter, RecordPage, TimelineEntry, TraceSummary
from offbook.workflows import FUNCTIONS, MockResponse

REQUIRED = object()
PARAMETERS: dict[str, dict[str, Any]] = {
    "test_setup": {"workspace_id": REQUIRED, "fixtures": None, "config": None, "scratchpad": None},
    "test_run": {
        "workspace_id": REQUIRED,
        "task": REQUIRED,
        "backend": "mock",
        "max_iterations": None,
        "max_runtime_secs": None,
        "env": None,
        "mock_responses": None,
    },
    "test_assert": {"workspace_id": REQUIRED, "assertions": REQUIRED},
    "test_inspect": {"workspace_id": REQUIRED, "filter": None, "limit": 100, "format": "json"},
    "test_cleanup": {"workspace_id": REQUIRED, "preserve_session": False},
    "test_snapshot": {"workspace_id": REQUIRED, "include_patterns": (), "exclude_patterns": ()},
    "test_diff": {"workspace_id": REQUIRED, "baseline": REQUIRED, "compare_to": "current"},
    "test_record": {
        "workspace_id": REQUIRED,
        "cassette_name": REQUIRED,
        "task": REQUIRED,
        "backend": REQUIRED,
        "max_iterations": None,
        "redactions": None,
    },
    "test_replay": {
        "workspace_id": REQUIRED,
        "cassette_name": REQUIRED,
        "task": REQUIRED,
        "strict": True,
        "allow_passthrough": False,
    },
    "test_evaluate": {
        "workspace_id": REQUIRED,
        "evaluations": REQUIRED,
        "judge_preset": "judge",
        "judge_backend": "",
        "chain_of_thought": True,
    },
    "test_coverage": {"workspace_id": REQUIRED, "also": ()},
    "test_benchmark": {
        "workspace_id": REQUIRED,
        "task": REQUIRED,
        "repeat": 10,
        "mock_responses": None,
        "save_baseline": "",
        "from_baseline": "",
        "min_effect_percent": 5.0,
    },
    "test_compare": {"workspace_id": REQUIRED, "after": REQUIRED},
    "test_chaos": {
        "workspace_id": REQUIRED,
        "task": REQUIRED,
        "faults": REQUIRED,
        "seed": 0,
        "backend": "playbook",
        "playbook": "",
    },
    "test_report": {
        "workspace_id": REQUIRED,
        "format": REQUIRED,
        "test_name": REQUIRED,
        "include_traces": False,
        "output_path": None,
    },
}
RESULTS = {
    "test_setup": "workspace_path workspace_id created_files",
    "test_run": "exit_code termination_reason iterations elapsed_secs session_file events_count "
    "stdout stderr mock_responses_consumed mock_responses_remaining",
    "test_assert": "passed results failed_count",
    "test_cleanup": "deleted preserved_files",
    "test_snapshot": "snapshot_id files file_count total_bytes",
    "test_diff": "changed_files added_files deleted_files diffs",
    "test_record": "cassette_path cassette_name interactions total_tokens cost_dollars "
    "duration_secs",
    "test_replay": "exit_code termination_reason iterations interactions_replayed "
    "interactions_passthrough cost_dollars session_file",
    "test_evaluate": "evaluations overall_score all_passed",
    "test_coverage": "percent offered covered traces missing parts",
    "test_benchmark": "passed runs metrics compared summary baseline_path",
    "test_compare": "same differences figures report",
    "test_chaos": "passed summary outcomes exit_code termination_reason error",
    "test_report": "report_path format tests passed failed skipped duration_secs",
}
ASSERTIONS = {
    "exit_code": "expected",
    "termination_reason": "expected",
    "iterations": "min max exact",
    "file_exists": "path",
    "file_contains": "path pattern",
    "file_not_contains": "path pattern",
    "event_occurred": "topic payload_pattern",
    "event_sequence": "topics",
    "event_count": "topic min max exact",
    "scratchpad_contains": "pattern",
    "no_event": "topic",
    "duration": "max_secs",
    "hat_sequence": "hats",
    "hat_transition": "from to",
    "iteration_count": "hat min max exact",
    "stdout_contains": "pattern",
    "stderr_contains": "pattern",
    "cost_within": "max_dollars",
    "snapshot_matches": "snapshot_id redactions",
}
STRUCTS: dict[type[msgspec.Struct], str] = {
    MockResponse: "hat trigger_pattern output exit_code delay_ms",
    EventFilter: "event_types topics after_iteration before_iteration payload_pattern",
    Evaluation: "criterion target rubric threshold reference custom_prompt",
    RecordPage: "records total_matched truncated",
    TraceSummary: "total_events by_type by_topic iterations hats_used duration_secs",
    TimelineEntry: "iteration hat events duration_ms",
}


def test_every_tool_is_in_both_tables():
    assert set(PARAMETERS) == set(FUNCTIONS)
    assert set(RESULTS) == set(FUNCTIONS) - {"test_inspect"}  # its result depends on the format


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_tool_has_the_documented_parameters(name: str):
    found = signatures.signature(FUNCTIONS[name]).parameters
    [schema] = [tool["inputSchema"] for tool in describe_tools() if tool["name"] == name]
    for parameter, default in PARAMETERS[name].items():
        expected = signatures.Parameter.empty if default is REQUIRED else default
        assert found[parameter].default == expected, parameter
        assert (parameter in schema["required"]) is (default is REQUIRED), parameter


@pytest.mark.parametrize("name", RESULTS)
def test_a_tool_result_has_the_documented_fields(name: str):
    result_type = get_type_hints(FUNCTIONS[name])["return"]
    assert set(RESULTS[name].split()) <= set(result_type.__struct_encode_fields__)


@pytest.mark.parametrize("name", ASSERTIONS)
def test_an_assertion_has_the_documented_fields(name: str):
    assert set(ASSERTIONS[name].split()) <= set(assertion_class(name).__struct_encode_fields__)


@pytest.mark.parametrize("struct", STRUCTS)
def test_a_struct_has_the_documented_fields(struct: type[msgspec.Struct]):
    assert set(STRUCTS[struct].split()) <= set(struct.__struct_encode_fields__)
