"""The import contracts hold, and each of them is able to fail.

The second half plants one violation at a time in a skeleton of the project and reads it with
the very contracts of pyproject.toml.
"""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

SKELETON = [
    "offbook",
    "offbook.__main__",
    "offbook.surfaces",
    "offbook.surfaces.cli",
    "offbook.surfaces.fixtures",
    "offbook.testing",
    "offbook.runs",
    "offbook.runs.runner",
    "offbook.workflows.workspace",
    "offbook.sources",
    "offbook.sources.playbook",
    "offbook.subjects",
    "offbook.subjects.subject",
    "offbook.subjects.process",
    "offbook.subjects.session",
    "offbook.subjects.session.tools",
    "offbook.subjects.session.loop",
    "offbook.subjects.clis",
    "offbook.subjects.clis.cli",
    "offbook.subjects.clis.codex",
    "offbook.subjects.clis.pi",
    "offbook.subjects.frameworks",
    "offbook.subjects.frameworks.framework",
    "offbook.subjects.frameworks.langgraph",
    "offbook.subjects.frameworks.pydantic_ai",
    "offbook.checks",
    "offbook.checks.budgets",
    "offbook.reports",
    "offbook.reports.report",
    "offbook.reports.junit",
    "offbook.reports.terminal",
    "offbook.trace",
    "offbook.trace.events",
    "offbook.trace.reader",
    "offbook.exchange",
    "offbook.exchange.model",
    "offbook.exchange.dialects",
    "offbook.exchange.providers",
    "offbook.exchange.dialects.dialect",
    "offbook.exchange.dialects.gemini",
    "offbook.exchange.dialects.openai_chat",
    "offbook.determinism",
    "offbook.determinism.clock",
    "offbook.errors",
    "pytest_offbook",
    "pytest_offbook.plugin",
]


class Import(NamedTuple):
    """One import statement, and the module that it is planted in."""

    inside: str
    statement: str


ALLOWED = [
    Import("offbook.__main__", "from offbook.surfaces.cli import main"),
    Import("offbook.surfaces.cli", "import click"),
    Import("offbook.surfaces.fixtures", "from offbook.runs import runner"),
    Import("offbook.runs.runner", "from offbook.runs import workspace"),
    Import("offbook.runs.runner", "from offbook.sources.playbook import Playbook"),
    Import("offbook.workflows.workspace", "from offbook.subjects.session import tools"),
    Import("offbook.testing", "from offbook.runs.runner import Runner"),
    Import("offbook.subjects.session.loop", "from offbook.subjects.subject import Subject"),
    Import("offbook.subjects.clis.codex", "from offbook.subjects.process import Process"),
    Import("offbook.subjects.clis.pi", "from offbook.subjects.clis.cli import Cli"),
    Import("offbook.subjects.frameworks.langgraph", "from ..frameworks.framework import Framework"),
    Import("offbook.reports.junit", "from offbook.reports.report import Report"),
    Import("offbook.reports.terminal", "import rich.tree"),
    Import("offbook.exchange.dialects.gemini", "from .dialect import Dialect"),
    Import("offbook.exchange.providers", "from .gemini import Gemini"),
    Import("offbook.trace.events", "import msgspec"),
    Import("offbook.trace.reader", "from offbook.errors import OffbookError"),
    Import("pytest_offbook.plugin", "from offbook.surfaces import fixtures"),
]

