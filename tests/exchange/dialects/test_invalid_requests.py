"""Every body is decoded to a request or rejected with the provider's error."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import ModelError
from offbook.exchange import Request, detect_dialect
from offbook.exchange.dialects import ConversationStore, Dialect, HttpRequest
from offbook.exchange.dialects.anthropic.anthropic_dialect import Anthropic
from offbook.exchange.dialects.bedrock.bedrock_dialect import Bedrock
from offbook.exchange.dialects.gemini.gemini_dialect import Gemini
from tests.exchange.dialects import strategies

CASES: list[tuple[Dialect, str]] = [
    (Anthropic(), "/v1/messages"),
    (Gemini(), "/v1beta/models/m:generateContent"),
    (Bedrock(), "/model/m/converse"),
]
values = strategies.values


def places(value: Any, keys: Any) -> list[tuple[Any, Any]]:
    """Yield every container in a value with each of its keys."""
    actual: list[tuple[Any, Any]] = []
    for key in keys:
        actual.append((value, key))
        inner = value[key]
        match inner:
            case dict():
                actual += places(value[key], list(value[key]))
            case list():
                actual += places(value[key], range(len(value[key])))
            case _:
                pass
    return actual


def read(dialect: Dialect, http_request: HttpRequest) -> Request | ModelError:
    try:
        return dialect.decode(http_request, ConversationStore())
    except ModelError as error:
        return error


@pytest.mark.parametrize("dialect, path", CASES)
@given(data=st.data())
def test_a_mutated_request_is_decoded_or_rejected(dialect: Dialect, path: str, data: st.DataObject):
    http_request = dialect.build_request(data.draw(strategies.requests()), "http://host", "key")
    body = json.loads(http_request.body)
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = data.draw(st.sampled_from(places(body, list(body))))
        holder[key] = data.draw(values)
    sent = HttpRequest("POST", path, {}, json.dumps(body).encode())
    reply = read(dialect, sent)
    if isinstance(reply, ModelError):
        assert reply.status == 400
        rendered = json.loads(dialect.encode_error(reply).body)
        assert rendered.get("error", rendered)["message"] == reply.message


@pytest.mark.parametrize("dialect, path", CASES)
@given(body=st.binary() | values.map(lambda value: json.dumps(value).encode()))
def test_an_arbitrary_body_is_rejected(dialect: Dialect, path: str, body: bytes):
    with pytest.raises(ModelError) as caught:
        dialect.decode(HttpRequest("POST", path, {}, body), ConversationStore())
    assert caught.value.status == 400


DEEP = "[" * 100_000 + "]" * 100_000
NESTED = [
    ("/v1/chat/completions", '{"model":"m","messages":[{"role":"user","content":%s}]}'),
    ("/v1/responses", '{"model":"m","input":[{"role":"user","content":%s}]}'),
    ("/v1/messages", '{"model":"m","max_tokens":9,"messages":[{"role":"user","content":%s}]}'),
    ("/v1beta/models/m:generateContent", '{"contents":[{"parts":%s}]}'),
    ("/model/m/converse", '{"messages":[{"role":"user","content":%s}]}'),
]


@pytest.mark.parametrize("path, body", NESTED)
@pytest.mark.parametrize("where", ["block", "option", "metadata", "tools"])
def test_a_deeply_nested_body_is_rejected(path: str, body: str, where: str):
    inside = f'[{{"type":"odd","odd":{DEEP if where == "block" else 1}}}]'
    text = body % inside
    if where == "tools":
        text = text[:-1] + f',"tools":[{{"odd":{DEEP}}}]}}'
    elif where != "block":
        text = text[:-1] + f',"{where}":{DEEP}}}'
    http_request = HttpRequest("POST", path, {}, text.encode())
    dialect = detect_dialect(http_request)
    assert dialect is not None
    with pytest.raises(ModelError) as caught:
        dialect.decode(http_request, ConversationStore())
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "path, body, option",
    [
        ("/v1/chat/completions", {"model": "m", "messages": [], "modalities": True}, "modalities"),
        ("/v1/responses", {"model": "m", "input": "Hi", "include": 1}, "include"),
        (
            "/v1beta/models/m:generateContent",
            {"contents": [], "generationConfig": ["x"]},
            "generationConfig",
        ),
    ],
)
def test_an_option_of_another_type_is_rejected_with_its_name(
    path: str, body: dict[str, Any], option: str
) -> None:
    http_request = HttpRequest("POST", path, {}, json.dumps(body).encode())
    dialect = detect_dialect(http_request)
    assert dialect is not None
    with pytest.raises(ModelError, match=rf"^Invalid (type for|value at) '{option}': [Ee]xpected"):
        dialect.decode(http_request, ConversationStore())
