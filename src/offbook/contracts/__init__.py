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
_MODULES = {
    "holding": "Budget Contracts Spending hold_to",
    "inference": "infer_contracts",
}

_NAMES = sorted(name for names in _MODULES.values() for name in names.split())
__all__ = ["CAPABILITY", *_NAMES]  # noqa: PLE0604 # pyright: ignore[reportUnsupportedDunderAll] - only strings
__getattr__ = lazy_names(_MODULES, __name__)


def __dir__() -> list[str]:
    return __all__
