"""Tells when a module comes: a client library may be imported in the middle of a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class Arrivals(MetaPathFinder):
    """Stands first among the finders, and calls `arrived` with each of these modules in turn."""

    def __init__(self, names: Iterable[str], arrived: Callable[[str, ModuleType], None]) -> None:
        self._names = frozenset(names)
        self._arrived = arrived

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders find, with our word put behind its execution."""
        if fullname not in self._names:
            return None
        for finder in sys.meta_path:
            find: Any = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(fullname, path, target)
            if spec is not None:
                self._follow(spec)
                return spec
        return None

    def _follow(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # it is the loader's own again
            execute(module)
            self._arrived(spec.name, module)

        loader.exec_module = exec_module
