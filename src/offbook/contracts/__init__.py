"""Contracts and budgets: what every run is held to.

from offbook.contracts import Contracts, hold_to
"""

from offbook.capability import Capability, CommandEntry, lazy_names

CAPABILITY = Capability(
    heading="Contracts",
    commands={
        "contract": CommandEntry(
            "Check events by schemas, and infer them.", "offbook.contracts.contracts_cli:contract"
        ),
    },
    pytest_module="offbook.contracts.limits_pytest",
)

# Lazy, because `offbook --help` and every start of pytest import this package.
# `__init__.pyi` lists the same names for type checkers.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "holding": "Budget Contracts Spending hold_to",
        "inference": "infer_contracts",
    },
    "CAPABILITY",
)
