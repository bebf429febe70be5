"""A search skips the conversions of an SDK that change nothing."""

from __future__ import annotations

import asyncio
import datetime as dt
import importlib
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict

import pytest
from openai._utils._transform import PropertyInfo, async_transform, transform
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

from offbook.explore import SdkConversions, describe_form

CALL = {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
CHAT: dict[str, Any] = {
    "model": "gpt-4o",
    "temperature": 1.0,
    "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "ok"}]},
    ],
    "tools": [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}],
}
RESPONSES: dict[str, Any] = {
    "model": "gpt-4o",
    "input": [
        {"role": "user", "content": "Hi"},
        {"type": "function_call", "call_id": "call_1", "name": "find", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
    ],
}
REQUESTS = [
    (CHAT, CompletionCreateParamsNonStreaming),
    (RESPONSES, ResponseCreateParamsNonStreaming),
]


class Card(TypedDict, total=False):
    """An object with a field that has another name on the wire."""

    card_id: Annotated[str, PropertyInfo(alias="cardID")]
    since: Annotated[dt.date, PropertyInfo(format="iso8601")]
    owner: str


class Cards(TypedDict, total=False):
    """Objects of either kind."""

    cards: list[Card]


@pytest.fixture
def conversions() -> Iterator[SdkConversions]:
    started = SdkConversions()
    started.start()
    yield started
    started.stop()


@pytest.mark.parametrize("request_body, kind", REQUESTS, ids=["chat", "responses"])
def test_a_known_request_is_converted_to_the_same_json(
    conversions: SdkConversions, request_body: dict[str, Any], kind: object
):
    conversions.stop()
    expected = transform(request_body, kind)
    conversions.start()
    for _ in range(2):
        assert transform(request_body, kind) == expected
        assert asyncio.run(async_transform(request_body, kind)) == expected


@pytest.mark.usefixtures("conversions")
def test_other_values_of_a_known_form_are_not_compared_with_the_types_again(
    monkeypatch: pytest.MonkeyPatch,
):
    transform(RESPONSES, ResponseCreateParamsNonStreaming)
    compared: list[object] = []
    monkeypatch.setattr("openai._utils._transform.is_typeddict", compared.append)
    bye = [{**item, "content": "Bye"} if "content" in item else item for item in RESPONSES["input"]]
    request = {**RESPONSES, "input": bye}
    assert transform(request, ResponseCreateParamsNonStreaming) == request
    assert compared == []


@pytest.mark.usefixtures("conversions")
def test_the_converted_object_is_not_the_given_one():
    for _ in range(2):
        assert transform(CHAT, CompletionCreateParamsNonStreaming) is not CHAT


@pytest.mark.usefixtures("conversions")
@pytest.mark.parametrize(
    "first, then, expected",
    [
        ({"owner": "Ada"}, {"card_id": "1"}, {"cardID": "1"}),
        ({"card_id": "1"}, {"card_id": "2"}, {"cardID": "2"}),
        ({"since": "2020-01-01"}, {"since": dt.date(2021, 1, 1)}, {"since": "2021-01-01"}),
        ({"card_id": "1"}, {"owner": "Ada"}, {"owner": "Ada"}),
    ],
    ids=["another key", "renamed twice", "a date", "a plain key"],
)
def test_a_field_is_renamed_or_encoded_after_one_that_was_not(
    first: dict[str, Any], then: dict[str, Any], expected: dict[str, Any]
):
    transform(first, Card)
    assert transform(then, Card) == expected
    transform({"cards": [first]}, Cards)
    assert transform({"cards": [first, then]}, Cards)["cards"][1] == expected


@pytest.mark.usefixtures("conversions")
def test_a_type_does_not_know_the_forms_of_another():
    transform({"card_id": "1"}, Cards)
    assert transform({"card_id": "1"}, Card) == {"cardID": "1"}


def test_the_sdk_is_restored(conversions: SdkConversions):
    conversions.stop()
    module = importlib.import_module("openai._utils._transform")
    function = vars(module)["_transform_recursive"]
    assert function.__module__ == module.__name__
    assert not hasattr(function, "__wrapped__")


@pytest.mark.parametrize(
    "value",
    [{1: "a"}, {"a": dt.date(2020, 1, 1)}, [b"x"], (1, 2), object()],
    ids=["number as key", "date", "bytes", "tuple", "object"],
)
def test_only_json_has_a_form(value: object):
    with pytest.raises(TypeError, match="JSON"):
        describe_form(value)


@pytest.mark.parametrize(
    "one, other, same",
    [
        ({"a": "x"}, {"a": "y"}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"b": 1}, False),
        ({"type": "x"}, {"type": "y"}, False),
        ([1, 2], [3], True),
        ([1], [1, "a"], False),
    ],
    ids=["value", "type", "key", "discriminator", "length", "item of another type"],
)
def test_a_form_is_the_keys_the_types_and_the_discriminators(
    one: object, other: object, *, same: bool
):
    assert (describe_form(one) == describe_form(other)) is same
