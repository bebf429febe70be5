"""Compares events with those that were expected: exactly, as a beginning, or as a part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

if TYPE_CHECKING:
    from offbook.runs.goldens.fixture import Match

Plain = dict[str, Any]
_encode = msgspec.json.Encoder(order="deterministic").encode


def show(value: object) -> str:
    """A value as JSON, whose order of keys never matters; 1, 1.0 and true are different."""
    return _encode(value).decode()


def compare_events(expected: list[Plain], actual: list[Plain], match: Match) -> list[str]:
    """What is not as expected, under this way of comparing."""
    if match == "subset":
        return _compare_parts(expected, actual)
    found = [
        f"events[{number}]{difference}"
        for number, (want, got) in enumerate(zip(expected, actual, strict=False))
        for difference in find_difference(want, got)
    ]
    found += [
        f"events[{number}]: expected {show(expected[number])}, but nothing more came"
        for number in range(len(actual), len(expected))
    ]
    if match == "exact":
        found += [
            f"events[{number}]: expected nothing more, got {show(actual[number])}"
            for number in range(len(expected), len(actual))
        ]
    return found


def find_difference(want: Any, got: Any) -> list[str]:
    """The paths at which two values differ, each with both sides."""
    if _are_objects(want, got):
        wanted, came = cast("Plain", want), cast("Plain", got)
        found: list[str] = []
        for key in {**wanted, **came}:
            if key not in came:
                found.append(f".{key}: expected {show(wanted[key])}, but it is not there")
            elif key not in wanted:
                found.append(f".{key}: expected nothing, got {show(came[key])}")
            else:
                found += [f".{key}{deeper}" for deeper in find_difference(wanted[key], came[key])]
        return found
    return [] if show(want) == show(got) else [f": expected {show(want)}, got {show(got)}"]


def _compare_parts(expected: list[Plain], actual: list[Plain]) -> list[str]:
    rest = iter(actual)
    for number, want in enumerate(expected):
        if not any(is_part(want, got) for got in rest):
            names = [got.get("event", {}).get("type") for got in actual]
            return [f"events[{number}]: nothing like {show(want)} among {show(names)}, in order"]
    return []


def is_part(want: Any, got: Any) -> bool:
    """Whether all that is wanted is there; objects may have more keys."""
    if _are_objects(want, got):
        wanted, came = cast("Plain", want), cast("Plain", got)
        return all(key in came and is_part(value, came[key]) for key, value in wanted.items())
    return show(want) == show(got)


def _are_objects(*values: object) -> bool:
    return all(isinstance(value, dict) for value in values)
