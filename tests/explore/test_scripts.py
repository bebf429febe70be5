"""A found script is text that can be pasted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.exchange import Text, Tool, ToolResult
from offbook.explore import (
    GeneratedCall,
    Move,
    Place,
    build_turns,
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
    assert run_rendered(render_script("Go", moves)) == build_turns("Go", moves, [])


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


@pytest.mark.parametrize(
    "text, values",
    [
        ("Delete the branch feature/login.", ["feature/login"]),
        ("the image library/nginx and 3/4 of a cake", ["library/nginx", 3, 4]),
        ("main, feature/cart, v2", ["main", "feature/cart", "v2"]),
        ("Users: Ada, Grace.", ["Ada", "Grace"]),
        ("Ada\nGrace", ["Ada", "Grace"]),
        ("It is done, thank you.", []),
    ],
)
def test_names_with_slashes_and_the_words_of_a_list_are_found(text: str, values: list[Any]):
    assert values_of(text) == values


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


def test_several_prompts_are_a_list_of_conversations():
    moves = [
        Move((GeneratedCall("find"),)),
        Move(prompt="And now?"),
        Move(prompt="Go again", fresh=True),
        Move((GeneratedCall("refund"),), denied=True),
    ]
    script = render_script("Go", moves)
    assert script == (
        "[\n"
        "    [\n"
        '        when("Go", [\n'
        '            call("find"),\n'
        '            say("Done."),\n'
        "        ]),\n"
        '        when("And now?", [\n'
        '            say("Done."),\n'
        "        ]),\n"
        "    ],\n"
        '    when("Go again", [\n'
        '        call("refund"),\n'
        '        person("refund", deny),\n'
        '        say("Done."),\n'
        "    ]),\n"
        "]"
    )
    assert run_rendered(script) == build_turns("Go", moves, [])


@pytest.mark.parametrize(
    "text, values",
    [
        ("write to eve@evil.example.", ["eve@evil.example"]),
        ("see https://shop.example/a?b=1, please", ["https://shop.example/a?b=1"]),
        ("saved in /srv/notes/a.txt and report.csv", ["/srv/notes/a.txt", "report.csv"]),
        ("you owe 1,250.50 EUR for 3 chairs", [1250.5, 3]),
        ("at 12.50 each", [12.5]),
    ],
)
def test_addresses_paths_and_amounts_in_a_text_are_found(text: str, values: list[Any]):
    assert values_of(text) == values


ODD = GeneratedCall("refund", {"number": 7, "list": [{"a": 1}], "text": "abc"})
PLAIN = (Move((GeneratedCall("refund"),)),)


@pytest.mark.parametrize(
    "moves",
    [
        (Move((ODD,), "Let me", "length"),),
        (Move(fault="tool_lost@1"), Move((ODD,), denied=True)),
        (Move((ODD,)), Move(prompt="Again", fresh=True), Move(status=529)),
        (Move(text="and so on"), Move((ODD, ODD), stop="cut")),
    ],
)
def test_no_option_is_left_that_can_be_left_out(moves: tuple[Move, ...]):
    assert shrink(moves, lambda tried: any(move.calls for move in tried))[0] == PLAIN


def test_equal_values_are_made_simpler_together():
    moves = tuple(Move((GeneratedCall("refund", {"id": "PLAN-17"}),)) for _ in range(2))

    def same_id_twice(tried: tuple[Move, ...]) -> bool:
        ids = [made.arguments.get("id") for move in tried for made in move.calls]
        return len(ids) == 2 and ids[0] == ids[1] != None  # noqa: E711 - a value is needed

    assert shrink(moves, same_id_twice)[0] == tuple(
        Move((GeneratedCall("refund", {"id": ""}),)) for _ in range(2)
    )


TOOL = Tool(
    "move",
    "Move goods.",
    {
        "type": "object",
        "properties": {
            "hall": {"type": "string", "enum": ["A", "B"]},
            "count": {"type": "integer", "minimum": 1},
        },
        "required": ["hall", "count"],
    },
)


@pytest.mark.parametrize(
    "arguments, least",
    [
        ({"hall": "B", "count": 50}, {"hall": "B", "count": 1}),  # allowed, so it stays allowed
        ({"hall": "", "count": -1}, {"hall": "A", "count": 1}),  # it need not be forbidden
        ({}, {"hall": "A", "count": 1}),
        ({"hall": "B", "count": 1, "x": 1}, {"hall": "B", "count": 1}),
    ],
)
def test_a_script_has_calls_that_the_schema_allows(arguments: Any, least: Any):
    moves = (Move((GeneratedCall("move", arguments),)),)
    tools = {"move": TOOL}
    smallest, _ = shrink(moves, lambda tried: any(move.calls for move in tried), tools=tools)
    assert smallest == (Move((GeneratedCall("move", least),)),)


def test_a_script_has_a_forbidden_value_if_only_that_breaks_it():
    moves = (Move((GeneratedCall("move", {"hall": "B", "count": -70}),)),)

    def is_negative(tried: tuple[Move, ...]) -> bool:
        return any(made.arguments.get("count", 0) < 0 for move in tried for made in move.calls)

    smallest, _ = shrink(moves, is_negative, tools={"move": TOOL})
    assert smallest == (Move((GeneratedCall("move", {"count": -1}),)),)


def test_a_script_has_a_known_tool_rather_than_one_that_does_not_exist():
    moves = (Move((GeneratedCall("bash ", {}, unknown=True),)),)
    tools = {"move": TOOL}
    smallest, _ = shrink(moves, lambda tried: any(move.calls for move in tried), tools=tools)
    assert [made.tool for made in smallest[0].calls] == ["move"]


def test_two_conversations_are_one_after_the_other_if_that_breaks_too():
    """The second one adds what the first one takes."""
    take, add = (Move((GeneratedCall(name),)) for name in ("take", "add"))
    beside = Move(prompt="Add", fresh=True, beside=True)

    def leaks(tried: tuple[Move, ...]) -> bool:
        names = [made.tool for move in tried for made in move.calls]
        is_beside = any(move.beside for move in tried)
        two = any(move.fresh for move in tried)
        return two and {*names} == {"take", "add"} and (is_beside or names[0] == "add")

    smallest, _ = shrink((take, beside, add), leaks)
    assert smallest == (add, Move(prompt="Add", fresh=True), take)
