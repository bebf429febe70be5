"""Checks: assertions, snapshots and judges that read a trace and return verdicts."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "agent_coverage": "AgentCoverage CoverageReader CoveredPart read_coverage",
        "assertion": "ASSERTIONS AUDIT_RULES RUN_ASSERTIONS Assertion AssertionResult"
        " assertion_class evaluate_all parse_assertion",
        "audit": "DEFAULT_POLICY PULL_REQUEST_POLICY audit_transcript find_golden"
        " read_audit_policy",
        "budgets": "FIELDS Budget Spending SpendingReader",
        "comparison": "ComparedRow Comparison TraceComparison compare_paths compare_traces"
        " render_comparison",
        "context": "CheckContext NoData OutputMatch Termination",
        "expected_files": "MAX_STATES MAX_STATE_TEXT MAX_STATE_TEXTS FileMove FileStates"
        " PendingChange Review Snapshot capture_snapshot compare_snapshots diff_texts in_ci"
        " list_proposed pending_change read_small_text redact_snapshot split_lines update_goldens",
        "fault_outcomes": "find_outcomes judge_faults",
        "golden_transcript": "KNOWN assert_golden_transcript assert_receipt_field check_sentinels"
        " find_golden_mismatches mask_volatile merge_golden parse_transcript read_transcript",
        "judge": "CRITERIA Evaluation Judge Judgement ask_judge compare_pair parse_judgement"
        " reject_self_judging write_prompt",
        "tool_assertions": "ActualCall ExpectedCall Mode compare_tool_calls",
        "trial_statistics": "cohen_kappa compare_paired pass_at_k pass_hat_k sign_flip_test"
        " sign_test wilson",
    },
)
