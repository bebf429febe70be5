"""Which components there are: ours, those of live scripts, and those that packages bring."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isclass
from typing import TYPE_CHECKING, Any

from offbook.errors import UsageError, nearest
from offbook.files import run_source
from offbook.runs.goldens.components.component import Component
from offbook.runs.goldens.scenario import Take, scenario_of

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

GROUP = "offbook.components"
LIVE = "_live.py"
OURS = {
    "hub": "offbook.runs.goldens.components.component:Component",
    "harness": "offbook.runs.goldens.components.harness:Harness",
    "loop": "offbook.runs.goldens.components.loop:LoopComponent",
    "session": "offbook.runs.goldens.components.session:SessionComponent",
}


class Registry:
    """The components of a project, by name.

    A live script `scripts/live/<component>_live.py` holds the scenarios of a component, and may
    bring its class as well. A name may also be an import path: `shop.testing:Till`.
    """

    def __init__(self, live: Path) -> None:
        self._live = live
        self._scripts: dict[str, ModuleType] = {}

    def names(self) -> list[str]:
        """All that is known."""
        brought = {entry.name for entry in entry_points(group=GROUP)}
        return sorted({*OURS, *brought, *self.scripts()})

    def scripts(self) -> list[str]:
        """The components that have a live script."""
        return sorted(path.name.removesuffix(LIVE) for path in self._live.glob(f"*{LIVE}"))

    def script_path(self, name: str) -> Path:
        """Where the live script of a component stands, or would."""
        return self._live / f"{name}{LIVE}"

    def find(self, name: str) -> type[Component]:
        """The class of a component."""
        if name in self.scripts():
            own = self._own_class(name)
            if own is not None:
                return own
        if name in OURS:
            return _import(OURS[name])
        for entry in entry_points(group=GROUP):
            if entry.name == name:
                return _checked(entry.load(), entry.value)
        if ":" in name:
            return _import(name)
        raise UsageError(f"there is no component {name!r}", hint=nearest(name, self.names()))

    def takes(self, name: str) -> dict[str, Take]:
        """The scenarios of a live script, by name."""
        found: dict[str, Take] = {}
        for value in vars(self._load(name)).values():
            take = scenario_of(value)
            if take is not None:
                found[take.name] = take
        return found

    def take(self, name: str, scenario: str) -> Take:
        """One scenario of a live script."""
        takes = self.takes(name)
        if scenario not in takes:
            raise UsageError(
                f"there is no scenario {scenario!r} of {name!r}",
                where=str(self.script_path(name)),
                hint=nearest(scenario, takes),
            )
        return takes[scenario]

    def _own_class(self, name: str) -> type[Component] | None:
        module = self._load(name)
        own: list[type[Component]] = [
            value
            for value in vars(module).values()
            if isclass(value)
            and issubclass(value, Component)
            and value.__module__ == module.__name__
        ]
        return own[-1] if own else None

    def _load(self, name: str) -> ModuleType:
        if name in self._scripts:
            return self._scripts[name]
        path = self.script_path(name)
        spec = spec_from_file_location(f"offbook_live_{name}", path)
        if not path.is_file() or spec is None or spec.loader is None:
            raise UsageError(
                f"{name!r} has no live script, so nothing can be recorded or proved",
                where=str(path),
                hint=f"write it with @scenario functions; {nearest(name, self.scripts())}",
            )
        module = module_from_spec(spec)
        sys.modules[module.__name__] = module
        try:
            run_source(module, path)
        except Exception as error:
            raise UsageError(
                f"the live script raised {type(error).__name__}: {error}", where=_line(error, path)
            ) from error
        self._scripts[name] = module
        return module


def _line(error: Exception, path: Path) -> str:
    """The line of the script at which it failed."""
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    line = line or getattr(error, "lineno", None) or 1
    return f"{path}:{line}"


def _import(reference: str) -> type[Component]:
    module, _, name = reference.partition(":")
    try:
        home = import_module(module)
    except ImportError as error:
        raise UsageError(f"cannot import {module}: {error}", where=reference) from error
    if not hasattr(home, name):
        raise UsageError(f"{module} has no {name!r}", hint=nearest(name, vars(home)))
    return _checked(getattr(home, name), reference)


def _checked(value: Any, reference: str) -> type[Component]:
    if not (isclass(value) and issubclass(value, Component)):
        raise UsageError(
            f"{reference} is not a component", hint="a component is a subclass of offbook.Component"
        )
    return value
