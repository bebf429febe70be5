"""What the tests of the plugin share."""

from importlib import import_module

import pytest

import offbook
from offbook.surfaces import fixtures


@pytest.fixture(scope="session", autouse=True)
def loaded() -> None:
    """Loads all names before pytester does: what it loads it forgets, and half would stay."""
    assert fixtures.Offbook is offbook.Offbook
    import_module("jsonpath_rfc9535")  # loaded late, and in Rust: it can be loaded only once
    for name in offbook.__all__:
        getattr(offbook, name)
