"""YAML: values and errors; what is dumped or edited reads back.

The cases follow the categories of the public yaml-test-suite.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import FormatError
from offbook.files import dump_round_trip, dump_yaml, load_round_trip, parse_yaml

CASES: dict[str, list[tuple[str, Any]]] = {
    "scalar": [
        ("plain text", "plain text"),
        ("url: http://example.com:80/#top", {"url": "http://example.com:80/#top"}),
        ("- -1\n- --1\n- a-b", [-1, "--1", "a-b"]),
        ("a: é ü 😀", {"a": "é ü 😀"}),
    ],
    "null and boolean": [
        ("[~, null, Null, NULL, nULL]", [None, None, None, None, "nULL"]),
        ("a:\nb: ''", {"a": None, "b": ""}),
        ("[true, True, TRUE, false, False, FALSE]", [True] * 3 + [False] * 3),
        ("[yes, no, on, off, y, n, tRUE]", ["yes", "no", "on", "off", "y", "n", "tRUE"]),
    ],
    "integer": [
        ("[0, 12, +12, -12, 007, 08]", [0, 12, 12, -12, 7, 8]),
        ("[0o17, 0x1F, 0b11, -0x1f, 0o8, 0x, 0b2]", [15, 31, 3, -31, "0o8", "0x", "0b2"]),
        ("[1_000, 1__0, 1_]", [1000, 10, 1]),
        ("a: 123456789012345678901234567890", {"a": 123456789012345678901234567890}),
    ],
    "float": [
        ("[1.5, 1., .5, -.5, 1e3, 1E-3, 1.e3]", [1.5, 1.0, 0.5, -0.5, 1000.0, 0.001, 1000.0]),
        ("[.inf, -.Inf, +.INF]", [math.inf, -math.inf, math.inf]),
        ("[1.5.2, ., e3, 1e, inf]", ["1.5.2", ".", "e3", "1e", "inf"]),
        ("a: 1e400", {"a": math.inf}),
    ],
    "no dates": [("a: 2001-12-14\nb: 12:30:45", {"a": "2001-12-14", "b": "12:30:45"})],
    "single quotes": [("a: 'it''s'\nb: '\\n'", {"a": "it's", "b": "\\n"})],
    "double quotes": [
        (r'a: "\x41\u263A\U0001F600\n\t\"\\\/\e\0"', {"a": 'A☺😀\n\t"\\/\x1b\0'}),
        ('a: "one\n  two\n\n  three\\\n  four"', {"a": "one two\nthreefour"}),
        ('"key": "12"', {"key": "12"}),
    ],
    "multiline": [
        ("a: one\n  two\n\n  three", {"a": "one two\nthree"}),
        ("a: 'one\n  two'", {"a": "one two"}),
    ],
    "literal": [
        ("a: |\n  one\n   two\n\n  three\n", {"a": "one\n two\n\nthree\n"}),
        ("a: |-\n  one\n", {"a": "one"}),
        ("a: |+\n  one\n\nb: 1", {"a": "one\n\n", "b": 1}),
        ("a: |2\n   one\n", {"a": " one\n"}),
        ("a: |\n  no line end", {"a": "no line end\n"}),
        ("a: |\n  # no comment\n", {"a": "# no comment\n"}),
        ("a: |\n  tab\there\n", {"a": "tab\there\n"}),
    ],
    "folded": [
        ("a: >\n  one\n  two\n\n  three\n", {"a": "one two\nthree\n"}),
        ("a: >-\n  one\n    more\n  two\n", {"a": "one\n  more\ntwo"}),
    ],
    "sequence": [
        ("- a\n- b", ["a", "b"]),
        ("- - a\n  - b\n- c", [["a", "b"], "c"]),
        ("-", [None]),
        ("a:\n- b\n- c", {"a": ["b", "c"]}),
        ("a:\n  - b: 1\n    c: 2", {"a": [{"b": 1, "c": 2}]}),
    ],
    "mapping": [
        ("a: 1\nb:\n  c: 2", {"a": 1, "b": {"c": 2}}),
        ("1: a\n'1': b\n1.5: c\n~: d", {1: "a", "1": "b", 1.5: "c", None: "d"}),
        ("a b: 1\nc : 2", {"a b": 1, "c": 2}),
    ],
    "explicit and complex key": [
        ("? a\n: b\n? c", {"a": "b", "c": None}),
        ("? [1, 2]\n: x", {(1, 2): "x"}),
        ("? {a: 1}\n: x", {frozenset({("a", 1)}): "x"}),
        ("[a, b]: c", {("a", "b"): "c"}),
    ],
    "empty key": [(": a", {None: "a"})],
    "flow": [
        ("{a: 1, b: [2, {c: 3}], d: }", {"a": 1, "b": [2, {"c": 3}], "d": None}),
        ("[a: 1, b]", [{"a": 1}, "b"]),
        ("{a, b: 2}", {"a": None, "b": 2}),
        ('{"a":1, "b":[2,],}', {"a": 1, "b": [2]}),
        ("a: [1,\n  2\n  ]", {"a": [1, 2]}),
        ("{? a : b}", {"a": "b"}),
        ("{}", {}),
        ("[]", []),
    ],
    "anchor and alias": [
        ("a: &x 1\nb: *x", {"a": 1, "b": 1}),
        ("a: &x [1, 2]\nb: {c: *x}", {"a": [1, 2], "b": {"c": [1, 2]}}),
        ("- &x a\n- &x b\n- *x", ["a", "b", "b"]),
        ("a: &x\nb: *x", {"a": None, "b": None}),
        ("&a a: 1\nb: *a", {"a": 1, "b": "a"}),
    ],
    "merge key": [
        (
            "a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3",
            {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}},
        ),
        ("b:\n  <<: [{x: 1}, {x: 2, y: 2}]", {"b": {"x": 1, "y": 2}}),
        ("'<<': 1", {"<<": 1}),
    ],
    "tag": [
        ("[!!str 1, !!int '3', !!float 1, !!bool 'true', !!null '']", ["1", 3, 1.0, True, None]),
        ("a: !!map {b: !!seq [1]}", {"a": {"b": [1]}}),
        ("a: !!binary aGk=", {"a": "aGk="}),
        ("!!set {a, b}", {"a", "b"}),
        ("!!omap [a: 1, b: 2]", [{"a": 1}, {"b": 2}]),
        ("! 12", "12"),
    ],
    "local and unknown tag": [
        ("a: !foo x\nb: !foo 12\nc: !foo [1]", {"a": "x", "b": "12", "c": [1]}),
        ("!<tag:example.com,2000:x> 3", "3"),
        ("%TAG !e! tag:example.com,2000:\n---\n!e!x 3", "3"),
    ],
    "directive": [("%YAML 1.2\n---\na: yes", {"a": "yes"})],
    "document": [
        ("", None),
        ("# only a comment", None),
        ("---\na: 1\n", {"a": 1}),
        ("a: 1\n...\n", {"a": 1}),
        ("--- |\n a\n...\n", "a\n"),
        ("--- text", "text"),
        ("[a]\n---\n", ["a"]),  # an empty document does not count
    ],
    "comment": [
        ("a: 1 # one\n# two\nb: 2 #", {"a": 1, "b": 2}),
        ("a:\n  # comment\n  - b\n  # comment\n  - c", {"a": ["b", "c"]}),
        ("a: '#no'\nb: c#no", {"a": "#no", "b": "c#no"}),
    ],
    "whitespace and indent": [
        ("a:    1   \nb:\n        c: 2\n", {"a": 1, "b": {"c": 2}}),
        ("\n\na: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
        ("-   a\n-     b: 1\n      c: 2", ["a", {"b": 1, "c": 2}]),
    ],
}
VALUES = [
    pytest.param(text, value, id=f"{category}-{number}")
    for category, cases in CASES.items()
    for number, (text, value) in enumerate(cases)
]


@pytest.mark.parametrize("text, value", VALUES)
def test_a_document_has_its_value(text: str, value: Any):
    parsed = parse_yaml(text)
    assert parsed == value
    if not isinstance(value, (set, frozenset)):  # True == 1 == 1.0, but their texts differ
        assert repr(parsed) == repr(value)


def test_nan_is_a_number():
    assert all(math.isnan(value) for value in parse_yaml("[.nan, .NaN, .NAN]"))


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{last}'] * 9)}]\n"
    for last, name in zip("abcdefgh", "bcdefghi", strict=True)
)
ERRORS = {
    "open flow sequence": ("a: [1,\nb: 2\n", "invalid YAML"),
    "open flow mapping": ("a: {b: 1\n", "invalid YAML"),
    "open quote": ("a: 'b\n", "invalid YAML"),
    "unknown escape": ('a: "\\q"', "invalid YAML"),
    "two mappings in a line": ("a: b: c", "invalid YAML"),
    "list in the line of a key": ("a: - b", "invalid YAML"),
    "missing dash": ("a:\n- x\n-y", "invalid YAML"),
    "bad indentation": ("a:\n    b: 1\n  c: 2\n", "invalid YAML"),
    "reserved character": ("a: @b", "invalid YAML"),
    "reserved backtick": ("a: `b", "invalid YAML"),
    "tab as indentation": ("a:\n\tb: 1\n\tc: 2\n", "invalid YAML"),
    "duplicate key": ("a: 1\nb: 2\na: 3\n", "duplicate mapping key: 'a'"),
    "duplicate key in flow style": ("{a: 1, a: 2}", "duplicate mapping key: 'a'"),
    "duplicate key of another spelling": ("a: 1\n'a': 2", "duplicate mapping key: 'a'"),
    "duplicate number": ("1: a\n1.0: b", "duplicate mapping key: 1.0"),
    "unknown anchor": ("a: *none", "unknown anchor"),
    "undeclared tag handle": ("!e!x 3", "invalid YAML"),
    "unknown core tag": ("a: !!timestamp 2001-01-01", "(?i)invalid tag"),
    "python tag": ("a: !!python/object:os.system x\n", "(?i)tag"),
    "wrong value for a tag": ("a: !!int x", "(?i)invalid value 'x' for"),
    "alias bomb": (BOMB, "(?i)alias"),
    "many documents": ("a: 1\n---\nb: 2\n", "2 YAML documents, expected one"),
    "many documents without dashes": ("a\n...\nb\n", "2 YAML documents, expected one"),
    "NUL byte": ("a: 1\nb: \0\n", "the file contains a NUL byte"),
}


@pytest.mark.parametrize("text, message", ERRORS.values(), ids=ERRORS.keys())
def test_an_error_is_reported_with_its_file(text: str, message: str):
    with pytest.raises(FormatError, match=message) as caught:
        parse_yaml(text, "x.yaml")
    assert "x.yaml" in str(caught.value)


@pytest.mark.parametrize(
    "name, line", [("duplicate key", 3), ("many documents", 2), ("NUL byte", 2), ("alias bomb", 2)]
)
def test_an_error_has_the_line(name: str, line: int):
    with pytest.raises(FormatError) as caught:
        parse_yaml(ERRORS[name][0])
    assert caught.value.line == line


@pytest.mark.parametrize("count, accepted", [(100, "yes"), (101, "no")])
def test_an_alias_may_be_used_a_hundred_times(count: int, accepted: str):
    text = "a: &a x\nb: [" + ", ".join(["*a"] * count) + "]"
    if accepted == "yes":
        assert parse_yaml(text)["b"] == ["x"] * count
    else:
        with pytest.raises(FormatError, match=r"(?i)alias"):
            parse_yaml(text)


def test_changing_the_value_of_an_alias_does_not_change_its_anchor():
    value = parse_yaml("a: &x [1]\nb: *x")
    value["b"].append(2)
    assert value["a"] == [1]


KEYS = st.text().filter(lambda key: key != "<<")  # the merge key, even in quotes
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=8,
)


@given(value=st.dictionaries(KEYS, JSON_VALUES, min_size=1))
def test_a_dumped_value_reads_back_the_same(value: dict[str, Any]):
    assert parse_yaml(dump_yaml(value)) == value


def test_long_texts_are_dumped_as_blocks():
    assert dump_yaml({"output": "one\ntwo\n", "hat": "planner", "tokens": 1}) == (
        "output: |\n  one\n  two\nhat: planner\ntokens: 1\n"
    )


LAYOUTS = [
    "# head\na: 1 # one\n\nlist:\n  - x: 1\n    y: 'quoted'\n  - z: \"double\"\n# tail\n",
    "list:\n- x: 1\n  y: |\n    lines\n    more\n- b\n",
    "a:\n    b:\n        c: 1 # four spaces\n",
    "---\na: [1, 2]\nb: {c: d}\n",
    "a: &x {b: 1}\nc: *x\nd: 0x1F\ne: 1_000\n",
    "long: " + "word " * 60 + "end\n",
]


@pytest.mark.parametrize("text", LAYOUTS)
def test_an_edited_file_keeps_its_comments_and_layout(text: str):
    document = load_round_trip(text)
    document["added"] = "new"
    edited = dump_round_trip(document, text)
    assert edited.replace("added: new\n", "") == text
    assert parse_yaml(edited) == {**parse_yaml(text), "added": "new"}


def test_a_file_with_an_error_is_not_opened_for_editing():
    with pytest.raises(FormatError, match="duplicate mapping key: 'a'") as caught:
        load_round_trip("a: 1\na: 2\n", "x.yaml")
    assert caught.value.line == 2


# --- The public yaml-test-suite

KEPT_TYPES = {"2XXW"}  # a `!!set` is a set; JSON has none
DUPLICATE_KEYS = {"2JQS", "X38W"}  # refused: one of them is a mistake
RESERVED = {"ZYU8"}  # a directive that the specification reserves is refused


def suite_cases(shared_data: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the cases of all files. A later case of a file has what it does not change."""
    cases: list[tuple[str, dict[str, Any]]] = []
    for path in sorted((shared_data / "yaml-test-suite" / "src").glob("*.yaml")):
        case: dict[str, Any] = {}
        for changes in parse_yaml(path.read_text("utf-8"), path):
            case = {**{key: value for key, value in case.items() if key != "fail"}, **changes}
            cases.append((path.stem, case))
    return cases


