"""Shared setup of the tests of goldens."""

from importlib import import_module
from pkgutil import iter_modules

import pytest

from offbook import goldens
from tests.surfaces.conftest import offbook_command

__all__ = ["offbook_command"]


@pytest.fixture(scope="session", autouse=True)
def loaded_modules() -> None:
    """Import everything before pytester runs: it drops the modules that a run inside imports."""
    import_module("jsonpath_rfc9535")  # a Rust module, which can be imported only once
    for module in iter_modules(goldens.__path__, "offbook.goldens."):
        import_module(module.name)
