"""Patterns of others are found as `regex` finds them, whether it is asked or not."""

import regex
from hypothesis import given
from hypothesis import strategies as st

from offbook.trace.text_patterns import LiteralPattern, compile_pattern

letters = st.text(alphabet="aBß #/\n\u0130\U0001f600-_:\"'<>=!&~", max_size=4)


@given(letters, letters, letters)
def test_a_text_without_signs_is_found_as_an_expression_of_it_is(
    source: str, before: str, after: str
):
    pattern = compile_pattern(source)
    assert isinstance(pattern, LiteralPattern)
    for text in (before, before + source + after):
        found = regex.search(source, text)
        assert pattern.search(text) == (found.span() if found else None)