def case_text(case: dict[str, Any]) -> str:
    """Return the YAML of a case, with the characters that the suite shows by signs."""
    text = re.sub("—*»", "\t", case["yaml"].replace("␣", " ").replace("↵", ""))
    return re.sub("∎\n$", "", text.replace("←", "\r").replace("⇔", "\ufeff"))


def json_documents(text: str) -> list[Any]:
    documents: list[Any] = []
    while text := text.strip():
        value, end = json.JSONDecoder().raw_decode(text)
        documents.append(value)
        text = text[end:]
    return documents


@pytest.mark.external
def test_every_invalid_case_of_the_suite_is_refused(shared_data: Path):
    invalid = [(name, case) for name, case in suite_cases(shared_data) if case.get("fail")]
    assert len(invalid) > 80
    for name, case in invalid:
        with pytest.raises(FormatError):
            pytest.fail(f"{name} is read as {parse_yaml(case_text(case))!r}")


@pytest.mark.external
def test_every_valid_case_of_the_suite_has_its_value(shared_data: Path):
    different: list[str] = []
    compared = 0
    for name, case in suite_cases(shared_data):
        if case.get("fail"):
            continue
        documents = json_documents(case.get("json") or "")
        compared += bool(documents)
        try:
            value = parse_yaml(case_text(case))
        except FormatError as error:
            if "documents, expected one" not in str(error):
                different.append(name)
            continue
        # a file may end with empty documents; values that JSON does not have are only read
        if documents and (documents[0] != value or any(each is not None for each in documents[1:])):
            different.append(name)
    assert compared > 250
    assert {*different} == KEPT_TYPES | RESERVED | DUPLICATE_KEYS
