"""Comparing events: exactly, as a beginning, as a part."""

from typing import Any

import pytest

from offbook.goldens.fixture_store import MatchMode
from offbook.goldens.golden_replay import compare_events


def event(kind: str, **more: Any) -> dict[str, Any]:
    return {"event": {"type": kind, **more}, "context": {"sessionId": "s"}}


A, B, C = event("a"), event("b"), event("c")

HOLDS: list[tuple[MatchMode, list[Any], list[Any]]] = [
    ("exact", [], []),
    ("exact", [A, B], [A, B]),
    ("exact", [{"context": {"sessionId": "s"}, "event": {"type": "a"}}], [A]),
    ("prefix", [A], [A, B]),
    ("prefix", [], [A]),
    ("subset", [A, C], [A, B, C]),
    ("subset", [event("a")], [event("a", more=1)]),
    ("subset", [event("a", deep={"x": 1})], [event("a", deep={"x": 1, "y": 2})]),
]
DIFFERS: list[tuple[MatchMode, list[Any], list[Any], str]] = [
    ("exact", [A], [A, B], 'events[1]: expected nothing more, got {"context"'),
    ("exact", [A, B], [A], "events[1]: expected"),
    ("exact", [A, B], [B, A], 'events[0].event.type: expected "a", got "b"'),
    ("exact", [event("a", n=1)], [event("a", n=True)], "events[0].event.n: expected 1, got true"),
    ("exact", [event("a", n=1)], [event("a", n=1.0)], "events[0].event.n: expected 1, got 1.0"),
    ("exact", [event("a", n=None)], [A], "events[0].event.n: expected null, but it is not there"),
    ("exact", [A], [event("a", n=2)], "events[0].event.n: expected nothing, got 2"),
    ("prefix", [A, B], [A], "events[1]: expected"),
    ("prefix", [A], [event("a", n=1)], "events[0].event.n: expected nothing"),
    ("subset", [C, A], [A, B, C], 'nothing like {"context":{"sessionId":"s"},"event":{"type":"a"'),
    ("subset", [event("a", n=1)], [A], 'among ["a"]'),
    ("subset", [A, A], [A], "events[1]"),
]


@pytest.mark.parametrize("match, expected, actual", HOLDS)
def test_what_is_as_expected_holds(match: MatchMode, expected: list[Any], actual: list[Any]):
    assert compare_events(expected, actual, match) == []


@pytest.mark.parametrize("match, expected, actual, told", DIFFERS)
def test_what_is_not_is_told_with_its_place(
    match: MatchMode, expected: list[Any], actual: list[Any], told: str
):
    found = compare_events(expected, actual, match)
    assert any(told in line for line in found), found
