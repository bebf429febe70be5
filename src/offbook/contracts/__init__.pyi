from offbook.capability import Capability
from offbook.contracts.holding import Budget as Budget
from offbook.contracts.holding import Contracts as Contracts
from offbook.contracts.holding import Spending as Spending
from offbook.contracts.holding import hold_to as hold_to
from offbook.contracts.inference import infer_contracts as infer_contracts

CAPABILITY: Capability

__all__ = [
    "CAPABILITY",
    "Budget",
    "Contracts",
    "Spending",
    "hold_to",
    "infer_contracts",
]
