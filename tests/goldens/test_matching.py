"""Events are compared exactly, as a prefix, or as a subset."""

from typing import Any

import pytest

from offbook.goldens import MatchMode, compare_events


def event(kind: str, **more: Any) -> dict[str, Any]:
    return {"event": {"type": kind, **more}, "context": {"sessionId": "s"}}


A, B, C = event("a"), event("b"), event("c")

MATCHING: list[tuple[MatchMode, list[Any], list[Any]]] = [
    ("exact", [], []),
    ("exact", [A, B], [A, B]),
    ("exact", [{"context": {"sessionId": "s"}, "event": {"type": "a"}}], [A]),
    ("prefix", [A], [A, B]),
    ("prefix", [], [A]),
    ("subset", [A, C], [A, B, C]),
    ("subset", [event("a")], [event("a", more=1)]),
    ("subset", [event("a", deep={"x": 1})], [event("a", deep={"x": 1, "y": 2})]),
]
DIFFERING: list[tuple[MatchMode, list[Any], list[Any], str]] = [
    ("exact", [A], [A, B], 'events[1]: expected no such event, got {"context"'),
    ("exact", [A, B], [A], "events[1]: expected"),
    ("exact", [A, B], [A, C], 'events[1].event.type: expected "b", got "c"'),
    ("exact", [A, B], [B, A], 'events[0]: expected no such event, got {"context"'),
    ("exact", [event("a", n=1)], [event("a", n=True)], "events[0].event.n: expected 1, got true"),
    ("exact", [event("a", n=1)], [event("a", n=1.0)], "events[0].event.n: expected 1, got 1.0"),
    ("exact", [event("a", n=None)], [A], "events[0].event.n: expected null, got no such field"),
    ("exact", [A], [event("a", n=2)], "events[0].event.n: expected no such field, got 2"),
    ("prefix", [A, B], [A], "events[1]: expected"),
    ("prefix", [A], [event("a", n=1)], "events[0].event.n: expected no such field"),
    (
        "subset",
        [C, A],
        [A, B, C],
        'events[1]: expected {"context":{"sessionId":"s"},"event"',
    ),
    ("subset", [event("a", n=1)], [A], 'in order, got ["a"]'),
    ("subset", [A, A], [A], "events[1]"),
]


@pytest.mark.parametrize("match, expected, actual", MATCHING)
def test_matching_events_have_no_difference(
    match: MatchMode, expected: list[Any], actual: list[Any]
):
    assert compare_events(expected, actual, match) == []


@pytest.mark.parametrize("match, expected, actual, message", DIFFERING)
def test_difference_is_reported_with_its_path(
    match: MatchMode, expected: list[Any], actual: list[Any], message: str
):
    differences = compare_events(expected, actual, match)
    assert any(message in line for line in differences), differences


@pytest.mark.parametrize("match", ["exact", "prefix"])
def test_an_inserted_event_is_the_only_difference(match: MatchMode):
    events = [event("a", n=number) for number in range(5)]
    [difference] = compare_events(events, [*events[:2], C, *events[2:]], match)
    assert difference.startswith("events[2]: expected no such event, got ")
    [difference] = compare_events([*events[:2], C, *events[2:]], events, match)
    assert difference.startswith("events[2]: expected ")
    assert difference.endswith("got no such event")
