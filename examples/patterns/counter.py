"""A counter: a cell, two computed values and two handlers."""

from offbook.patterns import Cell, computed, default, handler, pattern


def nth(number: int) -> str:
    """Return an ordinal: 1st, 2nd, 3rd, 4th."""
    if number % 100 not in {11, 12, 13}:
        ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    else:
        ending = "th"
    return f"{number}{ending}"


@handler
def increment(event, value):
    value.set(value.get() + 1)


@handler
def decrement(event, value):
    value.set(value.get() - 1)


@pattern
def counter(value: Cell[int] = default(0)):
    return {
        "value": value,
        "label": computed(lambda: f"the {nth(value.get())} visit"),
        "increment": increment(value=value),
        "decrement": decrement(value=value),
    }
