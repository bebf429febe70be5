"""A text cut into pieces is still that text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.exchange.arguments import RAW, read_arguments, read_input, write_arguments, write_input
from offbook.exchange.messages import JSON, Text
from offbook.exchange.pieces import cut_reply, cut_runs, cut_words
from offbook.exchange.reply import Reply


@given(st.text())
def test_pieces_join_to_the_text(text: str) -> None:
    assert "".join(cut_words(text)) == text
    assert "".join(cut_runs(text)) == text
    assert all((*cut_words(text), *cut_runs(text)))


def test_words_come_one_by_one() -> None:
    assert cut_words("All done: it is  42.\n") == ["All", " done:", " it", " is", "  42.", "\n"]


def test_known_chunks_are_kept_and_wrong_ones_are_not() -> None:
    assert cut_reply(Reply((Text("ab c"),), chunks=("a", "b c")), "ab c") == ("a", "b c")
    assert cut_reply(Reply((Text("ab c"),), chunks=("x",)), "ab c") == ["ab", " c"]


@pytest.mark.parametrize(
    "text, arguments",
    [
        ("", {}),
        ("{}", {}),
        ('{"a": 1}', {"a": 1}),
        ("{not JSON", {RAW: "{not JSON"}),
        ("[1]", {RAW: "[1]"}),
        ("7", {RAW: "7"}),
    ],
)
def test_arguments_are_read_or_kept_as_they_are(text: str, arguments: JSON) -> None:
    assert read_arguments(text) == arguments
    assert read_arguments(write_arguments(arguments)) == arguments
    assert RAW not in arguments or write_arguments(arguments) == text


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
    assert write_input(arguments) == text
    assert write_input(read_input(text)) == text
