"""Expenses: computed values over a list."""

from collections import Counter
from typing import TypedDict

from offbook.patterns import Cell, computed, default, handler, pattern


class Expense(TypedDict):
    """One expense."""

    amount: float
    category: str


@handler
def add(event, expenses):
    if event["amount"] <= 0:
        raise ValueError(f"an expense is positive, got {event['amount']}")
    expenses.push(event)


@pattern
def expense_tracker(expenses: Cell[list[Expense]] = default([])):
    def by_category():
        totals = Counter()
        for expense in expenses.get():
            totals[expense["category"]] += expense["amount"]
        return dict(totals)

    return {
        "expenses": expenses,
        "total": computed(lambda: sum(expense["amount"] for expense in expenses.get())),
        "by_category": computed(by_category),
        "add": add(expenses=expenses),
    }
