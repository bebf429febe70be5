"""The sixth import contract, a kind that import-linter does not have."""

import sys
from collections.abc import Iterator
from typing import cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class DoorsContract(Contract):
    """Each third-party package is imported by one module, or by the modules of one folder.

    - ``doors``: lines of ``package -> module``.
    - ``everywhere``: packages that any module may import.

    A package that has no door may not be imported at all.
    """

    type_name = "doors"

    doors = fields.ListField(subfield=fields.StringField())
    everywhere = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: FBT001, ARG002 - import-linter calls it so
        complaints = sorted(self._complaints(graph))
        return ContractCheck(kept=not complaints, metadata={"complaints": complaints})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for complaint in cast("list[str]", check.metadata["complaints"]):
            output.print_error(f"- {complaint}", bold=False)
        output.new_line()

    def _complaints(self, graph: ImportGraph) -> Iterator[str]:
        doors = dict(_parsed(line) for line in cast("list[str]", self.doors))
        everywhere = cast("set[str]", self.everywhere or set())
        for package in _third_party(graph) - everywhere:
            for importer in graph.find_modules_that_directly_import(package):
                if package not in doors:
                    yield f"{importer} imports {package}, which has no door: add it to the table"
                elif not _is_within(importer, doors[package]):
                    yield f"{importer} imports {package}, whose door is {doors[package]}"


def _parsed(line: str) -> tuple[str, str]:
    package, arrow, door = line.partition(" -> ")
    if not arrow:
        message = f"a door is written 'package -> module', not {line!r}"
        raise ValueError(message)
    return package.strip(), door.strip()


def _third_party(graph: ImportGraph) -> set[str]:
    """The packages outside that are not Python's own; import-linter squashes exactly those."""
    outside = {module for module in graph.modules if graph.is_module_squashed(module)}
    return {name for name in outside if name.partition(".")[0] not in sys.stdlib_module_names}


def _is_within(module: str, folder: str) -> bool:
    return module == folder or module.startswith(f"{folder}.")
