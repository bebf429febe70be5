"""Conformance: run a command on every source file of a folder and compare its output.

    offbook conformance tests/ --run 'python {file}'

`sum.py` passes if its output is `sum.expected`, or if it fails with the message of `sum.error`.
"""

from offbook.capability import Capability, CommandEntry, lazy_names

CAPABILITY = Capability(
    heading="Conformance",
    commands={
        "conformance": CommandEntry(
            "Run a command on source files and compare its output.",
            "offbook.conformance.conformance_cli:conformance",
        ),
    },
)

# Lazy, because `offbook --help` and every start of pytest import this package.
# `__init__.pyi` lists the same names for type checkers.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "cases": "find_cases",
        "conformance_run": "run_cases",
        "suite_settings": "read_suite_settings",
    },
    "CAPABILITY",
    internal={
        "suite_settings": "SuiteSettings",
        "conformance_run": "ConformanceResult",
        "cases": "ERROR EXPECTED ConformanceCase matches_error matches_filter",
        "case_worker": "send_message",
        "worker_pool": "start_worker",
    },
)
