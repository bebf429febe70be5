"""Plain values for a JSON schema: they fit it, and they are the likeliest ones for their names."""

from typing import Any

import pytest

from offbook.exchange import JSON, Tool, find_output_schema, has_effect, make_answer, make_arguments
from offbook.exchange.model import compile_validator

TEXT: JSON = {"type": "string"}
SCHEMAS: dict[str, JSON] = {
    "a reference": {"$ref": "#/$defs/City", "$defs": {"City": {"enum": ["Oslo"]}}},
    "a reference to itself": {
        "$ref": "#/$defs/Tree",
        "$defs": {
            "Tree": {
                "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
                "required": [],
            }
        },
    },
    "a part of all": {"allOf": [{"properties": {"a": TEXT}, "required": ["a"]}]},
    "a constant": {"const": 7},
    "no null": {"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 3}]},
    "two types": {"type": ["null", "string"]},
    "only null": {"type": ["null"]},
    "limits": {"type": "number", "exclusiveMinimum": 3, "maximum": 9, "multipleOf": 4},
    "a long text": {"type": "string", "minLength": 50, "maxLength": 60},
    "a short text": {"type": "string", "maxLength": 2},
    "items": {"type": "array", "items": {"type": "boolean"}, "minItems": 2},
    "a pair": {"type": "array", "prefixItems": [TEXT, {"type": "integer"}], "items": False},
    "an object": {"properties": {"id": {"type": "integer"}, "more": TEXT}, "required": ["id"]},
}


@pytest.mark.parametrize("case", SCHEMAS)
def test_the_arguments_fit_the_schema(case: str):
    schema: JSON = {
        "type": "object",
        "properties": {"it": {k: v for k, v in SCHEMAS[case].items() if k != "$defs"}},
        "required": ["it"],
        "$defs": SCHEMAS[case].get("$defs", {}),
    }
    arguments = make_arguments(schema)
    assert arguments.keys() == {"it"}
    assert not compile_validator(schema, case)(arguments)


@pytest.mark.parametrize(
    "name, rules, value",
    [
        ("order_id", TEXT, "7"),
        ("order", {"type": "integer"}, 7),
        ("city", TEXT, "Paris"),
        ("cwd", TEXT, "."),
        ("command", TEXT, "echo offbook"),
        ("anything", TEXT, "test"),
        ("anything", {"type": "string", "format": "email"}, "ada@example.com"),
        ("amount", TEXT, "test"),
    ],
)
def test_a_value_has_the_kind_that_its_name_says(name: str, rules: JSON, value: Any):
    schema: JSON = {"properties": {name: rules, "other": TEXT}, "required": [name]}
    assert make_arguments(schema, "Refund order 7") == {name: value}


def test_given_arguments_are_taken_only_if_they_are_required():
    schema: JSON = {"properties": {"a": TEXT, "b": TEXT}, "required": ["a"]}
    assert make_arguments(schema, given={"a": "x", "b": "y"}) == {"a": "x"}


@pytest.mark.parametrize(
    "parameters",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"schema": TEXT}}},
        {"generationConfig": {"responseSchema": TEXT}},
        {"response_json_schema": TEXT, "tools": {"schema": {}}},
    ],
)
def test_the_schema_of_an_answer_is_found_in_the_options_of_every_provider(parameters: JSON):
    assert find_output_schema(parameters) == TEXT


def test_no_option_of_a_request_requires_an_answer_of_a_form():
    assert find_output_schema({"tools": {"schema": TEXT}, "tool_choice": {"schema": TEXT}}) is None
    assert find_output_schema(None) is None


def test_an_answer_has_all_fields_also_with_the_types_of_gemini_in_capitals():
    count: JSON = {"type": "INTEGER"}
    schema: JSON = {"type": "OBJECT", "properties": {"city": {"type": "STRING"}, "n": count}}
    assert make_answer(schema) == {"city": "Paris", "n": 1}


@pytest.mark.parametrize("name", ["reserve_table", "make_payment", "createReport", "order_status"])
def test_a_tool_that_runs_for_real_has_an_effect_if_a_word_says_so(name: str):
    assert has_effect(Tool(name))
    assert not has_effect(Tool(f"get_{name}"))
