"""A selection: an item of a list, found again by identity."""

from offbook.patterns import Cell, default, handler, pattern


@handler
def select(event, items, selected):
    selected.set(items.get()[event["index"]])


@handler
def remove_selected(event, items, selected):
    items.remove(selected.get())
    selected.set(None)


@pattern
def selection(items: Cell[list[dict]] = default([]), selected: Cell[dict | None] = default(None)):
    return {
        "items": items,
        "selected": selected,
        "select": select(items=items, selected=selected),
        "remove_selected": remove_selected(items=items, selected=selected),
    }
