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
        "conformance_cli": "find_cases read_suite_settings run_cases",
    },
    "CAPABILITY",
    internal={
        "conformance_cli": "ConformanceCase ConformanceResult ERROR EXPECTED SuiteSettings"
        " matches_error matches_filter start_worker",
        "case_worker": "send_message",
    },
)
