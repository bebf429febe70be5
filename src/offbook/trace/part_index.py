"""Finds the parts of a conversation by their texts, by the beginnings of texts and by their calls.

A long conversation is compared with another one without comparing each part with each: the texts
are sorted, so that equal ones and those with a common beginning are next to each other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offbook.trace.conversation_parts import Item


class TextIndex:
    """The numbers of the items of one kind by their texts, without those that were removed."""

    def __init__(self, items: Sequence[Item], kind: str) -> None:
        self._entries = sorted((item.rest, n) for n, item in enumerate(items) if item.kind == kind)
        self._end = len(items)

    def find_equal(self, text: str, first: int) -> int | None:
        """Return the first item with this text from the number `first` on, else the first of all.

        None if there is no such item.
        """
        entries = self._entries
        for start in (first, 0):
            at = bisect_left(entries, (text, start))
            if at < len(entries) and entries[at][0] == text:
                return entries[at][1]
        return None

    def find_longer(self, text: str) -> list[int]:
        """Return the items whose texts begin with this one, or are equal to it."""
        entries, found = self._entries, list[int]()
        for at in range(bisect_left(entries, (text, 0)), len(entries)):
            if not entries[at][0].startswith(text):
                break
            found.append(entries[at][1])
        return found

    def find_shorter(self, text: str) -> list[int]:
        """Return the items with whose texts this one begins, or that are equal to it."""
        entries, found = self._entries, list[int]()
        at = bisect_right(entries, (text, self._end))
        while at:
            other, number = entries[at - 1]
            if text.startswith(other):
                found.append(number)
                at -= 1
            else:  # all further ones are at most as long as what both have
                common = text[: common_length(text, other)]
                at = bisect_right(entries, (common, self._end), hi=at - 1)
        return found

    def add(self, text: str, number: int) -> None:
        """Add an item."""
        insort(self._entries, (text, number))

    def remove(self, text: str, number: int) -> None:
        """Remove an item."""
        del self._entries[bisect_left(self._entries, (text, number))]


class CallIndex:
    """The numbers of the calls among the items, by id and by key, without those removed."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._by_id: dict[str, list[int]] = {}
        self._by_key: dict[str, list[int]] = {}
        for number, item in enumerate(items):
            if item.call is not None:
                self._by_id.setdefault(item.call.id, []).append(number)
                self._by_key.setdefault(item.key, []).append(number)

    def find(self, call_id: str, key: str, first: int) -> list[int]:
        """Return the calls with this id, else the first one with this key from `first` on."""
        if same := self._by_id.get(call_id):
            return same
        equal = self._by_key.get(key, [])
        at = bisect_left(equal, first)
        return equal[at : at + 1]

    def remove(self, item: Item, number: int) -> None:
        """Remove a call."""
        if item.call is not None:
            self._by_id[item.call.id].remove(number)
            self._by_key[item.key].remove(number)


def common_length(one: str, other: str) -> int:
    """Return the number of equal characters at the beginning of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
