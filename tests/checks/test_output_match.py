"""What was written is searched as it comes, and found as in the whole of it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.checks import collectors
from offbook.checks.collectors import OutputMatch
from offbook.errors import UsageError
from offbook.trace.events import Event
from offbook.trace.text_patterns import compile_pattern

PATTERNS = [
    *["ab", "b\nc", "a.*c", "a+b", "[abc]c", "(?:ab|ca)b?", r"\bab\b", "a{2,3}", "(?i)AB", "x*"],
    *["^b", "c$", r"a\sb", "a[^b]c", "(?s)a.*c", "(?m)^c", r"(?<=a)b", r"b(?!c)", r"\Ab", r"(a)\1"],
    *["^$", r"\A\Z"],
]
pieces = st.lists(st.text(st.sampled_from("abcé \n"), max_size=5), max_size=30)


def tell(text: str) -> Event:
    return Event(1, "process.output", {"stream": "stdout", "text": text})


@given(pieces, st.sampled_from(PATTERNS), st.sampled_from([0, 1, 7, 10_000]))
def test_a_pattern_is_found_in_pieces_where_it_is_found_in_the_whole(
    told: list[str], pattern: str, size: int
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collectors, "BLOCK", size)
        written = OutputMatch("stdout", pattern)
        for piece in told:
            written.hear(tell(piece))
        whole = "".join(told)
        assert written.fits is (whole != "" and re.search(pattern, whole) is not None)
        assert written.tail == whole[-collectors.TAIL :]


@pytest.mark.parametrize(
    "pattern, kept",
    [
        ("needle", len("needle") - 1),
        (r"need\w+ \d{3}", 0),
        ("(?:one|two).*three", 0),
        (r"need\s", 14_000),
        ("^needle", 14_000),
    ],
)
def test_no_more_is_kept_than_may_become_a_match(pattern: str, kept: int):
    text = "line of words\n" * 1000
    assert len(text) - compile_pattern(pattern).reach(text)[1] == kept


def test_what_is_wrong_with_a_pattern_is_told_when_it_is_asked():
    written = OutputMatch("stdout", "[")
    written.hear(tell("a"))
    with pytest.raises(UsageError, match=r"stdout_contains\.pattern"):
        _ = written.fits


@pytest.mark.parametrize(
    "data", [{"text": 5}, {"stream": "stderr", "text": "a"}, {"stream": None, "text": "a"}, {}]
)
def test_what_was_written_elsewhere_does_not_count(data: dict[str, Any]):
    written = OutputMatch("stdout", "a")
    written.hear(Event(1, "process.output", data))
    assert not written.fits
    assert not written.tail
