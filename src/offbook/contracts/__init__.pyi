from offbook.capability import Capability
from offbook.checks.budgets import Budget as Budget
from offbook.checks.budgets import Spending as Spending
from offbook.contracts.contracts_cli import contract as contract
from offbook.contracts.contracts_cli import enforce as enforce
from offbook.contracts.contracts_cli import infer_contracts as infer_contracts
from offbook.contracts.limits_pytest import MARKER as MARKER
from offbook.trace.event_contracts import ContractFile as ContractFile
from offbook.trace.event_contracts import Contracts as Contracts

CAPABILITY: Capability
