"""Whatever is sent to a dialect, the answer is a request or the provider's error."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import ModelError
from offbook.exchange.dialects.anthropic import Anthropic
from offbook.exchange.dialects.bedrock import Bedrock
from offbook.exchange.dialects.conversations import ConversationStore
from offbook.exchange.dialects.dialect import Dialect, HttpRequest
from offbook.exchange.dialects.gemini import Gemini
from offbook.exchange.model import Request
from offbook.exchange.providers import detect_dialect
from tests.exchange.dialects import strategies

CASES: list[tuple[Dialect, str]] = [
    (Anthropic(), "/v1/messages"),
    (Gemini(), "/v1beta/models/m:generateContent"),
    (Bedrock(), "/model/m/converse"),
]
values = strategies.values


def places(value: Any, keys: Any) -> list[tuple[Any, Any]]:
    """Every container in a value, with each of its keys."""
    found: list[tuple[Any, Any]] = []
    for key in keys:
        found.append((value, key))
        inner = value[key]
        match inner:
            case dict():
                found += places(value[key], list(value[key]))
            case list():
                found += places(value[key], range(len(value[key])))
            case _:
                pass
    return found


def read(dialect: Dialect, wire: HttpRequest) -> Request | ModelError:
    try:
        return dialect.decode(wire, ConversationStore())
    except ModelError as error:
        return error


@pytest.mark.parametrize("dialect, path", CASES)
@given(data=st.data())
def test_a_request_with_anything_wrong_is_understood_or_refused(
    dialect: Dialect, path: str, data: st.DataObject
):
    wire = dialect.build_request(data.draw(strategies.requests()), "http://host", "key")
    body = json.loads(wire.body)
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = data.draw(st.sampled_from(places(body, list(body))))
        holder[key] = data.draw(values)
    sent = HttpRequest("POST", path, {}, json.dumps(body).encode())
    said = read(dialect, sent)
    if isinstance(said, ModelError):
        assert said.status == 400
        told = json.loads(dialect.encode_error(said).body)
        assert told.get("error", told)["message"] == said.message


@pytest.mark.parametrize("dialect, path", CASES)
@given(body=st.binary() | values.map(lambda value: json.dumps(value).encode()))
def test_a_body_of_anything_is_refused(dialect: Dialect, path: str, body: bytes):
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
def test_what_is_nested_too_deeply_is_refused(path: str, body: str, where: str):
    inside = f'[{{"type":"odd","odd":{DEEP if where == "block" else 1}}}]'
    text = body % inside
    if where == "tools":
        text = text[:-1] + f',"tools":[{{"odd":{DEEP}}}]}}'
    elif where != "block":
        text = text[:-1] + f',"{where}":{DEEP}}}'
    wire = HttpRequest("POST", path, {}, text.encode())
    dialect = detect_dialect(wire)
    assert dialect is not None
    with pytest.raises(ModelError) as caught:
        dialect.decode(wire, ConversationStore())
    assert caught.value.status == 400
