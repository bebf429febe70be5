"""What the tests of the plugin share."""

import pytest

import offbook
from offbook.surfaces import fixtures


@pytest.fixture(scope="session", autouse=True)
def loaded() -> None:
    """Loads all names before pytester does: what it loads it forgets, and half would stay."""
    assert fixtures.Offbook is offbook.Offbook
    for name in offbook.__all__:
        getattr(offbook, name)
