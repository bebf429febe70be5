"""A history is shared, never copied, and never changes under whoever holds it."""

from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import offbook.exchange.messages
from offbook.exchange.messages import (
    EMPTY_DIGEST,
    History,
    Message,
    Text,
    ToolResult,
    extend_digest,
    user,
)
from tests.exchange.strategies import conversations, messages


@given(conversations, st.lists(conversations, max_size=5), st.data())
def test_going_on_never_changes_an_earlier_view(
    start: list[Message], further: list[list[Message]], data: st.DataObject
):
    views = [(History(start), list(start))]
    for more in further:
        history, there = data.draw(st.sampled_from(views))
        views.append((history.plus(*more), there + more))
    for history, there in views:
        assert list(history) == there
        assert len(history) == len(there)
        assert history.digest() == History(there).digest()
        asked = [message for message in there if message.role == "user"]
        assert history.latest("user") == (asked[-1] if asked else None)


@given(conversations, conversations)
def test_digests_are_equal_when_and_only_when_the_messages_are(
    one: list[Message], other: list[Message]
):
    assert (History(one).digest() == History(other).digest()) == (one == other)
    assert (History(one) == History(other)) == (one == other)
    assert History(one) == History(list(one))


@given(conversations, messages)
def test_the_digest_grows_message_by_message(there: list[Message], more: Message):
    whole = History(there)
    assert whole.plus(more).digest() == extend_digest(whole.digest(), more)
    assert whole.plus(more).digest(len(there)) == whole.digest()
    assert whole.digest(0) == EMPTY_DIGEST


@given(conversations, st.integers(-8, 8), st.integers(-8, 8))
def test_a_history_is_indexed_like_a_tuple_of_its_messages(
    there: list[Message], start: int, stop: int
):
    whole = History(there)
    whole.plus(user("after"))  # nobody may see this one
    assert whole[start:stop] == tuple(there[start:stop])
    if -len(there) <= start < len(there):
        assert whole[start] == there[start]
    else:
        with pytest.raises(IndexError):
            whole[start]


def test_going_on_shares_what_is_there(monkeypatch: pytest.MonkeyPatch):
    first = History([user("one")])
    first.digest()
    hashed: list[Message] = []

    def count(before: str, message: Message) -> str:
        hashed.append(message)
        return extend_digest(before, message)

    monkeypatch.setattr(offbook.exchange.messages, "extend_digest", count)
    first.plus(user("two")).digest()
    assert hashed == [user("two")]


@pytest.mark.parametrize(
    "details",
    [{1: 2}, {(1, 2): 3}, {"s": {1, "a"}}, object, "\ud800"],
    ids=["number keys", "tuple keys", "mixed set", "a class", "half a surrogate"],
)
def test_details_that_are_no_json_still_have_a_digest(details: Any):
    message = Message("tool", (ToolResult("1", (Text("ok"),), details=details),))
    assert History([message]).digest() == History([message]).digest() != History().digest()


def test_details_that_contain_themselves_still_have_a_digest():
    loop: list[Any] = []
    loop.append(loop)
    assert History([Message("tool", (ToolResult("1", details=loop),))]).digest()


def test_a_history_can_be_a_key_and_shows_its_messages():
    assert {History([user("hi")]): 1}[History([user("hi")])] == 1
    assert "hi" in repr(History([user("hi")]))
    assert History() != []


def test_threads_that_go_on_at_once_do_not_mix() -> None:
    start = History([user("start")])
    found: dict[int, History] = {}

    def go_on(number: int) -> None:
        mine = start
        for turn in range(20):
            mine = mine.plus(*[user(f"{number}-{turn}")])
            mine.digest()
        found[number] = mine

    threads = [Thread(target=go_on, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, grown in found.items():
        texts = ["start", *(f"{number}-{turn}" for turn in range(20))]
        assert [message.text for message in grown] == texts
        assert grown.digest() == History(map(user, texts)).digest()
    assert len(found) == 8
