"""What the tools take and give, by name and by default: the promise to those who call them."""

from __future__ import annotations

import inspect as signatures
from typing import Any, get_type_hints

import msgspec
import pytest

from offbook.checks.judge import Evaluation
from offbook.checks.registry import ASSERTIONS as KINDS
from offbook.surfaces.mcp_server import describe_tools
from offbook.trace.inspection import EventFilter, RecordPage, TimelineEntry, TraceSummary
from offbook.workflows.mock_backend import MockResponse
from offbook.workflows.workflows_mcp import FUNCTIONS

NEEDED = object()
TAKEN: dict[str, dict[str, Any]] = {
    "test_setup": {"workspace_id": NEEDED, "fixtures": None, "config": None, "scratchpad": None},
    "test_run": {
        "workspace_id": NEEDED,
        "task": NEEDED,
        "backend": "mock",
        "max_iterations": 5,
        "max_runtime_secs": 300,
        "env": None,
        "mock_responses": None,
    },
    "test_assert": {"workspace_id": NEEDED, "assertions": NEEDED},
    "test_inspect": {"workspace_id": NEEDED, "filter": None, "limit": 100, "format": "json"},
    "test_cleanup": {"workspace_id": NEEDED, "preserve_session": False},
    "test_snapshot": {"workspace_id": NEEDED, "include_patterns": (), "exclude_patterns": ()},
    "test_diff": {"workspace_id": NEEDED, "baseline": NEEDED, "compare_to": "current"},
    "test_record": {
        "workspace_id": NEEDED,
        "cassette_name": NEEDED,
        "task": NEEDED,
        "backend": NEEDED,
        "max_iterations": 10,
        "redactions": None,
    },
    "test_replay": {
        "workspace_id": NEEDED,
        "cassette_name": NEEDED,
        "task": NEEDED,
        "strict": True,
        "allow_passthrough": False,
    },
    "test_evaluate": {
        "workspace_id": NEEDED,
        "evaluations": NEEDED,
        "judge_preset": "judge",
        "judge_backend": "",
        "chain_of_thought": True,
    },
    "test_report": {
        "workspace_id": NEEDED,
        "format": NEEDED,
        "test_name": NEEDED,
        "include_traces": False,
        "output_path": None,
    },
}
GIVEN = {
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
PARTS: dict[type[msgspec.Struct], str] = {
    MockResponse: "hat trigger_pattern output exit_code delay_ms",
    EventFilter: "event_types topics after_iteration before_iteration payload_pattern",
    Evaluation: "criterion target rubric threshold reference custom_prompt",
    RecordPage: "records total_matched truncated",
    TraceSummary: "total_events by_type by_topic iterations hats_used duration_secs",
    TimelineEntry: "iteration hat events duration_ms",
}


def test_every_tool_is_in_both_tables():
    assert set(TAKEN) == set(FUNCTIONS)
    assert set(GIVEN) == set(FUNCTIONS) - {"test_inspect"}  # which gives what its format says


@pytest.mark.parametrize("name", TAKEN)
def test_a_tool_takes_what_it_promises(name: str):
    found = signatures.signature(FUNCTIONS[name]).parameters
    [schema] = [told["inputSchema"] for told in describe_tools() if told["name"] == name]
    for parameter, default in TAKEN[name].items():
        expected = signatures.Parameter.empty if default is NEEDED else default
        assert found[parameter].default == expected, parameter
        assert (parameter in schema["required"]) is (default is NEEDED), parameter


@pytest.mark.parametrize("name", GIVEN)
def test_a_tool_gives_what_it_promises(name: str):
    given = get_type_hints(FUNCTIONS[name])["return"]
    assert set(GIVEN[name].split()) <= set(given.__struct_encode_fields__)


@pytest.mark.parametrize("name", ASSERTIONS)
def test_an_assertion_has_the_fields_it_promises(name: str):
    assert set(ASSERTIONS[name].split()) <= set(KINDS[name].__struct_encode_fields__)


@pytest.mark.parametrize("kind", PARTS)
def test_what_goes_in_and_out_has_the_fields_it_promises(kind: type[msgspec.Struct]):
    assert set(PARTS[kind].split()) <= set(kind.__struct_encode_fields__)
