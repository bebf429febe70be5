"""A selection: an item of a list, found again by identity."""

from offbook.patterns import Cell, handler, pattern


@handler
def select(event, items, selected):
    selected.set(items.get()[event["index"]])


@handler
def remove_selected(event, items, selected):
    items.remove(selected.get())
    selected.set(None)


@pattern
def selection(items: Cell[list[dict]] = [], selected: Cell[dict | None] = None):  # noqa: B006 - copied
    return {
        "items": items,
        "selected": selected,
        "select": select(items=items, selected=selected),
        "remove_selected": remove_selected(items=items, selected=selected),
    }
