"""A body with a cached prefix is decoded as if it were new."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import ModelError
from offbook.exchange import History, Reply, Request, Text, user
from offbook.exchange.dialects import ConversationStore, HttpRequest, PrefixCache
from offbook.exchange.dialects import dialect as dialect_module
from offbook.exchange.dialects.chat.chat_dialect import Chat
from offbook.exchange.dialects.chat.chat_wire import OPTIONS
from offbook.exchange.dialects.responses.responses_dialect import Responses
from tests.exchange.dialects import openai_strategies as strategies

KEYS = {"chat": "messages", "responses": "input"}
requests = {
    "chat": strategies.requests(responses=False, options=OPTIONS.split()[:4]),
    "responses": strategies.requests(responses=True, options=OPTIONS.split()[-3:]),
}


@pytest.fixture(autouse=True)
def worth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect_module, "MIN_BODY_SIZE", 0)
    monkeypatch.setattr(dialect_module, "BLOCK_SIZE", 1)


@pytest.mark.parametrize("name", KEYS)
@given(data=st.data(), indent=st.sampled_from([None, 1]), first=st.booleans())
def test_a_growing_conversation_decodes_like_a_new_one(
    name: str,
    data: st.DataObject,
    indent: int | None,
    first: bool,  # noqa: FBT001 - drawn or given by a table
) -> None:
    make = Chat if name == "chat" else Responses
    dialect = make(frozenset())
    request = data.draw(requests[name])
    complete = json.loads(dialect.build_request(request, "http://127.0.0.1/v1", "key").body)
    items = complete.pop(KEYS[name])
    for length in data.draw(st.lists(st.integers(1, len(items)), max_size=5)):
        grown: dict[str, Any] = {KEYS[name]: items[:length]}
        body = {**grown, **complete} if first else {**complete, **grown}
        http_request = HttpRequest("POST", "/v1", {}, json.dumps(body, indent=indent).encode())
        assert dialect.decode(http_request, ConversationStore()) == make(frozenset()).decode(
            http_request, ConversationStore()
        )


@given(data=st.data(), indent=st.sampled_from([None, 1]))
def test_a_conversation_that_begins_as_another_decodes_like_a_new_one(
    data: st.DataObject, indent: int | None
) -> None:
    dialect = Chat(frozenset())
    one, other = data.draw(requests["chat"]), data.draw(requests["chat"])
    bodies = [
        json.loads(dialect.build_request(request, "http://127.0.0.1/v1", "key").body)
        for request in (one, other)
    ]
    common = data.draw(st.integers(0, len(bodies[0]["messages"])))
    bodies[1]["messages"][:0] = bodies[0]["messages"][:common]
    bodies[1] = {**bodies[0], "messages": bodies[1]["messages"]}
    for body in bodies:
        http_request = HttpRequest("POST", "/v1", {}, json.dumps(body, indent=indent).encode())
        assert dialect.decode(http_request, ConversationStore()) == Chat(frozenset()).decode(
            http_request, ConversationStore()
        )


def make_chat(*messages: dict[str, Any]) -> HttpRequest:
    body = json.dumps({"model": "m", "messages": messages}).encode()
    return HttpRequest("POST", "/v1", {}, body)


HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi"},
]


def test_a_question_after_a_known_history_is_decoded_alone() -> None:
    dialect = Chat()
    questions = [{"role": "user", "content": text} for text in ("One?", "Two?")]
    one, two = (
        dialect.decode(make_chat(*HISTORY, question), ConversationStore()) for question in questions
    )
    assert two.messages[1] is one.messages[1]
    assert [message.text for message in two.messages] == ["Hello", "Hi", "Two?"]


def test_a_call_of_a_known_history_needs_its_result_in_each_request() -> None:
    dialect = Chat()
    function = {"name": "read", "arguments": "{}"}
    call = {"id": "c1", "type": "function", "function": function}
    calls = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "text"}
    dialect.decode(make_chat(*HISTORY, calls, result), ConversationStore())
    question = {"role": "user", "content": "Again?"}
    with pytest.raises(ModelError, match="tool_call_ids did not have response messages: c1"):
        dialect.decode(make_chat(*HISTORY, calls, question), ConversationStore())


def body_of(*items: Any, **more: Any) -> bytes:
    return json.dumps({"model": "m", **more, "items": list(items), "last": 1}).encode()


def test_a_cached_prefix_is_left_out() -> None:
    known: PrefixCache[str] = PrefixCache("items")
    first = body_of({"a": 1}, {"a": 2})
    known.add(first, first, "two")
    grown = body_of({"a": 1}, {"a": 2}, {"a": 3})
    actual = known.find(grown)
    assert actual is not None
    assert actual[0].state == "two"
    assert json.loads(actual[1]) == {"model": "m", "items": [{"a": 3}], "last": 1}
    known.add(grown, actual[1], "three", actual[0])
    decoded = known.find(grown)
    assert decoded is not None
    assert decoded[0].state == "three"
    assert json.loads(decoded[1])["items"] == []


@pytest.mark.parametrize(
    "body",
    [
        body_of({"a": 1}),
        body_of({"a": 1}, {"a": 9}),
        body_of({"a": 1}, {"a": 2}, other=1),
        b"",
    ],
)
def test_a_different_prefix_is_not_found(body: bytes) -> None:
    known: PrefixCache[str] = PrefixCache("items")
    first = body_of({"a": 1}, {"a": 2})
    known.add(first, first, "two")
    assert known.find(body) is None


@pytest.mark.parametrize("body", [body_of(), b'{"items": [  ]}', b'{"items": "text"}', b"{}"])
def test_an_empty_array_is_not_cached(body: bytes) -> None:
    known: PrefixCache[str] = PrefixCache("items")
    known.add(body, body, "nothing")
    assert known.find(body) is None


def test_the_array_is_not_confused_with_an_equal_string() -> None:
    known: PrefixCache[str] = PrefixCache("items")
    body = body_of({"a": 1}, copy=[{"a": 1}])
    known.add(body, body, "one")
    assert known.find(body) is None


def test_the_cache_keeps_the_latest_conversations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect_module, "MAX_CONVERSATIONS", 3)
    known: PrefixCache[int] = PrefixCache("items")
    bodies = [body_of({"a": number}) for number in range(5)]
    for number, body in enumerate(bodies):
        known.add(body, body, number)
    assert [known.find(body) is not None for body in bodies] == [False, False, True, True, True]


def test_the_cache_keeps_a_few_large_conversations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect_module, "MAX_CACHED_BYTES", 60)
    monkeypatch.setattr(dialect_module, "MIN_CACHED", 2)
    known: PrefixCache[int] = PrefixCache("items")
    bodies = [body_of({"a": 100 * str(number)}) for number in range(4)]
    for number, body in enumerate(bodies):
        known.add(body, body, number)
    assert [known.find(body) is not None for body in bodies] == [False, False, True, True]
    grown = body_of({"a": 100 * "3"}, {"a": 4})
    found = known.find(grown)
    assert found is not None
    known.add(grown, found[1], 4, found[0])  # in place of its beginning
    assert [known.find(body) is not None for body in (bodies[2], grown)] == [True, True]


def test_the_cache_keeps_no_large_body_for_its_short_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dialect_module, "MAX_ROOT_BYTES", 100)
    found: list[bool] = []
    for size in (10, 200):
        known: PrefixCache[str] = PrefixCache("items", lambda state, count: (state, count))
        body = json.dumps({"items": [1, 2], "rest": size * "x"}).encode()
        known.add(body, body, "two")
        found.append(known.find(body.replace(b"[1, 2]", b"[1, 3]")) is not None)
    assert found == [True, False]


def test_an_error_has_its_index_in_the_whole_body() -> None:
    dialect = Chat()
    reply: list[Any] = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
    ]
    first = HttpRequest("POST", "/v1", {}, json.dumps({"model": "m", "messages": reply}).encode())
    assert isinstance(dialect.decode(first, ConversationStore()), Request)
    reply.append({"role": "robot"})
    wrong = HttpRequest("POST", "/v1", {}, json.dumps({"model": "m", "messages": reply}).encode())
    with pytest.raises(ModelError, match="robot") as raised:
        dialect.decode(wrong, ConversationStore())
    assert raised.value.details["param"] == "messages[2].role"


BEGUN = '{"model": "m", "messages": [{"role": "user", "content": "Hello"}'
MORE = ', {"role": "user", "content": "Again"}'


@pytest.mark.parametrize(
    "begun, rest",
    [
        ('], "tools": []}', f'{MORE}], "tools": []}}'),
        ('], "tools": []}', f'{MORE}], "stream": true, "tools": []}}'),
        ('], "tools": []}', '], "stop": [], "tools": []}'),
        ('], "tools": []}', f'{MORE}], "stop": ["a"], "tools": []}}'),
        ('], "tools": []}', f'{MORE}], "messages": [{MORE[1:]}], "tools": []}}'),
        ('], "stop": [1]}', f'{MORE}], "stop": [1], "stop": [1]}}'),
        ('], "seed": 1}', f'{MORE}], "seed": 11}}'),
        ('], "seed": 1}', f'{MORE}], "seed": 2}}'),
        ("]}", f'{MORE}, {{"role": "user", "content": [{{"type": "file", "file": {{}}}}]}}]}}'),
        ('], "seed": 1}', f'{MORE} ], "seed": 1}}'),
        ('], "seed": 1}', '], "seed": 1}'),
        (" ] }", f"{MORE}]}}"),
    ],
)
@pytest.mark.parametrize("first, path", [("/v1", "/v1"), ("/deployments/a", "/deployments/b")])
def test_other_fields_after_the_messages_are_decoded(
    begun: str, rest: str, first: str, path: str
) -> None:
    def request(path: str, end: str) -> HttpRequest:
        body = BEGUN + end if path == "/v1" else (BEGUN + end).replace('"model": "m", ', "")
        return HttpRequest("POST", path, {}, body.encode())

    dialect = Chat()
    dialect.decode(request(first, begun), ConversationStore())
    expected = Chat().decode(request(path, rest), ConversationStore())
    assert dialect.decode(request(path, rest), ConversationStore()) == expected


@pytest.mark.parametrize("rest", ["", f";{MORE[1:]}]}}", f"{MORE}]]}}"])
def test_a_body_that_is_no_json_is_refused_after_a_known_one(rest: str) -> None:
    begun = BEGUN.replace('"Hello"', '[{"type": "text", "text": "Hello"}]')
    dialect = Chat()
    dialect.decode(HttpRequest("POST", "/v1", {}, f"{begun}]}}".encode()), ConversationStore())
    with pytest.raises(ModelError, match="could not parse the JSON"):
        dialect.decode(
            HttpRequest("POST", "/v1", {}, f"{begun}{rest}".encode()), ConversationStore()
        )


def test_a_continued_response_does_not_use_the_cache() -> None:
    dialect, store = Responses(frozenset()), ConversationStore()
    store.add("resp_1", Request(History([user("Before")])), Reply((Text("Hi"),)))
    body: dict[str, Any] = {"input": [{"role": "user", "content": "Hello"}], "model": "m"}
    dialect.decode(HttpRequest("POST", "/v1", {}, json.dumps(body).encode()), store)
    body["input"].append({"role": "user", "content": "Again"})
    body["previous_response_id"] = "resp_1"
    request = dialect.decode(HttpRequest("POST", "/v1", {}, json.dumps(body).encode()), store)
    assert [message.text for message in request.messages] == ["Before", "Hi", "Hello", "Again"]
