"""The declaration of a capability: its commands, its pytest plugin and its MCP tools.

A capability is one folder in `offbook/`. Its `__init__.py` defines `CAPABILITY`, and its name is
one line in `offbook/surfaces/capabilities.py`. Everything else is named as text, "module:name",
and imported when it is used: `offbook --help` and an idle pytest plugin stay fast.

    CAPABILITY = Capability(
        commands={
            "golden": CommandEntry("Check goldens.", "offbook.goldens.goldens_cli:golden"),
        },
        heading="Goldens",
        pytest_plugin="offbook.goldens.goldens_pytest",
    )
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

NOTHING: Mapping[str, Any] = MappingProxyType({})


class CommandEntry(NamedTuple):
    """A command of the command line: its help line, and the click command as "module:name"."""

    help: str
    target: str


class Capability(NamedTuple):
    """The parts of a capability that the surfaces load when they are used."""

    heading: str = ""
    """The heading of its commands in `offbook --help`."""

    commands: Mapping[str, CommandEntry] = NOTHING

    pytest_plugin: str = ""
    """A module with pytest hooks, options and fixtures. pytest imports it at every start, so it
    imports nothing but pytest until a hook needs more."""

    mcp_tools: str = ""
    """The table of its MCP tools as "module:name": tool names and `Tool` values."""


def load(target: str) -> Any:
    """Import the object that "module:name" names."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def lazy_names(homes: Mapping[str, str], package: str) -> Callable[[str], Any]:
    """Return a module's `__getattr__` that imports each public name when it is first used.

    `homes` maps a module of the package to the names it defines, separated by spaces.

        __getattr__ = lazy_names({"components": "Component step"}, __name__)
    """
    home_of = {name: module for module, names in homes.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home_of[name]}"), name)

    return get
