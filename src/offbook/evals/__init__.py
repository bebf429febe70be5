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
    importers=dict.fromkeys((".toml", ".json"), "offbook.evals.importers.suite:import_suite"),
)

# Lazy, because `offbook --help` and every start of pytest import this package.
# `__init__.pyi` lists the same names for type checkers.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "builders": "PackBuilder",
        "pack": "Pack",
        "pack_file": "read_pack",
        "pack_run": "RunOptions run_pack",
    },
    "CAPABILITY",
    internal={
        "builders": "build_context_manifest render_schema write_first_pack write_pack_from",
        "case_evaluation": "evaluate_case",
        "case_kind": "EvalOptions",
        "classifier_eval": "Classification ClassifierSettings Classify LabelledExample"
        " classify_by_model classify_by_rules open_model read_examples run_classifier",
        "context_eval": "MANIFEST_TYPE ContextArtifact ContextManifest ContextMode read_manifest"
        " render_context_markdown report_files run_context_eval select_artifacts",
        "eval_reports": "compare_runs github_annotations plot_interval render_counts"
        " render_markdown render_table report_json to_suites",
        "friction": "SuggestionExpectation SuggestionMade parse_friction_events redact_values"
        " redact_words suggest",
        "rubrics": "CalibrationRow Evidence JudgeOptions build_judges evaluate_rubric read_target"
        " report_agreement settings_for",
        "ladder": "run_ladder",
        "live_verify": "run_command",
        "pack": "METRIC_OF AssertionKind CommandSpec LadderBackend LadderSpec ModelRoute Rubric"
        " RubricKind TimeoutTier",
        "pack_file": "find_json_line find_packs find_toml_line order_ladders",
        "pack_run": "Evaluator FinishedRun RunProgress Trial plan_trials",
        "run_record": "check_replay load_friction_events parse_replay_fixture parse_run_record"
        " read_run_record read_stored_trace record_from_events",
        "run_directory": "RESULTS CaseResult RunDirectory RunPlan RunSummary find_results find_run"
        " list_runs query_results read_plan read_results read_summary summarize_cases"
        " summarize_run",
    },
)
