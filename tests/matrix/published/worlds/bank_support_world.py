"""A world for a search: a database with two customers."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from pydantic_ai_examples import bank_support as bank

from offbook import drive

if TYPE_CHECKING:
    from offbook.runs.rehearsal import Rehearsal


def world() -> Rehearsal:
    """Return a new agent."""
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.execute("CREATE TABLE customers (id, name, balance)")
    connection.execute("INSERT INTO customers VALUES (123, 'John', 123.45), (7, 'Ada', 9)")
    # The example reads a global that only its main block defines.
    bank.cur = connection.cursor()
    deps = bank.SupportDependencies(customer_id=123, db=bank.DatabaseConn(connection))
    return drive(bank.support_agent, deps=deps)
