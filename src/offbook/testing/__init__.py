"""Functions for tests, and conformance suites for authors of sources, subjects and dialects.

    from offbook.testing import assert_host_called, host_call, with_host_mocks

    with with_host_mocks([{"capability": "clock", "operation": "now_ms", "result": 7}]):
        assert host_call("clock.now_ms") == 7
        assert_host_called("clock", "now_ms")

A suite is subclassed in a test file; pytest collects its tests:

    class TestMySource(SourceConformance):
        def source(self):
            return MySource()
"""

from offbook.capability import lazy_names

# `__init__.pyi` lists the same names for type checkers.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "checks.audit": "assert_audit read_audit_policy",
        "checks.golden_transcript": "assert_eq assert_golden_transcript assert_handoff_emitted"
        " assert_ne assert_receipt_field assert_step_emitted assert_step_received"
        " assert_steps_ran require",
        "host.fake_cli": "fake_cli mock_pi",
        "host.host_scope": "assert_host_call_count assert_host_called assert_no_host_calls"
        " clear_host_mocks host_call host_call_count host_call_count_for host_calls"
        " host_calls_for mock_host_error mock_host_response mock_host_result"
        " register_host_provider",
        "runs.api": "create_test_session",
        "runs.mock_scopes": "llm_call llm_call_count llm_calls llm_mock with_host_mocks"
        " with_llm_mocks with_mocks",
        "trace.steps": "persona step step_assertions step_assertions_begin step_assertions_end"
        " step_events step_events_clear",
        "testing.conformance_suites": "DialectConformance SourceConformance SubjectConformance",
    },
    package="offbook",
    internal={
        "trace.steps": "StepLog",
        "runs.mock_scopes": "LlmScope MockScopes clear_llm_mocks",
        "host.host_scope": "HostCall HostScope host_was_called",
        "host.fake_cli": "CliCall FakeCli",
        "checks.audit": "AuditFinding AuditPolicy AuditResult AuditRule AuditState"
        " AuditedTranscript audit_transcript parse_audit_policy",
    },
)
