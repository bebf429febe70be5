"""JSON pointers follow RFC 6901."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import UsageError
from offbook.trace import MISSING, resolve_pointer
from tests.conftest import SHARED_DATA

CASES = SHARED_DATA / "harn" / "derived" / "json_pointer" / "cases.json"


@pytest.mark.external
def test_every_case_of_harn_has_its_result():
    table = json.loads(CASES.read_text())
    document = table["doc"]
    assert len(table["cases"]) == 13
    for pointer, expected in table["cases"]:
        if isinstance(expected, str) and expected.startswith("ERROR "):
            with pytest.raises(UsageError) as caught:
                resolve_pointer(document, pointer)
            assert expected.removeprefix("ERROR ") in str(caught.value)
        else:
            wanted = document if expected == "<whole document>" else expected
            assert resolve_pointer(document, pointer, default=None) == wanted


def test_a_missing_field_differs_from_null():
    assert resolve_pointer({"a": None}, "/a") is None
    assert resolve_pointer({}, "/a") is MISSING


@pytest.mark.parametrize("pointer", ["/01", "/-", "/-1", "/1e0", "/2", "/x"])
def test_only_an_index_of_the_list_is_one(pointer: str):
    assert resolve_pointer([1, 2], pointer) is MISSING


def test_an_error_has_the_place_and_a_fix():
    with pytest.raises(UsageError, match=r"'/a/b~2', character 5: invalid escape '~2'"):
        resolve_pointer({}, "/a/b~2")
    with pytest.raises(UsageError, match="write '/a/b'"):
        resolve_pointer({}, "$.a.b")


keys = st.text(st.sampled_from("a~/01"), max_size=4)


@given(st.lists(keys, max_size=4))
def test_an_escaped_key_is_found(path: list[str]):
    document: Any = 7
    for key in reversed(path):
        document = {key: document}
    escaped = "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in path)
    assert resolve_pointer(document, escaped) == 7
