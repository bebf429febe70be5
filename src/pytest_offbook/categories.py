"""Holds tests to the promises of their marker: `unit`, `replay` and `live`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from offbook.surfaces.goldens import CATEGORIES, held

if TYPE_CHECKING:
    from collections.abc import Generator

NAME = "offbook-categories"


class Categories:
    """Guards `unit` and `replay` tests while they run; `live` ones run only when they can."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Hold a test to what it promises; what it broke fails it, though it went well."""
        marker = next(filter(None, map(item.get_closest_marker, CATEGORIES)), None)
        if marker is None:
            return (yield)
        funcargs: dict[str, Any] = getattr(item, "funcargs", {})
        allow = [value for value in funcargs.values() if isinstance(value, Path)]
        own = [path for path in allow if _is_temporary(path, item.config)]
        category = CATEGORIES[marker.name]
        with held(category, item.path, own, marker.kwargs.get("budget")):
            return (yield)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a live test whose credentials are missing, or that nobody asked for."""
        marker = item.get_closest_marker("live")
        if marker is None:
            return
        missing = [name for name in marker.kwargs.get("needs", ()) if not os.environ.get(name)]
        if missing:
            pytest.skip(f"live: {', '.join(missing)} is not set")
        if not item.config.getoption("--offbook-live"):
            pytest.skip("live: run it with --offbook-live")


def _is_temporary(path: Path, config: pytest.Config) -> bool:
    """Whether pytest made this folder for the test."""
    factory: Any = getattr(config, "_tmp_path_factory", None)
    return factory is not None and path.is_relative_to(factory.getbasetemp())
