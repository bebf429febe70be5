"""The import contracts that import-linter does not have: capabilities and doors."""

import ast
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class _ProblemsContract(Contract):
    """A contract that is broken by a list of problems."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: FBT001, ARG002 - import-linter's signature
        problems = sorted(self.problems(graph))
        return ContractCheck(kept=not problems, metadata={"problems": problems})

    def problems(self, graph: ImportGraph) -> Iterator[str]:
        raise NotImplementedError

    def render_broken_contract(self, check: ContractCheck) -> None:
        for problem in cast("list[str]", check.metadata["problems"]):
            output.print_error(f"- {problem}", bold=False)
        output.new_line()


class CapabilitiesContract(_ProblemsContract):
    """Capabilities import the core only; nothing but `above` imports them.

    - ``package``: the root package.
    - ``table``: the module whose `CAPABILITIES` lists them.
    - ``above``: modules of the package that may import capabilities.
    - ``core``: modules of the package below the capabilities.

    Every module of the package is a capability, in `above` or in `core`.
    """

    type_name = "capabilities"

    package = fields.StringField()
    table = fields.StringField()
    above = fields.SetField(subfield=fields.StringField())
    core = fields.SetField(subfield=fields.StringField())

    def problems(self, graph: ImportGraph) -> Iterator[str]:
        package = cast("str", self.package)
        table = cast("str", self.table)
        above = {f"{package}.{name}" for name in cast("set[str]", self.above)}
        core = {f"{package}.{name}" for name in cast("set[str]", self.core)}
        capabilities = {f"{package}.{name}" for name in _read_table(table)}
        top = graph.find_children(package)
        for module in top - above - core - capabilities:
            yield f"{module} is neither a capability in {table} nor part of the core"
        for module in capabilities - top:
            yield f"{module} is listed in {table} but does not exist"
        for capability in capabilities & top:
            for module in (capability, *graph.find_descendants(capability)):
                for imported in graph.find_modules_directly_imported_by(module):
                    owner = ".".join(imported.split(".")[:2])
                    if owner in (capabilities | above) - {capability}:
                        yield f"{module} imports {imported}"
                for importer in graph.find_modules_that_directly_import(module):
                    owner = ".".join(importer.split(".")[:2])
                    if owner in core:
                        yield f"{importer} of the core imports {module}"


class DoorsContract(_ProblemsContract):
    """Each third-party package is imported by the modules of its door only.

    - ``doors``: lines of ``package -> module, module``; a folder includes its modules, and
      ``offbook.*.*_cli`` matches the module of that name in every capability.
    - ``everywhere``: packages that any module may import.

    A package without a door may not be imported at all.
    """

    type_name = "doors"

    doors = fields.ListField(subfield=fields.StringField())
    everywhere = fields.SetField(subfield=fields.StringField(), required=False)

    def problems(self, graph: ImportGraph) -> Iterator[str]:
        doors = dict(_parse_door(line) for line in cast("list[str]", self.doors))
        everywhere = cast("set[str]", self.everywhere or set())
        for package in _third_party(graph) - everywhere:
            for importer in graph.find_modules_that_directly_import(package):
                if package not in doors:
                    yield f"{importer} imports {package}, which has no door: add it to the table"
                elif not any(_is_within(importer, module) for module in doors[package]):
                    yield f"{importer} imports {package}, whose door is {', '.join(doors[package])}"


def _read_table(module: str) -> list[str]:
    """Return the names in `CAPABILITIES`, without importing the module."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    assignments = [
        node
        for node in ast.parse(Path(spec.origin).read_text("utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CAPABILITIES"
    ]
    return list(ast.literal_eval(assignments[-1].value)) if assignments else []


def _parse_door(line: str) -> tuple[str, list[str]]:
    package, arrow, modules = line.partition(" -> ")
    if not arrow:
        message = f"expected 'package -> module', got {line!r}"
        raise ValueError(message)
    return package.strip(), [module.strip() for module in modules.split(",")]


def _third_party(graph: ImportGraph) -> set[str]:
    """Return the imported packages that are neither ours nor in the standard library."""
    outside = {module for module in graph.modules if graph.is_module_squashed(module)}
    return {name for name in outside if name.partition(".")[0] not in sys.stdlib_module_names}


def _is_within(module: str, folder: str) -> bool:
    return fnmatchcase(module, folder) or module.startswith(f"{folder}.")
