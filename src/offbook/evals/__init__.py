"""Eval packs: portable cases with rubrics and thresholds, run on one machine or on a cluster.

offbook eval run evals/offbook.eval.toml

from offbook.evals import PackBuilder
"""

from offbook.capability import Capability, CommandEntry, lazy_names

CAPABILITY = Capability(
    heading="Evals",
    commands={
        "eval": CommandEntry(
            "Run eval packs, list and compare their results.", "offbook.evals.evals_cli:evals"
        ),
    },
    pytest_module="offbook.evals.evals_pytest",
)

# Lazy, because `offbook --help` and every start of pytest import this package.
# `__init__.pyi` lists the same names for type checkers.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "builders": "PackBuilder build_context_manifest",
        "case_results": "CaseResult",
        "pack": "Pack",
        "pack_file": "read_pack",
        "context_eval": "run_context_eval",
        "pack_run": "RunOptions run_pack",
    },
    "CAPABILITY",
    internal={
        "calibration": "CalibrationRow report_agreement",
        "case_evaluation": "EvalOptions evaluate_case",
        "classifier_eval": "Classification ClassifierSettings Classify LabelledExample"
        " classify_by_model classify_by_rules read_examples run_classifier",
        "context_eval": "ContextManifest MANIFEST_TYPE read_manifest"
        " render_context_markdown write_context_report",
        "context_selection": "ContextArtifact select_artifacts",
        "eval_reports": "github_annotations render_counts render_markdown render_table"
        " report_json to_suites",
        "fixtures": "load_friction_events",
        "friction": "SuggestionExpectation SuggestionMade parse_friction_events"
        " redact_values redact_words suggest",
        "imported_runs": "read_stored_trace",
        "judging": "JudgeOptions build_judge read_target settings_for",
        "ladder": "run_ladder",
        "live_verify": "run_command",
        "local_engine": "LostTrial Result Trial",
        "pack": "CommandSpec LadderBackend LadderSpec ModelRoute Rubric TimeoutTier",
        "pack_file": "find_packs order_ladders",
        "pack_lines": "find_json_line find_toml_line",
        "pack_run": "Evaluator FinishedRun RunProgress plan_trials",
        "pack_scaffold": "render_schema write_first_pack write_pack_from",
        "replay_checks": "check_replay",
        "rubrics": "Evidence evaluate_rubric",
        "run_comparison": "compare_runs plot_interval",
        "run_directory": "RESULTS RunDirectory RunPlan find_results find_run list_runs"
        " read_plan read_results read_summary",
        "run_query": "query_results",
        "run_record": "parse_replay_fixture parse_run_record read_run_record record_from_events",
        "run_summary": "RunSummary summarize_cases summarize_run",
    },
)
