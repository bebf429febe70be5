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
        "cells": "Cell",
        "expectations": "expect_cell expect_handler",
        "harness": "create_harness",
        "definition": "Pattern cell computed default effect handler pattern",
        "pattern_component": "PatternComponent",
        "graph": "Computed",
        "runtime": "Runtime Stream",
        "steps": "run_steps",
    },
    "CAPABILITY",
    internal={
        "steps": "run_steps_file",
        "harness": "PatternHarness",
        "definition": "LoadedPattern load_pattern",
        "graph": "Store",
        "patterns_cli": "write_scaffold",
        "running": "find_tests run_tests",
        "scaffold": "scaffold_test",
    },
)
