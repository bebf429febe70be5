"""A list with one row per item: each row is a pattern of its own, and a reminder waits for it."""

from offbook.patterns import Cell, computed, default, handler, pattern


@handler
def toggle(event, done):
    done.set(not done.get())


@handler
def remind(event, item, reminders):
    if not item.get().get("bought"):
        reminders.push(item.get()["name"])


@pattern
def row(item: Cell[dict], reminders: Cell[list]):
    bought = item.key("bought")
    remind(item=item, reminders=reminders).send_after(3600)
    return {
        "bought": bought,
        "cost": computed(lambda: 0 if bought.get() else item.get()["price"]),
        "toggle": toggle(done=bought),
    }


@handler
def add(event, items):
    items.push({"name": event["name"], "price": event["price"], "bought": False})


@handler
def remove(event, items):
    items.remove(items.get()[event["index"]])


@pattern
def shopping_list(items: Cell[list] = default([]), reminders: Cell[list] = default([])):
    rows = items.map(lambda item: row(item=item, reminders=reminders))
    return {
        "items": items,
        "rows": rows,
        "left": computed(lambda: sum(each.cost for each in rows.get())),
        "reminders": reminders,
        "add": add(items=items),
        "remove": remove(items=items),
    }
