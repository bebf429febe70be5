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
_MODULES = {
    "cases": "ConformanceCase find_cases matches_error matches_filter",
    "conformance_run": "ConformanceResult run_cases",
    "suite_settings": "SuiteSettings read_suite_settings",
}

_NAMES = sorted(name for names in _MODULES.values() for name in names.split())
__all__ = ["CAPABILITY", *_NAMES]  # noqa: PLE0604 # pyright: ignore[reportUnsupportedDunderAll] - only strings
__getattr__ = lazy_names(_MODULES, __name__)


def __dir__() -> list[str]:
    return __all__
