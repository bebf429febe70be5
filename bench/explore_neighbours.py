"""Bugs of other kinds than those of `explore_bugs.py`: what the defaults of a search find.

    python bench/explore_neighbours.py            all bugs in a session, seed 0
    python bench/explore_neighbours.py stale 2    bugs with "stale" in their name, seeds 0 and 1

The kinds are those of issue trackers: a key that is used again, a unit, a stale cache, a limit, a
permission that is checked once, shared state. It prints a line for each search, broken and fixed.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.explore_bugs import Row, hosted, search
from tests.explore.hosts import Bug

RUNS = 500


def key_used_again(*, fixed: bool) -> Bug:
    """The key of one charge is used for another amount, which is dropped."""
    charges: dict[str, int] = {}
    dropped: list[str] = []

    def charge(key: str, amount: int) -> str:
        """Charge an amount; the key makes it idempotent."""
        if charges.setdefault(key, amount) != amount:
            if fixed:
                return "refused: the key was used with another amount"
            dropped.append(key)
        return f"charged {charges[key]}"

    return Bug([charge], "Charge 30 with key k-1", lambda: not dropped)


def lost_cursor(*, fixed: bool) -> Bug:
    """A cursor of one list is used for another one."""
    state = {"kind": "", "mixed": ""}

    def list_rows(kind: str, cursor: int = 0) -> str:
        """List rows of kind 'open' or 'closed', three at a time."""
        if cursor and state["kind"] not in {"", kind}:
            if fixed:
                return "the cursor is of another list"
            state["mixed"] = kind
        state["kind"] = kind
        rows = [f"{kind}-{n}" for n in range(9)][cursor : cursor + 3]
        return json.dumps({"rows": rows, "cursor": cursor + 3})

    return Bug([list_rows], "List the open rows", lambda: not state["mixed"])


def cents_as_euros(*, fixed: bool) -> Bug:
    """The price has another unit than the account."""
    account = {"euros": 50.0}

    def quote(item: str) -> str:
        """Return the price of an item in cents."""
        return json.dumps({"item": item, "price": 1999})

    def buy(item: str, price: int) -> str:
        """Buy an item for a price in cents."""
        if price <= 0 or price / (100 if fixed else 1000) > account["euros"]:
            return "too expensive"
        account["euros"] -= price / 100
        return f"bought {item}"

    return Bug([quote, buy], "Buy a lamp", lambda: account["euros"] >= 0)


def stale_cache(*, fixed: bool) -> Bug:
    """A cached price survives its update."""
    prices = {"lamp": 10}
    cache: dict[str, int] = {}
    stale: list[str] = []

    def get_price(item: str) -> str:
        """Return the price of an item, such as 'lamp'."""
        if item not in prices:
            return "no such item"
        if cache.setdefault(item, prices[item]) != prices[item]:
            stale.append(item)
        return str(cache[item])

    def set_price(item: str, price: int) -> str:
        """Set the price of an item."""
        if item not in prices or price <= 0:
            return "refused"
        prices[item] = price
        if fixed:
            cache.pop(item, None)
        return "set"

    return Bug([get_price, set_price], "Set the price of the lamp to 12", lambda: not stale)


def one_too_many(*, fixed: bool) -> Bug:
    """One file more than the limit is taken."""
    files: list[str] = []

    def attach(name: str) -> str:
        """Attach a file; at most 3 files."""
        if len(files) >= 3 + (not fixed):
            return "too many files"
        files.append(name)
        return "attached"

    return Bug([attach], "Attach a.txt", lambda: len(files) <= 3)


def checked_once(*, fixed: bool) -> Bug:
    """The permission is checked for the first document only."""
    state = {"checked": False, "leaked": False}

    def read_document(id: str) -> str:  # noqa: A002 - a parameter of a tool
        """Read a document: d-1 or d-2; d-9 is secret."""
        if id not in {"d-1", "d-2", "d-9"}:
            return "no such document"
        if id == "d-9" and (fixed or not state["checked"]):
            return "denied"
        state["checked"] = True
        state["leaked"] |= id == "d-9"
        return f"text of {id}"

    return Bug([read_document], "Read d-1", lambda: not state["leaked"])


def shared_carts(*, fixed: bool) -> Bug:
    """All carts have the items of one list."""
    items: list[tuple[str, str]] = []
    carts: dict[str, list[tuple[str, str]]] = {}

    def add(cart: str, item: str) -> str:
        """Add an item to a cart, such as c1 or c2."""
        carts.setdefault(cart, [] if fixed else items).append((cart, item))
        return "added"

    def is_own() -> bool:
        return all(owner == cart for cart, held in carts.items() for owner, _ in held)

    return Bug([add], "Add a lamp to cart c1", is_own)


def changed_defaults(*, fixed: bool) -> Bug:
    """A tag of one ticket is added to the defaults."""
    defaults = ["new"]
    tickets: list[list[str]] = []

    def create(title: str) -> str:
        """Create a ticket with the default tags."""
        tickets.append([*defaults] if fixed else defaults)
        return f"ticket {len(tickets)}: {title}"

    def add_tag(ticket: int, tag: str) -> str:
        """Add a tag to a ticket."""
        if not 1 <= ticket <= len(tickets):
            return "no such ticket"
        tickets[ticket - 1].append(tag)
        return "tagged"

    return Bug([create, add_tag], "Create a ticket 'Lamp broken'", lambda: defaults == ["new"])


def end_of_month(*, fixed: bool) -> Bug:
    """The day of one month does not exist in the next."""

    def find_due_date(day: str) -> str:
        """Return the day a month after one such as 2026-01-15."""
        try:
            found = date.fromisoformat(day)
        except ValueError:
            return "no date"
        number = min(found.day, 28) if fixed else found.day
        return str(found.replace(month=found.month % 12 + 1, day=number))

    return Bug([find_due_date], "When is 2026-01-15 due?")


def undone_twice(*, fixed: bool) -> Bug:
    """One deposit can be undone again and again."""
    deposits: list[int] = []
    account = {"balance": 0}

    def deposit(amount: int) -> str:
        """Deposit an amount."""
        if not 0 < amount < 10_000:
            return "refused"
        deposits.append(amount)
        account["balance"] += amount
        return "deposited"

    def undo() -> str:
        """Undo the last deposit."""
        if not deposits:
            return "nothing to undo"
        account["balance"] -= deposits.pop() if fixed else deposits[-1]
        return "undone"

    return Bug([deposit, undo], "Deposit 40", lambda: account["balance"] >= 0)


def two_spellings(*, fixed: bool) -> Bug:
    """An address in two spellings is two users."""
    users: list[str] = []

    def register(email: str) -> str:
        """Register a user by mail address."""
        spelling = email.lower() if fixed else email
        if "@" not in email or spelling in users:
            return "refused"
        users.append(spelling)
        return "registered"

    return Bug(
        [register],
        "Register ada@shop.example",
        lambda: len(users) == len({user.lower() for user in users}),
    )


def half_an_order(*, fixed: bool) -> Bug:
    """An order that fails in the middle keeps its first half."""
    stock = {"a": 2, "b": 1}
    halves: list[str] = []

    def order(first: str, second: str) -> str:
        """Order two items at once, such as 'a' and 'b': both or none."""
        before = dict(stock)
        for name in (first, second):
            if stock.get(name, 0) < 1:
                if fixed:
                    stock.update(before)
                elif stock != before:
                    halves.append(name)
                return "not in stock"
            stock[name] -= 1
        return "ordered"

    return Bug([order], "Order a and b", lambda: not halves)


BUGS: list[Callable[..., Bug]] = [
    *(key_used_again, lost_cursor, cents_as_euros, stale_cache, one_too_many, checked_once),
    *(shared_carts, changed_defaults, end_of_month, undone_twice, two_spellings, half_an_order),
]


def main() -> int:
    """Search all agents, print what was found, and return 1 if a fixed one has a finding."""
    warnings.simplefilter("ignore")
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    counts = [0, 0, 0]
    for make_bug in BUGS:
        name = make_bug.__name__
        row = Row(name, partial(hosted, make_bug, "session"))
        for seed in range(seeds if word in name else 0):
            texts: list[Any] = [search(row, seed, RUNS, fixed=fixed)[0] for fixed in (False, True)]
            counts = [counts[0] + bool(texts[0]), counts[1] + bool(texts[1]), counts[2] + 1]
            print(f"{name}, seed {seed}: {texts[0] or 'nothing'}; fixed: {texts[1] or 'nothing'}")
    print(f"found {counts[0]} of {counts[2]}; false {counts[1]} of {counts[2]}")
    return int(counts[1] > 0 or not counts[2])


if __name__ == "__main__":
    sys.exit(main())
