"""Eval packs: portable cases with rubrics and thresholds, run on one machine or on a cluster.

offbook eval run evals/offbook.eval.toml

from offbook.evals import PackBuilder
"""

from offbook.capability import Capability, CommandEntry, lazy_names

CAPABILITY = Capability(
    heading="Evals",
    commands={
        "judge": CommandEntry("Calibrate judges.", "offbook.evals.evals_cli:judge"),
        "query": CommandEntry(
            "Query the results of evals with SQL.", "offbook.evals.evals_cli:query_command"
        ),
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
)
