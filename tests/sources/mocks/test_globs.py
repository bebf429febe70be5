"""A star matches any text; thousands of patterns are searched as fast as a few."""

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.sources import UNINDEXED, GlobIndex
from offbook.trace import Glob

LETTERS = st.text(alphabet="ab*_. é", max_size=12)
WORDS = st.lists(st.sampled_from(["refund", "refunds", "order", "a", "7", "re*f", "*"]), max_size=6)
PHRASES = WORDS.map(" ".join)


def as_regex(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


@given(pattern=LETTERS | PHRASES, text=LETTERS | PHRASES)
def test_a_glob_matches_as_the_equivalent_regular_expression(pattern: str, text: str):
    assert Glob(pattern).matches(text) is (as_regex(pattern).fullmatch(text) is not None)


def find(globs: GlobIndex, text: str) -> list[int]:
    """Return the numbers of the patterns that match."""
    return [number for number, glob in globs.find_candidates(text) if glob.matches(text)]


@given(
    patterns=st.lists(LETTERS | PHRASES, min_size=UNINDEXED + 1, max_size=30),
    text=LETTERS | PHRASES,
)
def test_the_index_finds_the_same_as_a_search_one_by_one(patterns: list[str], text: str):
    globs = [(number, Glob(pattern)) for number, pattern in enumerate(patterns)]
    assert find(GlobIndex(globs), text) == [n for n, glob in globs if glob.matches(text)]


@given(wide=LETTERS, narrow=LETTERS, text=LETTERS)
def test_a_covering_glob_matches_whatever_the_covered_one_matches(
    wide: str, narrow: str, text: str
):
    if Glob(wide).covers(Glob(narrow)) and Glob(narrow).matches(text):
        assert Glob(wide).matches(text)


def test_of_a_thousand_patterns_only_a_few_are_tried():
    order = list(range(1000))
    Random(7).shuffle(order)  # noqa: S311 - not for secrets
    globs = GlobIndex((number, Glob(f"*question number {number:04}*")) for number in order)
    text = "please answer question number 0815 for me"
    assert find(globs, text) == [815]
    assert len(globs.find_candidates(text)) < 20


def test_a_very_long_word_is_searched_too():
    globs = GlobIndex((number, Glob(f"*needle-{number}*")) for number in range(1000))
    assert find(globs, "x" * 5000 + "needle-815") == [8, 81, 815]


@pytest.mark.parametrize(
    "pattern,text", [("*[demo]*", "a [demo] b"), ("a?c", "a?c"), ("*{x}*", "{x}"), ("**", "")]
)
def test_only_the_star_is_special(pattern: str, text: str):
    assert Glob(pattern).matches(text)
