"""A text cut into pieces is still that text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.exchange.dialects.streaming import split_fixed, split_reply_text, split_words
from offbook.exchange.messages import (
    JSON,
    RAW_ARGUMENTS,
    Text,
    parse_arguments,
    parse_custom_input,
    render_arguments,
    render_custom_input,
)
from offbook.exchange.model import Reply


@given(st.text())
def test_pieces_join_to_the_text(text: str) -> None:
    assert "".join(split_words(text)) == text
    assert "".join(split_fixed(text)) == text
    assert all((*split_words(text), *split_fixed(text)))


def test_words_come_one_by_one() -> None:
    assert split_words("All done: it is  42.\n") == ["All", " done:", " it", " is", "  42.", "\n"]


def test_known_chunks_are_kept_and_wrong_ones_are_not() -> None:
    assert split_reply_text(Reply((Text("ab c"),), chunks=("a", "b c")), "ab c") == ("a", "b c")
    assert split_reply_text(Reply((Text("ab c"),), chunks=("x",)), "ab c") == ["ab", " c"]


@pytest.mark.parametrize(
    "text, arguments",
    [
        ("", {}),
        ("{}", {}),
        ('{"a": 1}', {"a": 1}),
        ("{not JSON", {RAW_ARGUMENTS: "{not JSON"}),
        ("[1]", {RAW_ARGUMENTS: "[1]"}),
        ("7", {RAW_ARGUMENTS: "7"}),
    ],
)
def test_arguments_are_read_or_kept_as_they_are(text: str, arguments: JSON) -> None:
    assert parse_arguments(text) == arguments
    assert parse_arguments(render_arguments(arguments)) == arguments
    assert RAW_ARGUMENTS not in arguments or render_arguments(arguments) == text


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"input": "x"}, "x"),
        ({"patch": "x"}, "x"),
        ({}, "{}"),
        ({"a": 1}, '{"a":1}'),
        ({"a": "x", "b": "y"}, '{"a":"x","b":"y"}'),
    ],
)
def test_a_custom_tool_is_given_a_text(arguments: JSON, text: str) -> None:
    assert render_custom_input(arguments) == text
    assert render_custom_input(parse_custom_input(text)) == text
