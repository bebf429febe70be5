"""Lint: find tests that prove nothing, and mocks and playbooks that nothing uses.

offbook lint tests/
"""

from offbook.capability import Capability, CommandEntry

CAPABILITY = Capability(
    heading="Lint",
    commands={
        "lint": CommandEntry(
            "Find tests without assertions, and mocks and playbooks without use.",
            "offbook.lint.lint_cli:lint",
        ),
    },
)
