"""A star stands for anything; thousands of patterns are searched as if they were few."""

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.sources.mocks.globs import FEW, Glob, Globs

LETTERS = st.text(alphabet="ab*_. é", max_size=12)
WORDS = st.lists(st.sampled_from(["refund", "refunds", "order", "a", "7", "re*f", "*"]), max_size=6)
PHRASES = WORDS.map(" ".join)


def as_regex(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


@given(pattern=LETTERS | PHRASES, text=LETTERS | PHRASES)
def test_a_glob_means_what_the_same_expression_means(pattern: str, text: str):
    assert Glob(pattern).fits(text) is (as_regex(pattern).fullmatch(text) is not None)


@given(patterns=st.lists(LETTERS | PHRASES, min_size=FEW + 1, max_size=30), text=LETTERS | PHRASES)
def test_the_index_finds_what_a_search_one_by_one_finds(patterns: list[str], text: str):
    globs = [(place, Glob(pattern)) for place, pattern in enumerate(patterns)]
    assert list(Globs(globs).fitting(text)) == [place for place, glob in globs if glob.fits(text)]


@given(wide=LETTERS, narrow=LETTERS, text=LETTERS)
def test_what_covers_another_fits_whatever_that_one_fits(wide: str, narrow: str, text: str):
    if Glob(wide).covers(Glob(narrow)) and Glob(narrow).fits(text):
        assert Glob(wide).fits(text)


def test_a_thousand_patterns_are_not_looked_at():
    order = list(range(1000))
    Random(7).shuffle(order)  # noqa: S311 - an order, no secret
    looked: list[int] = []

    class Watched(Glob):
        def fits(self, text: str) -> bool:
            looked.append(1)
            return super().fits(text)

    globs = Globs((place, Watched(f"*question number {place:04}*")) for place in order)
    assert list(globs.fitting("please answer question number 0815 for me")) == [815]
    assert len(looked) < 20


def test_a_word_as_long_as_a_page_is_searched_too():
    globs = Globs((place, Glob(f"*needle-{place}*")) for place in range(1000))
    assert list(globs.fitting("x" * 5000 + "needle-815")) == [8, 81, 815]


@pytest.mark.parametrize(
    "pattern,text", [("*[demo]*", "a [demo] b"), ("a?c", "a?c"), ("*{x}*", "{x}"), ("**", "")]
)
def test_only_the_star_is_special(pattern: str, text: str):
    assert Glob(pattern).fits(text)
