"""Makes a value smaller as long as it fails: a generated script, or the steps of a tape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MAX_RUNS = 400
T = TypeVar("T")


def shrink(
    value: T,
    fails: Callable[[T], bool],
    smaller: Callable[[T], Iterable[T]],
    size: Callable[[T], int],
    max_runs: int = MAX_RUNS,
) -> tuple[T, int]:
    """Return the smallest value for which `fails` is true, and the number of tries.

    `smaller` yields the candidates of a value, those that remove most first. At the end, no
    candidate of the value fails, or `max_runs` were tried.
    """
    tried = {repr(value)}
    changed = True
    while changed and len(tried) <= max_runs:
        changed = False
        for candidate in smaller(value):
            key = repr(candidate)
            if key in tried or size(candidate) >= size(value):
                continue
            tried.add(key)
            if fails(candidate):
                value, changed = candidate, True
                break
            if len(tried) > max_runs:
                break
    return value, len(tried) - 1


def without_parts(items: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the items without a half of them, then without a quarter, then without single ones."""
    length = len(items) // 2 or 1
    while length and items:
        for start in range(0, len(items), length):
            yield items[:start] + items[start + length :]
        length //= 2
