"""One pattern per item of a list, and time that passes at once."""

from shopping_list import shopping_list

from offbook.patterns import create_harness

ITEMS = [
    {"name": "tea", "price": 4, "bought": False},
    {"name": "cake", "price": 9, "bought": False},
]


def test_a_row_that_is_bought_costs_nothing_any_more():
    with create_harness() as h:
        shopping = h.load(shopping_list, {"items": ITEMS})
        assert shopping.result.left == 13
        shopping.result.rows[1].toggle.send()
        h.idle()
        assert shopping.result.left == 4
        assert shopping.result.items[1]["bought"] is True


def test_a_row_follows_its_item_when_another_one_is_removed():
    with create_harness() as h:
        shopping = h.load(shopping_list, {"items": ITEMS})
        cake = shopping.result.rows[1]
        shopping.result.remove.send({"index": 0})
        cake.toggle.send()
        h.idle()
        assert shopping.result.items == [{"name": "cake", "price": 9, "bought": True}]


def test_after_an_hour_there_is_a_reminder_for_what_is_left():
    with create_harness() as h:
        shopping = h.load(shopping_list, {"items": ITEMS})
        shopping.result.rows[0].toggle.send()
        h.advance(1800)
        shopping.result.add.send({"name": "milk", "price": 2})
        h.advance(1800)
        assert shopping.result.reminders == ["cake"]
        h.advance(1800)
        assert shopping.result.reminders == ["cake", "milk"]
