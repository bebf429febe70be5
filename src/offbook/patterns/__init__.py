"""Patterns: reactive cells and handlers, and a harness to test them.

from offbook.patterns import Cell, computed, create_harness, handler, pattern
"""

from offbook.capability import Capability, CommandEntry, lazy_names

CAPABILITY = Capability(
    heading="Patterns",
    commands={
        "pattern": CommandEntry("Test reactive patterns.", "offbook.patterns.patterns_cli:pattern"),
    },
)

# Lazy: `offbook --help` and every start of pytest import this package.
# Type checkers read `__init__.pyi`.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "definition": "Pattern cell computed default effect expect_cell expect_handler handler"
        " pattern",
        "graph": "Computed",
        "harness": "create_harness",
        "pattern_component": "PatternComponent",
        "runtime": "Cell Runtime Stream",
        "steps": "run_steps",
    },
    "CAPABILITY",
    internal={
        "harness": "PatternHarness",
        "definition": "LoadedPattern load_pattern",
        "graph": "Store",
        "patterns_cli": "write_scaffold find_left_out find_tests run_tests scaffold_test",
        "steps": "run_steps_file",
    },
)
