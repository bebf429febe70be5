"""Level 2: computed values; and a handler that refuses an event."""

from expense_tracker import expense_tracker

from offbook.patterns import create_harness

EXPENSES = [
    {"amount": 10, "category": "food"},
    {"amount": 20, "category": "food"},
    {"amount": 30, "category": "transport"},
]


def test_the_total_is_the_sum():
    with create_harness() as h:
        tracker = h.load(expense_tracker, {"expenses": EXPENSES})
        assert tracker.result.total == 60


def test_expenses_are_grouped_by_category():
    with create_harness() as h:
        tracker = h.load(expense_tracker, {"expenses": EXPENSES})
        assert tracker.result.by_category == {"food": 30, "transport": 30}


def test_without_expenses_everything_is_empty():
    with create_harness() as h:
        tracker = h.load(expense_tracker)
        assert (tracker.result.total, tracker.result.by_category) == (0, {})


def test_a_negative_expense_is_refused():
    with create_harness(expect_errors=1) as h:
        tracker = h.load(expense_tracker, {"expenses": EXPENSES})
        tracker.result.add.send({"amount": -5, "category": "food"})
        h.idle()
        assert tracker.result.total == 60
