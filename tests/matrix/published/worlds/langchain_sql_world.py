"""A world for a search: a database in a file, which is the state."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from langchain_community.agent_toolkits import create_sql_agent
from langchain_community.utilities import SQLDatabase
from langchain_openai import ChatOpenAI

from offbook import drive

if TYPE_CHECKING:
    from offbook.runs.rehearsal import Rehearsal


def world() -> tuple[Rehearsal, object]:
    """Return a new agent."""
    folder = TemporaryDirectory()
    file = Path(folder.name, "lamps.db")
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE lamps (name TEXT, watts INTEGER)")
        connection.execute("INSERT INTO lamps VALUES ('desk', 9), ('hall', 40)")
    connection.close()
    database = SQLDatabase.from_uri(f"sqlite:///{file}")
    executor = create_sql_agent(ChatOpenAI(model="gpt-5"), db=database, agent_type="tool-calling")

    def ask(question: str) -> str:
        return executor.invoke({"input": question})["output"]

    return drive(ask), (file, folder)
