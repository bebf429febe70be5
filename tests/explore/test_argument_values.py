"""Arguments that are made from the JSON schema of a tool."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from random import Random
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.explore import (
    NOTHING,
    ArgumentValues,
    Draw,
    Place,
    find_constants,
    learn,
    list_near_texts,
    resolve,
)
from offbook.explore.argument_values import find_ranges, takes_any_text
from offbook.explore.dates import list_impossible_dates, move_date

Schema = dict[str, Any]
CHOICES: list[Schema] = [
    {"type": "string"},
    {"type": "string", "minLength": 3, "maxLength": 4},
    {"type": "string", "format": "date-time"},
    {"type": "integer", "minimum": 3, "maximum": 9},
    {"type": "integer", "exclusiveMinimum": 0},
    {"type": "integer", "multipleOf": 5, "minimum": 0},
    {"type": "number"},
    {"type": "boolean"},
    {"type": ["string", "null"]},
    {"enum": ["a", "b"]},
    {"const": 7},
    {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    {"$ref": "#/$defs/Item"},
    {"allOf": [{"$ref": "#/$defs/Item"}]},
    {"type": "object"},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"type": "object", "required": ["id"]},
    {"type": "object", "additionalProperties": False},
]
LEAVES = st.sampled_from(CHOICES)


def nest(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    """Return arrays and objects of these schemas."""
    return st.one_of(st.builds(array_of, inner), st.builds(object_of, inner, inner))


def array_of(item: Schema) -> Schema:
    return {"type": "array", "items": item, "minItems": 1}


def object_of(one: Schema, two: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {"one": one, "two": two},
        "required": ["one"],
        "additionalProperties": False,
    }


SCHEMAS = st.recursive(LEAVES, nest, max_leaves=5)
ITEM = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


def tool(parameter: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {"it": parameter},
        "required": ["it"],
        "$defs": {"Item": ITEM},
    }


def make(schema: Schema, seed: int, *, hints: Any = None, seen: Any = ()) -> Any:
    values = ArgumentValues(hints or {}, "Refund order 7")
    return values.arguments(schema, Draw(Random(seed), seen), "refund")  # noqa: S311 - not for secrets


@given(SCHEMAS, st.integers(0, 10_000))
def test_typical_arguments_are_valid(parameter: Schema, seed: int):
    jsonschema.validate(make(tool(parameter), seed), tool(parameter))


def test_invalid_arguments_break_the_schema():
    schema = {**tool({"type": "integer"}), "additionalProperties": False}
    values = ArgumentValues({}, "")
    for seed in range(50):
        arguments = values.invalid_arguments(schema, Draw(make_random(seed), ()), "refund")
        if arguments.get("it") != 7 or len(arguments) > 1:
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(arguments, schema)


def test_an_object_without_named_properties_has_keys_of_its_own():
    labels = {"type": "object", "additionalProperties": {"enum": [3, 4]}}
    made = [make(tool(labels), seed)["it"] for seed in range(40)]
    assert {len(one) for one in made} == {1, 2}  # equal keys are one
    assert {value for one in made for value in one.values()} == {3, 4}
    assert len({key for one in made for key in one}) > 5


def test_the_numbers_of_the_prompt_are_used():
    assert 7 in {make(tool({"type": "integer"}), seed)["it"] for seed in range(20)}


def test_the_values_of_the_user_are_the_only_ones():
    made = {make(tool({"type": "integer"}), s, hints={"refund.it": [42]})["it"] for s in range(20)}
    assert made == {42}


def test_values_of_results_are_places():
    made = [make(tool({"type": "string"}), seed, seen=["PLAN-1"])["it"] for seed in range(20)]
    assert Place(0, as_text=True) in made


@pytest.mark.parametrize(
    "value, resolved",
    [
        (Place(1), 8),
        (Place(1, as_text=True), "8"),
        ({"id": [Place(0)]}, {"id": ["PLAN-1"]}),
        (Place(2), "PLAN-1"),
        ("as it is", "as it is"),
    ],
)
def test_a_place_gets_the_value_that_was_seen_there(value: Any, resolved: Any):
    assert resolve(value, ["PLAN-1", 8]) == resolved


@pytest.mark.parametrize(
    "parameter, note",
    [
        ({"type": "string", "pattern": "^a"}, "refund.it: pattern"),
        ({"$ref": "#/$defs/Missing"}, "refund.it: $ref '#/$defs/Missing'"),
        ({"type": "date"}, "refund.it: type 'date'"),
        ({"type": "object", "patternProperties": {}}, "refund.it: patternProperties"),
    ],
)
def test_a_keyword_that_cannot_be_generated_from_is_noted(parameter: Schema, note: str):
    values = ArgumentValues({}, "")
    values.arguments(tool(parameter), Draw(Random(1), ()), "refund")  # noqa: S311 - not for secrets
    assert note in values.notes


def test_a_schema_that_contains_itself_ends():
    node: Schema = {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/Node"}},
        "required": [],
    }
    schema = {"type": "object", "properties": {"it": {"$ref": "#/$defs/Node"}}, "required": ["it"]}
    assert make({**schema, "$defs": {"Node": node}}, 1)["it"] is not None


def test_an_exhaustive_search_tries_every_value_of_the_user():
    commands = [f"command {number}" for number in range(20)]
    values = ArgumentValues({"bash.command": commands}, "")
    schema = {"type": "object", "properties": {"command": {"type": "string"}, "cwd": {}}}
    tried = values.few_arguments(schema, (), "bash", 3)
    assert {arguments.get("command") for arguments in tried} >= {*commands}


def test_an_exhaustive_search_tries_few_values_without_those_of_the_user():
    schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
    assert len(ArgumentValues({}, "1 2 3 4 5 6").few_arguments(schema, (), "refund", 3)) == 3


def draw_many(schema: Schema, known: Any, **options: Any) -> set[Any]:
    values = ArgumentValues({}, "Pay it", **options)
    draws = (Draw(Random(seed), (), known) for seed in range(400))  # noqa: S311 - not for secrets
    return {values.arguments(tool(schema), draw, "pay")["it"] for draw in draws}


@pytest.mark.parametrize("number", [501, 499, 250, 251, 1000, -500])
def test_the_neighbours_of_a_limit_that_a_tool_names_are_tried(number: int):
    known = learn("Pay an amount; at most 500 a day.")
    assert number in draw_many({"type": "integer"}, known)


def test_an_address_goes_to_a_parameter_for_addresses():
    seen = ["order", "eve@evil.example", "3", "4", "5", "6", "7"]
    schema = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
    values = ArgumentValues({}, "Go")
    made = [
        values.arguments(schema, Draw(Random(seed), seen), "send")["to"]  # noqa: S311 - not for secrets
        for seed in range(100)
    ]
    assert made.count(Place(1, as_text=True)) > 30


LIMIT = 7310


def compares(amount: int, mode: str) -> bool:
    if amount > LIMIT or amount == 4242:
        return mode in {"express", "slow"}
    return len(mode) == 3 and mode != "ÿ" * 70


def test_the_constants_that_code_compares_with_are_found():
    assert {*find_constants(compares)} == {7310, 4242, "express", "slow", 3}


CITIES = {"rome": 18, "oslo": -3}


def test_the_keys_of_tables_are_found_but_not_those_of_schemas():
    def looks_up(city: str, item: str) -> Any:
        stock = {"lamp": 3, "chair": 5}
        schema: Any = {"type": "object", "properties": {}}
        return CITIES.get(city), stock[item], schema

    assert {*find_constants(looks_up)} == {"rome", "oslo", "lamp", "chair"}


EXAMPLES: dict[str, set[str]] = {
    "Reserve items, such as lamp or chair.": {"lamp", "chair"},
    "Weather of a city: Berlin, Rome or Oslo.": {"Berlin", "Rome", "Oslo"},
    "A color, one of red, green and blue": {"red", "green", "blue"},
    "A branch, such as feature/login or v1.2.": {"feature/login", "v1.2"},
    "Note: this is slow": set(),
    "Args:\n    city: the city": set(),
}


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_examples_of_a_description_are_known(text: str):
    assert {*learn(text).texts} == EXAMPLES[text]


def test_the_constants_of_the_code_are_tried():
    assert 4242 in draw_many({"type": "integer"}, learn(""), constants=[4242])


def odd_texts(name: str) -> set[str]:
    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    values = ArgumentValues({}, "")
    draws = [Draw(make_random(seed), ()) for seed in range(500)]
    return {values.arguments(schema, draw, "write", odd=True)[name] for draw in draws}


@pytest.mark.parametrize("name", ["path", "filename", "text"])
def test_an_odd_text_names_no_file_that_exists(name: str):
    assert [text for text in odd_texts(name) if text.startswith("/")] == []


def test_a_parameter_for_a_file_gets_paths_that_lead_out_of_the_folder():
    assert {"../a", "a/../../b", ".."} <= odd_texts("path")


def test_an_odd_path_leaves_a_folder_that_the_prompt_names():
    schema: Any = {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    }
    values = ArgumentValues({}, "Write into notes/today.md")
    draws = (Draw(Random(n), ()) for n in range(200))  # noqa: S311 - not for secrets
    paths = {values.arguments(schema, draw, "write", odd=True)["path"] for draw in draws}
    assert "notes/../a" in paths


def test_an_odd_path_leaves_a_folder_for_a_file_that_a_tool_listed():
    schema: Any = {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    }
    values = ArgumentValues({}, "Clean up tmp")
    draws = (Draw(make_random(n), ["tmp/a.log", "contract.txt"]) for n in range(200))
    paths = {values.arguments(schema, draw, "delete", odd=True)["path"] for draw in draws}
    assert "tmp/../contract.txt" in paths


def test_an_id_is_mostly_one_like_those_of_its_description():
    part = {"type": "string", "description": "such as PO-17"}
    schema = {"type": "object", "properties": {"order": part}, "required": ["order"]}
    values = ArgumentValues({}, "Get the purchase order approved by the manager")
    drawn = [values.arguments(schema, Draw(make_random(n), ()), "ask")["order"] for n in range(400)]
    assert sum(order.startswith("PO-1") for order in drawn) > 120
    assert {"PO-16", "PO-18"} <= {*drawn}


@pytest.mark.parametrize(
    "text, near",
    [
        ("2026-01-15", "2026-01-31"),
        ("due 2026-02-01", "due 2026-02-28"),
        ("order A-17", "order A-18"),
        ("ada@shop.example", "ADA@SHOP.EXAMPLE"),
        ("lamp", "lamp "),
        ("0000-00-00", "0000-00-28"),
        ("2026-01-15", "2026-01-16"),
        ("12", "012"),
        ("12", "+12"),
    ],
)
def test_the_neighbours_of_a_text_are_known(text: str, near: str):
    assert near in list_near_texts(text)
    assert text not in list_near_texts(text)


def test_calls_of_different_tools_often_have_the_same_value_for_a_parameter_of_one_name():
    schema = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
    values = ArgumentValues({}, "Set the price of lamp L-1 and of desk D-7")
    favourites: dict[str, Any] = {}
    draws = [Draw(Random(n), [], NOTHING, favourites) for n in range(1000)]  # noqa: S311 - not for secrets
    pairs = [
        [values.arguments(schema, draw, tool)["item"] for tool in ("get_price", "set_price")]
        for draw in draws
    ]
    assert sum(one == other for one, other in pairs) > 350


def test_a_value_is_not_used_again_for_a_parameter_of_another_form():
    favourites: dict[str, Any] = {}
    values = ArgumentValues({}, "Pay 7")
    for n in range(50):
        draw = Draw(Random(n), [], NOTHING, favourites)  # noqa: S311 - not for secrets
        for kind, python in (("string", str), ("integer", int)):
            schema = {"type": "object", "properties": {"id": {"type": kind}}, "required": ["id"]}
            assert isinstance(values.arguments(schema, draw, "pay")["id"], python)


def make_random(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - not for secrets


def draw_dates(form: str, *texts: str, numbers: tuple[int, ...] = ()) -> set[str]:
    """Return the values of a parameter with a format that many draws choose."""
    values = ArgumentValues({}, " ".join(texts), numbers)
    schema = {"type": "object", "properties": {"day": {"type": "string", "format": form}}}
    made = [values.arguments(schema, Draw(make_random(seed), ()), "book") for seed in range(400)]
    return {arguments["day"] for arguments in made if arguments}


@pytest.mark.parametrize(
    "form, prompt, numbers, expected",
    [
        ("date", "Leave from 2026-08-03 on", (), {"2026-08-03", "2026-08-02", "2026-08-04"}),
        ("date", "Leave from 2026-08-03 on", (25,), {"2026-08-27", "2026-08-28", "2026-08-29"}),
        ("date", "Book a room", (), {"2024-02-29", "2024-03-01"}),
        ("date", "At 2026-05-04T18:30:00+02:00", (), {"2026-05-04"}),
        ("date-time", "At 2026-05-04T18:30:00+02:00", (), {"2026-05-04T18:30:00+02:00"}),
        ("date-time", "At 2026-05-04T18:30:00+02:00", (), {"2026-05-04T18:30:00-08:00"}),
        ("date-time", "On 2026-05-04", (), {"2026-05-04T12:00:00Z", "2026-05-04T00:00:00Z"}),
        ("time", "At 9:15", (22,), {"09:15:00", "23:59:59", "22:00:00"}),
    ],
)
def test_a_date_is_one_that_is_known_or_near_it(
    form: str, prompt: str, numbers: tuple[int, ...], expected: set[str]
):
    assert expected <= draw_dates(form, prompt, numbers=numbers)


@given(
    st.sampled_from(["date", "date-time", "time"]),
    st.one_of(st.dates().map(str), st.datetimes(timezones=st.timezones()).map(str), st.text()),
    st.integers(),
)
def test_every_date_that_is_made_is_one(form: str, known: str, number: int):
    parse = {"date": date, "date-time": datetime, "time": time}[form].fromisoformat
    assert all(parse(made) is not None for made in draw_dates(form, known, numbers=(number,)))


@pytest.mark.parametrize(
    "text, impossible",
    [
        ("from 2026-06-29 on", ["2026-02-30", "2026-13-01", "2026-06-31"]),
        ("on 2026-08-03", ["2026-02-30", "2026-13-01"]),
        ("at 10:00", ["24:00", "12:60"]),
        ("a room", []),
    ],
)
def test_an_impossible_date_has_the_form_of_one_that_is_known(text: str, impossible: list[str]):
    assert list_impossible_dates([text]) == impossible


def test_an_odd_date_may_be_one_that_does_not_exist():
    part = {"type": "string", "description": "YYYY-MM-DD"}
    schema = {"type": "object", "properties": {"first": part}, "required": ["first"]}
    values = ArgumentValues({}, "Book a boat for 2026-06-29")
    draws = (Draw(make_random(n), ()) for n in range(200))
    assert "2026-06-31" in {
        values.arguments(schema, draw, "book", odd=True)["first"] for draw in draws
    }


@pytest.mark.parametrize(
    "text, steps, moved",
    [
        ("10:00", 1, "10:30"),
        ("9:15:00", -1, "08:45:00"),
        ("23:45", 1, ""),
        ("2026-03-01", -1, "2026-02-28"),
        ("2026-03-02T10:00Z", 2, "2026-03-02T11:00Z"),
        ("Oak", 1, ""),
    ],
)
def test_a_date_moves_by_days_and_a_time_by_half_hours(text: str, steps: int, moved: str):
    assert move_date(text, steps) == moved


@pytest.mark.parametrize(
    "arguments, ranges",
    [
        ({"room": "Oak", "start": "10:00", "end": "11:00"}, [("start", "end")]),
        ({"first": "2026-03-01", "last": "2026-03-02"}, [("first", "last")]),
        ({"low": 1, "high": 2.5, "open": True}, [("low", "high")]),
        ({"name": "a", "text": "b"}, []),
    ],
)
def test_the_ends_of_a_range_are_neighbours_of_one_kind(
    arguments: dict[str, Any], ranges: list[tuple[str, str]]
):
    assert find_ranges(arguments) == ranges


@pytest.mark.parametrize(
    "day", [{"type": "string", "format": "date"}, {"type": "string", "description": "YYYY-MM-DD"}]
)
def test_a_start_beside_a_day_is_a_time(day: Schema):
    properties = {"day": day, "start": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    values = ArgumentValues({}, "Book Oak on 2026-03-02 from 10:00 to 11:00")
    made = [values.arguments(schema, Draw(make_random(n), ()), "book") for n in range(200)]
    assert sum(one["start"] in {"10:00", "11:00", "10:30", "9:30"} for one in made) > 80
    assert {"10:30", "11:30"} <= {one["start"] for one in made}


@pytest.mark.parametrize(
    "schema, free",
    [
        ({"type": "string"}, True),
        ({"type": "string", "title": "Text"}, True),
        ({"type": "string", "enum": ["a"]}, False),
        ({"type": "integer"}, False),
        (None, False),
    ],
)
def test_a_parameter_takes_any_text_whatever_its_title_is(schema: Any, *, free: bool):
    assert takes_any_text(schema) is free


def test_the_second_date_of_a_call_is_near_the_first():
    part = {"type": "string", "format": "date"}
    properties = {"first": part, "last": part}
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    values = ArgumentValues({}, "Leave from 2026-08-03 on", (25,))
    made = [values.arguments(schema, Draw(make_random(seed), ()), "book") for seed in range(400)]
    days = {date.fromisoformat(one["last"]) - date.fromisoformat(one["first"]) for one in made}
    assert {timedelta(0), timedelta(1), timedelta(25)} <= days


@pytest.mark.parametrize(
    "name, prompt, expected",
    [
        ("start_date", "Leave from 2026-08-03 on", {"2026-08-03", "2026-08-04"}),
        ("start", "A table on 2026-08-03 18:30", {"2026-08-04 18:30", "2026-08-03 23:59"}),
        ("slot", "Book 9:15", {"9:15", "08:00"}),
        ("when", "At 2026-05-04T18:30+02:00", {"2026-05-04T18:30-08:00"}),
    ],
)
def test_a_parameter_that_is_named_as_a_date_takes_one_as_it_is_written(
    name: str, prompt: str, expected: set[str]
):
    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    values = ArgumentValues({}, prompt)
    made = [
        values.arguments(schema, Draw(make_random(seed), ()), "book")[name] for seed in range(300)
    ]
    assert expected <= {*made}


def test_a_number_that_is_more_than_zero_may_be_very_small():
    part = {"type": "number", "exclusiveMinimum": 0}
    schema = {"type": "object", "properties": {"grams": part}, "required": ["grams"]}
    values = ArgumentValues({}, "50 g of saffron")
    made = [
        values.arguments(schema, Draw(make_random(seed), ()), "buy")["grams"] for seed in range(200)
    ]
    assert min(made) == 0.001


@pytest.mark.parametrize(
    "system, schema",
    [
        ("Notes have at most 30 characters.", {"type": "string"}),
        ("", {"type": "string", "description": "Up to 30 characters."}),
        ("", {"type": "string", "maxLength": 30}),
    ],
)
def test_a_length_that_is_named_is_tried_with_one_more_and_in_several_bytes(
    system: str, schema: Schema
):
    values, known = ArgumentValues({}, "Write a note"), learn(system)
    made = [
        values.arguments(tool(schema), Draw(make_random(seed), (), known), "write", odd=True)["it"]
        for seed in range(60)
    ]
    lengths = [len(text) for text in made]
    assert sum(length in {29, 30, 31} for length in lengths) > 10
    assert {30, 31} <= {*lengths}
    assert any(len(text) == 30 and len(text.encode()) > 30 for text in made)


def test_one_of_four_odd_texts_is_long():
    made = [
        ArgumentValues({}, "").arguments(
            tool({"type": "string"}), Draw(make_random(seed), ()), "write", odd=True
        )["it"]
        for seed in range(100)
    ]
    long = [text for text in made if len(text) >= 600]
    assert len(long) > 15
    assert {len(text) > 3000 for text in long} == {True, False}
    assert any(len(text) >= 600 and not text.isascii() for text in long)
