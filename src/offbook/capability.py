"""The declaration of a capability: its commands, its MCP tools, its reports and importers.

A capability is one folder in `offbook/`. Its `__init__.py` defines `CAPABILITY`, and its name is
one line in `offbook/surfaces/capabilities.py`. Everything else is named as text, "module:name",
and imported when it is used: `offbook --help` and an idle pytest plugin stay fast.

    CAPABILITY = Capability(
        heading="Goldens",
        commands={
            "golden": CommandEntry("Check goldens.", "offbook.goldens.goldens_cli:golden"),
        },
    )
"""

from __future__ import annotations

# Plain classes and no import of `typing` at run time: this module is imported by `import offbook`
# and at every start of pytest, and a NamedTuple alone would take 2 ms of CPU.
import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


# The key of click's `meta` with the function that returns `pending` of all capabilities.
PENDING = "offbook.pending"

WINDOWS = "Offbook does not run on Windows; fix: install it in WSL, where it runs as on Linux"


class CommandEntry:
    """A command of the command line: its help line, and the click command as "module:name".

    `heading` is the one in `offbook --help`, if it is not that of the capability.
    """

    __slots__ = ("heading", "help", "target")

    def __init__(self, help: str, target: str, heading: str = "") -> None:  # noqa: A002 - click's word
        self.help = help
        self.target = target
        self.heading = heading


class Capability:
    """The parts of a capability that the surfaces load when they are used.

    - `heading`: the heading of its commands in `offbook --help`.
    - `mcp_tools`: the table of its MCP tools as "module:name".
    - `reports`: its formats of `offbook report`, each a function as "module:name" that takes the
      paths of traces and returns the text.
    - `importers`: functions for `offbook import` as "module:name", by the suffix of what each
      writes. They take both files, `kind`, `agent` and `replace`.
    - `pending`: a function as "module:name" for `offbook review`. It takes a word of the command
      line, a folder or a name, and returns the pending changes that the capability alone knows
      there, or None if the word means nothing to it.
    """

    __slots__ = (
        "commands",
        "heading",
        "importers",
        "mcp_tools",
        "pending",
        "reports",
    )

    def __init__(
        self,
        heading: str = "",
        commands: Mapping[str, CommandEntry] | None = None,
        mcp_tools: str = "",
        reports: Mapping[str, str] | None = None,
        pending: str = "",
        importers: Mapping[str, str] | None = None,
    ) -> None:
        self.heading = heading
        self.commands = commands or {}
        self.mcp_tools = mcp_tools
        self.reports = reports or {}
        self.pending = pending
        self.importers = importers or {}


def load_declarations(names: Sequence[str]) -> list[Capability]:
    """Import the declarations of capabilities; their code is imported when it is used."""
    return [import_module(f"offbook.{name}").CAPABILITY for name in names]


def load(target: str) -> Any:
    """Import the object that "module:name" names."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def lazy_getattr(module: str, homes: Mapping[str, str], package: str = "") -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that imports names on first use.

    `homes` maps a module of the package to the names it defines, separated by spaces. `package` is
    the package of the modules, if it is not the module itself. `./dev docs` writes the `.pyi` file
    of the module, which lists the names for type checkers.

        __getattr__ = lazy_getattr(__name__, {"components": "Component step"})
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if sys.platform == "win32":  # on first use: being installed breaks no other test
            raise ImportError(WINDOWS)
        return getattr(import_module(f"{package or module}.{home_of[name]}"), name)

    return get


def lazy_names(
    module: str,
    homes: Mapping[str, str],
    *defined: str,
    package: str = "",
    internal: Mapping[str, str] | None = None,
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a public module, as `lazy_getattr` does.

    `defined` are the public names that the module defines itself. `internal` are names for the
    project's own tests, which are not public; neither is `CAPABILITY`, which is for the surfaces.
    """
    own = [name for name in defined if name != "CAPABILITY"]
    public = [*own, *sorted(name for names in homes.values() for name in names.split())]
    tables = [homes, internal or {}]
    merged = {home: " ".join(t.get(home, "") for t in tables) for t in tables for home in t}
    return public, lazy_getattr(module, merged, package), lambda: public
