"""Makes a script that breaks an invariant smaller, as long as it breaks the same one.

The script is shortened, not the random choices behind it: that takes a few runs instead of a few
hundred, and what is left has no superfluous step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.explore.moves import END, GeneratedCall, Move

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_RUNS = 300
SIMPLE_VALUES: tuple[Any, ...] = (None, 0, 1, "", "a", [], {})


def shrink(
    moves: tuple[Move, ...], fails: Callable[[tuple[Move, ...]], bool]
) -> tuple[tuple[Move, ...], int]:
    """Return the smallest moves for which `fails` still holds, and the number of tries."""
    tries = 0
    changed = True
    while changed and tries < MAX_RUNS:
        changed = False
        for candidate in _smaller(moves):
            if _size(candidate) >= _size(moves):
                continue
            tries += 1
            if fails(candidate):
                moves, changed = candidate, True
                break
            if tries >= MAX_RUNS:
                break
    return moves, tries


def _size(moves: tuple[Move, ...]) -> int:
    return sum(move.size for move in moves)


def _smaller(moves: tuple[Move, ...]) -> Iterator[tuple[Move, ...]]:
    """Yield shorter and simpler scripts, those that remove most first."""
    # 1. Half of the moves, then a quarter, then single ones.
    length = len(moves) // 2 or 1
    while length and moves:
        for start in range(0, len(moves), length):
            yield moves[:start] + moves[start + length :]
        length //= 2
    # 2. One call of several, or no text with the calls.
    for index, move in enumerate(moves):
        before, after = moves[:index], moves[index + 1 :]
        if len(move.calls) > 1:
            for skipped in range(len(move.calls)):
                calls = move.calls[:skipped] + move.calls[skipped + 1 :]
                yield (*before, msgspec.structs.replace(move, calls=calls), *after)
        if move.calls and move.text:
            yield (*before, msgspec.structs.replace(move, text=""), *after)
        if not move.calls and not move.status and move.stop == "stop":
            yield (*before, END, *after)
    # 3. Simpler arguments.
    for index, move in enumerate(moves):
        for number, made in enumerate(move.calls):
            for arguments in _simpler(made.arguments):
                calls = list(move.calls)
                calls[number] = GeneratedCall(made.tool, arguments, made.unknown)
                changed = msgspec.structs.replace(move, calls=tuple(calls))
                yield (*moves[:index], changed, *moves[index + 1 :])


def _simpler(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the arguments without one of them, and with a simpler one."""
    for name, item in value.items():
        rest = {key: other for key, other in value.items() if key != name}
        yield rest
        simple = [candidate for candidate in SIMPLE_VALUES if type(candidate) is type(item)]
        for candidate in simple:
            if candidate != item:
                yield {**value, name: candidate}
        if isinstance(item, dict):
            for inner in _simpler(cast("dict[str, Any]", item)):
                yield {**value, name: inner}
        if isinstance(item, list) and len(cast("list[Any]", item)) > 1:
            yield {**value, name: cast("list[Any]", item)[:1]}
