"""A found script is text that can be pasted."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from offbook.exchange import Text, ToolResult
from offbook.explore import (
    GeneratedCall,
    Move,
    Place,
    build_turn,
    find_values,
    render_script,
    run_rendered,
    shrink,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
CALLS = st.builds(
    GeneratedCall,
    st.sampled_from(["refund", "find"]),
    st.dictionaries(st.text(max_size=3), VALUES, max_size=2),
)
MOVES = st.one_of(
    st.builds(Move, st.lists(CALLS, min_size=1, max_size=3).map(tuple)),
    st.builds(Move, text=st.text(max_size=20)),
    st.builds(Move, status=st.sampled_from([429, 500])),
)


@given(st.lists(MOVES, max_size=4))
def test_the_pasted_text_is_the_script_that_was_played(moves: list[Move]):
    assert run_rendered(render_script("Go", moves)) == build_turn("Go", moves, [])


def test_a_value_of_a_result_is_read_when_the_script_runs():
    moves = [
        Move((GeneratedCall("propose"),)),
        Move((GeneratedCall("approve", {"id": Place(0, as_text=True)}),)),
    ]
    assert render_script("Plan", moves).splitlines()[2] == (
        '    call("approve", lambda: {"id": str(seen[0])})'
        ".then(lambda result: seen.extend(find_values(result))),"
    )


def values_of(text: str) -> list[Any]:
    return find_values(ToolResult("c1", (Text(text),)))


def test_the_ids_in_a_text_are_found():
    assert values_of("PLAN-1a2b proposed: Cook, 3 step(s).") == ["PLAN-1a2b", 3]


def test_the_values_of_a_json_result_are_found():
    assert values_of('{"id": "a-1", "items": [{"n": 7}, {"n": 7}]}') == ["a-1", 7]


def test_shrinking_keeps_only_what_breaks_the_invariant():
    bad = GeneratedCall("refund", {"number": 7, "note": "please", "urgent": True})
    other = GeneratedCall("find", {"number": 3})
    moves = (Move((other,)), Move((other, bad, other), "Let me see."), Move(text="Done."))
    smallest, _ = shrink(
        moves,
        lambda tried: any(
            made.tool == "refund" and made.arguments.get("number") == 7
            for move in tried
            for made in move.calls
        ),
    )
    assert smallest == (Move((GeneratedCall("refund", {"number": 7}),)),)
