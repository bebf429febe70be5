"""Fixtures for the tests of the plugin."""

from importlib import import_module
from pkgutil import walk_packages

import pytest

from offbook.surfaces import fixtures


@pytest.fixture(scope="session", autouse=True)
def import_everything() -> None:
    """Import all public names before pytester runs.

    pytester removes the modules that it imports, which would leave a package partly imported.
    """
    offbook = import_module("offbook")
    assert fixtures.Offbook is offbook.Offbook
    import_module("jsonpath_rfc9535")  # an extension module, which can be imported only once
    # msgspec looks up the types of a struct in its module when they are first needed
    # what a test that drives a function loads: each of these patches something only once
    for folder in ("exchange.dialects", "sources.inprocess", "sources.server", "testing"):
        package = import_module(f"offbook.{folder}")
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    import_module("offbook.surfaces.pytest_session")
    import_module("offbook.subjects.frameworks.callable")
    import_module("pytest_offbook.rehearsals")
    for name in offbook.__all__:
        getattr(offbook, name)
