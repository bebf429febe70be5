"""Contracts and budgets: schemas and limits that every run must meet.

from offbook.contracts import Contracts, enforce
"""

from offbook.capability import Capability, CommandEntry, lazy_names

CAPABILITY = Capability(
    heading="Contracts",
    commands={
        "contract": CommandEntry(
            "Check events against schemas, and infer schemas.",
            "offbook.contracts.contracts_cli:contract",
        ),
    },
)

# Lazy, because `offbook --help` and every start of pytest import this package.
# `__init__.pyi` lists the same names for type checkers.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "checks.budgets": "Budget",
        "contracts.contracts_cli": "enforce",
        "trace.event_contracts": "Contracts",
    },
    "CAPABILITY",
    package="offbook",
    internal={
        "checks.budgets": "Spending",
        "contracts.limits_pytest": "MARKER",
        "trace.event_contracts": "ContractFile",
        "contracts.contracts_cli": "contract infer_contracts",
    },
)
