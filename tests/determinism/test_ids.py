"""Names are counted or derived, never random."""

from hypothesis import given
from hypothesis import strategies as st

from offbook.determinism.clock import IdCounter, stable_id


def test_names_are_counted_from_one_for_each_prefix():
    ids = IdCounter()
    assert [ids.next("call"), ids.next("run"), ids.next("call")] == ["call-1", "run-1", "call-2"]


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_a_stable_name_depends_on_its_parts_and_on_nothing_else(parts: list[str]):
    name = stable_id("chatcmpl-", *parts)
    assert name == stable_id("chatcmpl-", *parts)
    assert name != stable_id("chatcmpl-", *parts, "more")
    assert name.startswith("chatcmpl-")
    assert len(name) == len("chatcmpl-") + 24
