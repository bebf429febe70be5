"""Filters: all, a prefix, one name, or a list of these."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import UsageError
from offbook.trace.event_bus import NameFilter, check_name_filter, name_matches

CASES: list[tuple[NameFilter, str, bool]] = [
    ("*", "harness:start", True),
    ("agent:*", "agent:start", True),
    ("agent:*", "agent:tool:start", True),
    ("agent:*", "agent", False),
    ("agent:*", "harness:start", False),
    ("ag*", "agent:start", True),
    ("agent:start", "agent:start", True),
    ("agent:start", "agent:started", False),
    ("**", "agent:start", False),
    ("a*t", "agent", False),
    ([], "agent:start", False),
    (["a:*", "b"], "b", True),
    (["a:*", "b"], "a:1", True),
    (["a:*", "b"], "c", False),
    (("tool.*", "model.reply"), "model.reply", True),
]


@pytest.mark.parametrize("wanted, name, expected", CASES)
def test_a_filter_passes_what_it_names(wanted: NameFilter, name: str, expected: bool):  # noqa: FBT001 - a table's column
    assert name_matches(name, wanted) is expected


@pytest.mark.parametrize("wanted", ["", "model.", "agent:", ["ok", "agent:"]])
def test_a_filter_that_nothing_can_pass_is_refused_with_the_right_one(wanted: NameFilter):
    with pytest.raises(UsageError, match=r'write ".*\*"'):
        check_name_filter(wanted)


@pytest.mark.parametrize("wanted", [3, None, [3], object()])
def test_a_filter_that_is_no_name_is_refused(wanted: object):
    with pytest.raises(UsageError, match="a filter"):
        check_name_filter(wanted)


@given(st.text(), st.lists(st.text(min_size=1)))
def test_a_list_passes_what_any_member_passes(name: str, wanted: list[str]):
    assert name_matches(name, wanted) == any(name_matches(name, one) for one in wanted)
