"""pydantic-ai-examples: an agent that writes SQL, which a database has to accept."""

import asyncpg
from breaks import Break
from pydantic_ai_examples import sql_gen

from offbook import call, when

GOOD = {"sql_query": "SELECT * FROM records WHERE level = \\'error\\'", "explanation": "errors"}


class Database:
    """A connection that knows one table."""

    def __init__(self):
        self.statements = []

    async def execute(self, statement):
        self.statements.append(statement)
        if "FROM records" not in statement:
            raise asyncpg.exceptions.UndefinedTableError('relation "logs" does not exist')


def test_only_a_query_that_the_database_accepts_is_the_answer(offbook):
    database = Database()
    run = offbook.drive(sql_gen.agent, deps=sql_gen.Deps(database)).run(
        when(
            "Show me the errors",
            [
                call("final_result_Success", {"sql_query": "DROP TABLE records"}),
                call("final_result_Success", GOOD, unanswered=True),
            ],
        ),
        when(
            "Show me the logs",
            [
                call("final_result_Success", {"sql_query": "SELECT * FROM logs"}),
                call("final_result_Success", GOOD, unanswered=True),
            ],
        ),
    )
    refused = [result.text for result in run.results("final_result_Success")]
    assert "Please create a SELECT query" in refused[0]
    # The result of the accepted answer comes with the next prompt.
    assert 'Invalid query: relation "logs" does not exist' in refused[2]
    assert run.output == sql_gen.Success(
        sql_query="SELECT * FROM records WHERE level = 'error'", explanation="errors"
    )
    assert database.statements[-1] == "EXPLAIN SELECT * FROM records WHERE level = 'error'"
    assert "CREATE TABLE records" in run.requests[0].system


def accept_everything(monkeypatch):
    async def accept(_context, output):
        return output

    monkeypatch.setattr(sql_gen.agent._output_validators[0], "function", accept)


async def execute_without_explain(self, statement):
    self.statements.append(statement.removeprefix("EXPLAIN "))


BREAKS = {
    "the validator accepts everything": Break(accept_everything, "3 actions remaining"),
    "the query is not explained": Break(
        lambda patch: patch.setattr(Database, "execute", execute_without_explain),
        "1 action remaining",
    ),
    "the schema is missing in the prompt": Break(
        lambda patch: patch.setattr(sql_gen, "DB_SCHEMA", ""), "CREATE TABLE records"
    ),
}
