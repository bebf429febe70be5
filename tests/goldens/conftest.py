"""Shared setup of the tests of goldens."""

from importlib import import_module

import pytest

from offbook import goldens
from tests.surfaces.conftest import offbook_command

__all__ = ["offbook_command"]


@pytest.fixture(scope="session", autouse=True)
def loaded_modules() -> None:
    """Import everything before pytester runs: it drops the modules that a run inside imports."""
    import_module("jsonpath_rfc9535")  # a Rust module, which can be imported only once
    for name in dir(goldens):
        getattr(goldens, name)
    for module in ("goldens_pytest", "spec_validation"):
        import_module(f"offbook.goldens.{module}")
