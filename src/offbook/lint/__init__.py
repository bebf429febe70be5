"""Lint: find tests that prove nothing, and mocks and playbooks that nothing uses.

offbook lint tests/
"""

from offbook.capability import Capability, CommandEntry, lazy_names

CAPABILITY = Capability(
    heading="Lint",
    commands={
        "lint": CommandEntry(
            "Find tests without assertions, and mocks and playbooks without use.",
            "offbook.lint.lint_cli:lint",
        ),
    },
)

# `__init__.pyi` lists the same names for type checkers.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {},
    "CAPABILITY",
    internal={"lint_cli": "RULES fix_paths lint lint_paths"},
)
