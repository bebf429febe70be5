"""A history is immutable and shares its messages."""

from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import offbook.exchange.messages
from offbook.exchange import EMPTY_DIGEST, History, Message, Text, ToolResult, extend_digest, user
from tests.exchange.strategies import conversations, messages


@given(conversations, st.lists(conversations, max_size=5), st.data())
def test_extending_does_not_change_the_earlier_history(
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
        request = [message for message in there if message.role == "user"]
        assert history.latest("user") == (request[-1] if request else None)


@given(conversations, conversations)
def test_digests_are_equal_if_and_only_if_the_messages_are(
    first: list[Message], other: list[Message]
):
    assert (History(first).digest() == History(other).digest()) == (first == other)
    assert (History(first) == History(other)) == (first == other)
    assert History(first) == History(list(first))


@given(conversations, messages)
def test_the_digest_is_extended_per_message(there: list[Message], more: Message):
    complete = History(there)
    assert complete.plus(more).digest() == extend_digest(complete.digest(), more)
    assert complete.plus(more).digest(len(there)) == complete.digest()
    assert complete.digest(0) == EMPTY_DIGEST


@given(conversations, st.integers(-8, 8), st.integers(-8, 8))
def test_a_history_is_indexed_like_a_tuple_of_its_messages(
    there: list[Message], start: int, stop: int
):
    complete = History(there)
    complete.plus(user("after"))  # not visible in the earlier history
    assert complete[start:stop] == tuple(there[start:stop])
    if -len(there) <= start < len(there):
        assert complete[start] == there[start]
    else:
        with pytest.raises(IndexError):
            complete[start]


def test_extending_hashes_only_new_messages(monkeypatch: pytest.MonkeyPatch):
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
def test_details_that_are_not_json_have_a_digest(details: Any):
    message = Message("tool", (ToolResult("1", (Text("ok"),), details=details),))
    assert History([message]).digest() == History([message]).digest() != History().digest()


def test_recursive_details_have_a_digest():
    loop: list[Any] = []
    loop.append(loop)
    assert History([Message("tool", (ToolResult("1", details=loop),))]).digest()


def test_a_history_is_hashable_and_has_a_repr():
    assert {History([user("hi")]): 1}[History([user("hi")])] == 1
    assert "hi" in repr(History([user("hi")]))
    assert History() != []


def test_concurrent_threads_do_not_mix_messages() -> None:
    start = History([user("start")])
    actual: dict[int, History] = {}

    def go_on(number: int) -> None:
        mine = start
        for turn in range(20):
            mine = mine.plus(*[user(f"{number}-{turn}")])
            mine.digest()
        actual[number] = mine

    store = [Thread(target=go_on, args=(number,)) for number in range(8)]
    for thread in store:
        thread.start()
    for thread in store:
        thread.join()
    for number, grown in actual.items():
        texts = ["start", *(f"{number}-{turn}" for turn in range(20))]
        assert [message.text for message in grown] == texts
        assert grown.digest() == History(map(user, texts)).digest()
    assert len(actual) == 8
