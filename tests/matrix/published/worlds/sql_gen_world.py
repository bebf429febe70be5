"""A world for a search: a connection that knows one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
from pydantic_ai_examples import sql_gen as example

from offbook import drive

if TYPE_CHECKING:
    from offbook.runs.rehearsal import Rehearsal


def world() -> Rehearsal:
    """Return a new agent."""

    class Database:
        async def execute(self, statement: str) -> None:
            if "FROM records" not in statement:
                raise asyncpg.exceptions.UndefinedTableError("no such relation")

    return drive(example.agent, deps=example.Deps(Database()))
