"""A plain text is found where the same regular expression is."""

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import UsageError
from offbook.trace import LiteralPattern, compile_pattern

letters = st.text(alphabet="aBß #/\n\u0130\U0001f600-_:\"'<>=!&~", max_size=4)


@given(letters.filter(bool), letters, letters)
def test_a_text_without_special_characters_matches_like_an_expression(
    source: str, before: str, after: str
):
    pattern = compile_pattern(source)
    assert isinstance(pattern, LiteralPattern)
    for text in (before, before + source + after):
        match = regex.search(source, text)
        assert pattern.search(text) == (match.span() if match else None)


def test_an_empty_pattern_is_refused():
    with pytest.raises(UsageError, match=r"suite\.error:2: the pattern is empty"):
        compile_pattern("", "suite.error:2")


@pytest.mark.parametrize("source", ["a" * 1000 + ".", "." * 1001])
def test_a_pattern_that_would_be_searched_for_minutes_is_refused(source: str):
    with pytest.raises(UsageError, match="the pattern has 1001 characters, and at most 1000"):
        compile_pattern(source)


def test_a_long_text_without_special_characters_is_searched():
    assert compile_pattern("a" * 5000).search("a" * 5000) == (0, 5000)
