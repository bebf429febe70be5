"""pydantic-ai-examples: the support agent of a bank, with a database and a structured answer."""

import sqlite3

from breaks import Break, drop_tool, edit_instructions, replace_tool
from pydantic_ai_examples import bank_support
from pydantic_ai_examples.bank_support import DatabaseConn, SupportDependencies, SupportOutput

from offbook import call, when

ANSWER = {"support_advice": "Hello John, you have $123.45.", "block_card": False, "risk": 1}


def test_the_customer_gets_the_balance(offbook, monkeypatch):
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE customers (id, name, balance)")
    connection.execute("INSERT INTO customers VALUES (123, 'John', 123.45), (7, 'Ada', 9)")
    # The example reads a global that only its main block defines.
    monkeypatch.setattr(bank_support, "cur", connection.cursor(), raising=False)
    deps = SupportDependencies(customer_id=123, db=DatabaseConn(connection))
    run = offbook.drive(bank_support.support_agent, deps=deps).run(
        when(
            "What is my balance?",
            [call("customer_balance"), call("final_result", ANSWER, unanswered=True)],
        )
    )
    assert run.results("customer_balance")[0].text == "$123.45"
    assert run.output == SupportOutput(**ANSWER)
    assert "Reply using the customer's name." in run.requests[0].system
    assert "The customer's name is 'John'" in run.requests[0].system


async def return_zero(_context):
    return "$0.00"


async def find_another_customer(self, *, id):  # noqa: A002 - the name in the example
    return self.sqlite_conn.execute("SELECT name FROM customers WHERE id != ?", (id,)).fetchone()[0]


BREAKS = {
    "the tool invents a balance": replace_tool(
        bank_support.support_agent, "customer_balance", return_zero, "'$0.00' == '$123.45'"
    ),
    "the tool is dropped": drop_tool(bank_support.support_agent, "customer_balance"),
    "the name is of another customer": Break(
        lambda patch: patch.setattr(DatabaseConn, "customer_name", find_another_customer),
        "The customer's name is 'Ada'",
    ),
    "the prompt is shortened": edit_instructions(
        bank_support.support_agent, "Reply using the customer's name.", "", "Reply using"
    ),
}
