"""The public API is the list in public_names.txt: a change of it is seen in review."""

from pathlib import Path

import pytest

import offbook

GOLDEN = Path(__file__).with_name("public_names.txt")
NAMES = GOLDEN.read_text().split()


def test_the_public_names_are_the_golden_list():
    assert sorted(offbook.__all__) == NAMES, f"if this is meant, change {GOLDEN.name} with it"


def test_the_golden_list_is_sorted_and_names_nothing_twice():
    assert sorted(set(NAMES)) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_resolves_and_is_listed(name: str):
    assert hasattr(offbook, name)
    assert name in dir(offbook)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = getattr(offbook, "no_such_name")  # noqa: B009 - pyright knows that it is not there
