"""A request that comes again is read as it was the first time, and no other is taken for it."""

import pytest

from offbook.exchange.dialects.chat import Chat
from offbook.exchange.dialects.dialect import Wire
from offbook.exchange.dialects.repeats import KEPT, LONG
from offbook.exchange.messages import to_json
from offbook.exchange.threads import Threads

PATH = "/v1/chat/completions"


def ask(text: str, path: str = PATH, **headers: str) -> Wire:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    return Wire("POST", path, headers, to_json(body))


def test_the_same_request_is_read_once():
    chat = Chat()
    first = chat.decode(ask("hi", host="a"), Threads())
    assert chat.decode(ask("hi", host="a"), Threads()) is first


@pytest.mark.parametrize(
    "other",
    [
        ask("ho", host="a"),
        ask("hi", **{"host": "a", "session-id": "2"}),
        ask("hi", path=f"/other{PATH}", host="a"),
    ],
)
def test_a_request_that_differs_in_anything_is_read_by_itself(other: Wire):
    chat = Chat()
    chat.decode(ask("hi", host="a"), Threads())
    assert chat.decode(other, Threads()) == Chat().decode(other, Threads())


def test_a_request_that_is_refused_is_refused_again():
    chat, wire = Chat(), Wire("POST", PATH, {}, b'{"messages":[]}')
    for _ in range(2):
        with pytest.raises(Exception, match="model"):
            chat.decode(wire, Threads())


def test_only_short_requests_are_kept_and_not_too_many():
    chat = Chat()
    first, long = ask("0"), ask("x" * LONG)
    kept, read = chat.decode(first, Threads()), chat.decode(long, Threads())
    assert chat.decode(long, Threads()) is not read
    for number in range(1, KEPT + 1):
        chat.decode(ask(str(number)), Threads())
    assert chat.decode(first, Threads()) is not kept
