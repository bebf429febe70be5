"""langchain-community: the SQL agent, with its four tools on a real database."""

import pytest
from breaks import Break
from langchain_community.agent_toolkits import SQLDatabaseToolkit, create_sql_agent
from langchain_community.agent_toolkits.sql import base
from langchain_community.tools import QuerySQLDatabaseTool
from langchain_community.utilities import SQLDatabase
from langchain_openai import ChatOpenAI
from sqlalchemy import create_engine, text
from sqlalchemy.pool import StaticPool

from offbook import call, role, say, when

QUERY = "SELECT name FROM lamps WHERE watts > 20"


@pytest.fixture
def database():
    engine = create_engine(
        "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}
    )
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE lamps (name TEXT, watts INTEGER)"))
        connection.execute(text("INSERT INTO lamps VALUES ('desk', 9), ('hall', 40)"))
    yield SQLDatabase(engine)
    engine.dispose()


def test_the_answer_comes_from_the_database(offbook, database):
    executor = create_sql_agent(ChatOpenAI(model="gpt-5"), db=database, agent_type="tool-calling")

    def ask(question):
        return executor.invoke({"input": question})["output"]

    run = offbook.drive(ask).run(
        when(
            "Which lamp has more than 20 watts?",
            [
                call("sql_db_list_tables"),
                call("sql_db_schema", {"table_names": "lamps"}),
                call("sql_db_query_checker", {"query": QUERY}),
                call("sql_db_query", {"query": "SELECT nam FROM lamps"}),
                call("sql_db_query", {"query": QUERY}),
                say("The lamp in the hall."),
            ],
        ),
        role("checker", [say(QUERY)], first="Double check the sqlite query"),
    )
    assert run.tools == [tool.name for tool in run.scripted.calls]
    assert run.results("sql_db_list_tables")[0].text == "lamps"
    assert "CREATE TABLE lamps" in run.results("sql_db_schema")[0].text
    assert "no such column: nam" in run.results("sql_db_query")[0].text
    assert run.results("sql_db_query")[1].text == "[('hall',)]"
    assert run.output == "The lamp in the hall."
    assert "DO NOT make any DML statements" in run.requests[0].system


def return_all_tools_but_one(self):
    return [tool for tool in get_tools(self) if tool.name != "sql_db_query_checker"]


get_tools = SQLDatabaseToolkit.get_tools
BREAKS = {
    "queries return nothing": Break(
        lambda patch: patch.setattr(QuerySQLDatabaseTool, "_run", lambda *_, **__: ""),
        "'no such column: nam' in ''",
    ),
    "an error of the database ends the agent": Break(
        lambda patch: patch.setattr(SQLDatabase, "run_no_throw", SQLDatabase.run),
        "no such column: nam",
    ),
    "the checker is dropped": Break(
        lambda patch: patch.setattr(SQLDatabaseToolkit, "get_tools", return_all_tools_but_one),
        "the agent does not offer 'sql_db_query_checker'",
    ),
    "the prompt allows changes": Break(
        lambda patch: patch.setattr(base, "SQL_PREFIX", "You query a {dialect} database."),
        "You query a sqlite database.",
    ),
}
