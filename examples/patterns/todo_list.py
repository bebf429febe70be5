"""A todo list: values that follow their cells."""

from typing import TypedDict

from offbook.patterns import Cell, computed, default, handler, pattern


class Item(TypedDict):
    """One task."""

    title: str
    done: bool


@handler
def add(event, items):
    items.push({"title": event["title"], "done": False})


@pattern
def todo_list(items: Cell[list[Item]] = default([])):
    return {
        "items": items,
        "active": computed(lambda: [item for item in items.get() if not item["done"]]),
        "count": computed(lambda: len(items.get())),
        "add": add(items=items),
    }
