"""A check-up: a list of portable scenarios that is played against any agent, without a test.

offbook checkup shop:agent "Refund order 7"
"""

from offbook.capability import Capability, CommandEntry, lazy_names

CAPABILITY = Capability(
    heading="Explore",
    commands={
        "checkup": CommandEntry(
            "Play unusual replies, errors and faults against an agent.",
            "offbook.checkup.checkup_cli:checkup_command",
        ),
    },
)

# Lazy, because `offbook --help` and every start of pytest import this package.
# `__init__.pyi` lists the same names for type checkers.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {},
    "CAPABILITY",
    internal={
        "checkup_run": "Checkup run_checkup",
        "kit": "Kit make_value",
        "outcomes": "OUTCOMES RULES KnownAgent find_crash",
        "playing": "CheckupResult",
        "scenarios": "GROUPS SCENARIOS CheckupScenario select",
    },
)