PLANTED = [
    # the contract that must break, then the imports that must break it
    ("layers", [Import("offbook.trace.events", "from offbook.runs import runner")]),
    ("layers", [Import("offbook.errors", "import offbook.determinism.clock")]),
    ("layers", [Import("offbook.exchange.model", "from offbook.trace.events import Event")]),
    ("layers", [Import("offbook.runs.runner", "from offbook.surfaces.cli import main")]),
    ("layers", [Import("offbook.runs.runner", "from offbook.testing import suite")]),
    ("layers", [Import("offbook.checks.budgets", "from offbook.sources import playbook")]),
    ("layers", [Import("offbook.sources.playbook", "from ..subjects.subject import Subject")]),
    ("layers", [Import("offbook.reports.junit", "def late():\n    import offbook.checks.budgets")]),
    ("layers", [Import("offbook.utils", "")]),
    ("plugin-above", [Import("offbook.runs.runner", "import pytest_offbook.plugin")]),
    ("plugin-opens-surfaces", [Import("pytest_offbook.plugin", "import offbook.runs.runner")]),
    (
        "acyclic",
        [
            Import("offbook.trace.events", "from offbook.trace import reader"),
            Import("offbook.trace.reader", "from offbook.trace import events"),
        ],
    ),
    (
        "acyclic",
        [
            Import("offbook.subjects.session.tools", "from .loop import Loop"),
            Import("offbook.subjects.session.loop", "from .tools import Tool"),
        ],
    ),
    ("subjects", [Import("offbook.subjects.session.loop", "from ..clis import codex")]),
    ("subjects", [Import("offbook.subjects.process", "from offbook.subjects import session")]),
    ("clis", [Import("offbook.subjects.clis.codex", "from offbook.subjects.clis import pi")]),
    ("reports", [Import("offbook.reports.junit", "from offbook.reports import terminal")]),
    ("dialects", [Import("offbook.exchange.dialects.gemini", "from . import openai_chat")]),
    ("dialects", [Import("offbook.exchange.dialects.gemini", "from . import all")]),
    (
        "frameworks",
        [Import("offbook.subjects.frameworks.langgraph", "from .pydantic_ai import adapt")],
    ),
    ("facade", [Import("offbook.sources.playbook", "from offbook import when")]),
    ("facade", [Import("offbook.runs.runner", "import offbook")]),
    ("facade", [Import("pytest_offbook.plugin", "import offbook")]),
    ("doors", [Import("offbook.runs.runner", "import click")]),
    ("doors", [Import("offbook.trace.reader", "import a_package_without_a_door")]),
    ("doors", [Import("pytest_offbook.plugin", "from rich.tree import Tree")]),
]


class LintImports(Protocol):
    """Reads the packages of a folder with the contracts of the project."""

    def __call__(self, packages: Path, *options: str) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def lint_imports(root: Path, unwatched: dict[str, str]) -> LintImports:
    program = "from importlinter.cli import lint_imports_command as main; main()"

    def lint(packages: Path, *options: str) -> subprocess.CompletedProcess[str]:
        search = os.pathsep.join([str(packages), str(root)])
        return subprocess.run(
            [sys.executable, "-c", program, "--no-logo", "--no-cache", *options],
            cwd=root,
            env={**unwatched, "PYTHONPATH": search, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )

    return lint


def plant(packages: Path, imports: list[Import]) -> None:
    """Writes the skeleton: an empty module each, but for what is planted in it."""
    bodies = dict.fromkeys(SKELETON, "")
    for inside, statement in imports:
        bodies[inside] = f"{bodies.get(inside, '')}{statement}\n"
    for module, body in bodies.items():
        path = packages.joinpath(*module.split("."))
        is_folder = any(other.startswith(f"{module}.") for other in bodies)
        file = path / "__init__.py" if is_folder else path.with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(body)


def test_the_project_keeps_its_contracts(lint_imports: LintImports, root: Path):
    outcome = lint_imports(root / "src")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_every_allowed_import_keeps_the_contracts(lint_imports: LintImports, tmp_path: Path):
    plant(tmp_path, ALLOWED)
    outcome = lint_imports(tmp_path)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_a_violation_of_every_contract_is_planted(root: Path):
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    contracts = {contract["id"] for contract in settings["tool"]["importlinter"]["contracts"]}
    assert contracts == {contract for contract, _ in PLANTED}


@pytest.mark.parametrize("contract, imports", PLANTED)
def test_a_planted_violation_is_caught(
    lint_imports: LintImports, tmp_path: Path, contract: str, imports: list[Import]
):
    plant(tmp_path, [*ALLOWED, *imports])
    outcome = lint_imports(tmp_path, "--contract", contract)
    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    assert "Contracts: 0 kept, 1 broken." in outcome.stdout
