"""A plain text is found where the same regular expression is."""

import regex
from hypothesis import given
from hypothesis import strategies as st

from offbook.trace import LiteralPattern, compile_pattern

letters = st.text(alphabet="aBß #/\n\u0130\U0001f600-_:\"'<>=!&~", max_size=4)


@given(letters, letters, letters)
def test_a_text_without_special_characters_matches_like_an_expression(
    source: str, before: str, after: str
):
    pattern = compile_pattern(source)
    assert isinstance(pattern, LiteralPattern)
    for text in (before, before + source + after):
        match = regex.search(source, text)
        assert pattern.search(text) == (match.span() if match else None)
