"""The mocks of one test: opened before its fixtures, checked when the test function returns."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from offbook.surfaces.fixtures import (
    FakePrograms,
    MockScopes,
    close_scopes,
    current_host,
    open_scopes,
)

if TYPE_CHECKING:
    from collections.abc import Generator

SCOPES_KEY = pytest.StashKey[MockScopes]()
FAKES_KEY = pytest.StashKey[FakePrograms]()
LLM_FIXTURES = frozenset({"llm_mocks", "mocks"})


@contextmanager
def open_test_scopes(item: pytest.Item) -> Generator[None]:
    """Open the scopes of a test in its context, which its tasks inherit."""
    with_llm = bool(LLM_FIXTURES.intersection(getattr(item, "fixturenames", ())))
    with open_scopes(item.nodeid, with_llm=with_llm) as item.stash[SCOPES_KEY]:
        yield


def scopes_of(item: pytest.Item) -> MockScopes:
    """Return the scopes of a test."""
    return item.stash[SCOPES_KEY]


def fakes_of(item: pytest.Item) -> FakePrograms:
    """Return the fake programs of a test, made for the first fixture that needs them."""
    return item.stash.setdefault(FAKES_KEY, FakePrograms())


def close_test_scopes(item: pytest.Item) -> None:
    """Raise for a mock that was not used, and for a call without a mock that was swallowed."""
    if (fakes := item.stash.get(FAKES_KEY, None)) is not None:
        fakes.check()
    scopes = item.stash.get(SCOPES_KEY, None)
    if scopes is not None:
        close_scopes(scopes)
        return
    # The test itself imported the functions: its mocks must not reach the next test.
    scope = current_host.get()
    current_host.set(None)
    if scope is not None:
        scope.close()
