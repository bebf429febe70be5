"""Patterns: reactive cells and handlers, and a harness to test them.

from offbook.patterns import Cell, computed, create_harness, handler, pattern
"""

from offbook.capability import Capability, CommandEntry, lazy_names

CAPABILITY = Capability(
    heading="Patterns",
    commands={
        "pattern": CommandEntry("Test reactive patterns.", "offbook.patterns.patterns_cli:pattern"),
    },
    pytest_module="offbook.patterns.patterns_pytest",
)

# Lazy, because `offbook --help` and every start of pytest import this package.
# `__init__.pyi` lists the same names for type checkers.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "definition": "Pattern cell computed default effect expect_cell expect_handler handler"
        " pattern",
        "graph": "Computed",
        "harness": "create_harness run_steps",
        "pattern_component": "PatternComponent",
        "runtime": "Cell Runtime Stream",
    },
    "CAPABILITY",
    internal={
        "harness": "PatternHarness run_steps_file",
        "definition": "LoadedPattern load_pattern",
        "graph": "Store",
        "patterns_cli": "write_scaffold find_tests run_tests scaffold_test",
    },
)
