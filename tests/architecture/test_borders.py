"""The import contracts hold, and each of them can fail.

A skeleton of the project with one planted violation is checked with the contracts of
pyproject.toml.
"""

import os
import subprocess
import tomllib
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from tests.forked import run_python

SKELETON = [
    "offbook",
    "offbook.__main__",
    "offbook.surfaces",
    "offbook.surfaces.capabilities",
    "offbook.surfaces.cli",
    "offbook.surfaces.fixtures",
    "offbook.goldens",
    "offbook.goldens.goldens_cli",
    "offbook.workflows",
    "offbook.workflows.hat_loop",
    "offbook.testing",
    "offbook.cli_options",
    "offbook.runs",
    "offbook.runs.api",
    "offbook.runs.rehearsal",
    "offbook.sources",
    "offbook.sources.playbook",
    "offbook.subjects",
    "offbook.subjects.subject",
    "offbook.subjects.process",
    "offbook.subjects.rpc_process",
    "offbook.subjects.mock_tools",
    "offbook.subjects.faulty_results",
    "offbook.subjects.tool_values",
    "offbook.subjects.tool_watch",
    "offbook.subjects.session",
    "offbook.subjects.session.tools",
    "offbook.subjects.session.session",
    "offbook.subjects.clis",
    "offbook.subjects.clis.cli",
    "offbook.subjects.clis.clients",
    "offbook.subjects.clis.pi",
    "offbook.subjects.frameworks",
    "offbook.subjects.frameworks.framework",
    "offbook.subjects.frameworks.langgraph",
    "offbook.subjects.frameworks.pydantic_ai",
    "offbook.checks",
    "offbook.checks.assertion",
    "offbook.reports",
    "offbook.reports.report",
    "offbook.reports.json_report",
    "offbook.reports.styled_lines",
    "offbook.reports.terminal",
    "offbook.trace",
    "offbook.trace.events",
    "offbook.trace.reader",
    "offbook.exchange",
    "offbook.exchange.model",
    "offbook.exchange.dialects",
    "offbook.exchange.dialects.dialect",
    "offbook.exchange.dialects.anthropic",
    "offbook.exchange.dialects.bedrock",
    "offbook.exchange.dialects.cohere",
    "offbook.exchange.dialects.ollama",
    "offbook.exchange.dialects.mistral",
    "offbook.exchange.dialects.mistral.mistral_dialect",
    "offbook.exchange.dialects.chat",
    "offbook.exchange.dialects.chat.chat_dialect",
    "offbook.exchange.dialects.gemini",
    "offbook.exchange.dialects.responses",
    "offbook.determinism",
    "offbook.determinism.run_context",
    "offbook.clis",
    "offbook.people",
    "offbook.types",
    "offbook.errors",
    "pytest_offbook",
    "pytest_offbook.plugin",
]


class Import(NamedTuple):
    """A line of code, and the module that it is planted in."""

    module: str
    line: str


ALLOWED = [
    Import("offbook.surfaces.capabilities", 'CAPABILITIES = ("goldens", "workflows")'),
    Import("offbook.__main__", "from offbook.surfaces.cli import main"),
    Import("offbook.surfaces.cli", "import click"),
    Import("offbook.surfaces.cli", "from offbook.goldens.goldens_cli import golden"),
    Import("offbook.surfaces.fixtures", "from offbook.runs import api"),
    Import("offbook.goldens.goldens_cli", "from offbook.runs.api import session"),
    Import("offbook.goldens.goldens_cli", "from offbook import cli_options"),
    Import("offbook.workflows.hat_loop", "from offbook.trace.reader import Trace"),
    Import("offbook.runs.api", "from offbook.runs import rehearsal"),
    Import("offbook.runs.api", "from offbook.sources.playbook import Playbook"),
    Import("offbook.runs.rehearsal", "from offbook.subjects.session import tools"),
    Import("offbook.testing", "from offbook.runs.api import session"),
    Import("offbook.subjects.session.session", "from offbook.subjects.subject import Subject"),
    Import("offbook.subjects.clis.clients", "from offbook.subjects.process import Process"),
    Import("offbook.subjects.clis.pi", "from offbook.subjects.rpc_process import RpcProcess"),
    Import("offbook.subjects.session.session", "from offbook.subjects.mock_tools import MockTool"),
    Import("offbook.subjects.session.session", "from offbook.subjects.mock_tools import UI"),
    Import("offbook.subjects.frameworks.langgraph", "from offbook.subjects import tool_watch"),
    Import("offbook.subjects.tool_watch", "from offbook.subjects import tool_values"),
    Import("offbook.subjects.tool_watch", "from offbook.subjects import faulty_results"),
    Import("offbook.subjects.clis.pi", "from offbook.subjects.clis.cli import Cli"),
    Import("offbook.subjects.frameworks.langgraph", "from ..frameworks.framework import Framework"),
    Import("offbook.reports.json_report", "from offbook.reports.report import Report"),
    Import("offbook.reports.styled_lines", "import rich.tree"),
    Import("offbook.reports.terminal", "from offbook.reports import styled_lines"),
    Import("offbook.exchange.dialects.gemini", "from .dialect import Dialect"),
    Import("offbook.exchange.dialects.mistral.mistral_dialect", "from ..chat import chat_dialect"),
    Import("offbook.trace.events", "import msgspec"),
    Import("offbook.trace.reader", "from offbook.errors import OffbookError"),
    Import("pytest_offbook.plugin", "from offbook.surfaces import fixtures"),
]

PLANTED = [
    # the contract that must break, then the lines that must break it
    ("layers", [Import("offbook.trace.events", "from offbook.runs import api")]),
    ("layers", [Import("offbook.errors", "import offbook.determinism.run_context")]),
    ("layers", [Import("offbook.exchange.model", "from offbook.trace.events import Event")]),
    ("layers", [Import("offbook.runs.api", "from offbook.surfaces.cli import main")]),
    ("layers", [Import("offbook.runs.api", "from offbook.testing import suite")]),
    ("layers", [Import("offbook.checks.assertion", "from offbook.sources import playbook")]),
    ("layers", [Import("offbook.sources.playbook", "from ..subjects.subject import Subject")]),
    (
        "layers",
        [Import("offbook.reports.json_report", "def late():\n    import offbook.checks.assertion")],
    ),
    ("capabilities", [Import("offbook.goldens.goldens_cli", "from offbook.workflows import run")]),
    ("capabilities", [Import("offbook.workflows.hat_loop", "import offbook.goldens.goldens_cli")]),
    ("capabilities", [Import("offbook.workflows.hat_loop", "from offbook.surfaces import cli")]),
    ("capabilities", [Import("offbook.runs.api", "from offbook.goldens import Component")]),
    ("capabilities", [Import("offbook.trace.reader", "def late():\n    import offbook.workflows")]),
    ("capabilities", [Import("offbook.utils", "")]),
    (
        "capabilities",
        [Import("offbook.surfaces.capabilities", 'CAPABILITIES = ("goldens", "no_such_folder")')],
    ),
    ("plugin-above", [Import("offbook.runs.api", "import pytest_offbook.plugin")]),
    ("plugin-opens-surfaces", [Import("pytest_offbook.plugin", "import offbook.runs.api")]),
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
            Import("offbook.subjects.session.tools", "from .session import Session"),
            Import("offbook.subjects.session.session", "from .tools import Tool"),
        ],
    ),
    ("subjects", [Import("offbook.subjects.session.session", "from ..clis import clients")]),
    ("subjects", [Import("offbook.subjects.process", "from offbook.subjects import session")]),
    ("clis", [Import("offbook.subjects.clis.clients", "from offbook.subjects.clis import pi")]),
    ("reports", [Import("offbook.reports.json_report", "from offbook.reports import terminal")]),
    ("dialects", [Import("offbook.exchange.dialects.gemini", "from . import chat")]),
    (
        "frameworks",
        [Import("offbook.subjects.frameworks.langgraph", "from .pydantic_ai import adapt")],
    ),
    ("facade", [Import("offbook.sources.playbook", "from offbook import when")]),
    ("facade", [Import("offbook.runs.api", "import offbook")]),
    ("facade", [Import("offbook.runs.api", "from offbook.types import Skill")]),
    ("facade", [Import("pytest_offbook.plugin", "import offbook")]),
    ("doors", [Import("offbook.runs.api", "import click")]),
    ("doors", [Import("offbook.trace.reader", "import a_package_without_a_door")]),
    ("doors", [Import("pytest_offbook.plugin", "from rich.tree import Tree")]),
]

EXEMPTED = ["plugin-opens-surfaces", "subjects", "clis", "frameworks", "reports", "dialects"]


# The packages are found by their path, so those that the process has imported are forgotten.
LINT = """
import sys
for name in [name for name in sys.modules if name.split(".")[0] in ("offbook", "pytest_offbook")]:
    del sys.modules[name]
from importlinter.cli import lint_imports_command
lint_imports_command()
"""


class LintImports(Protocol):
    """Check the packages of a folder with the contracts of the project."""

    def __call__(self, packages: Path, *options: str) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def lint_imports(root: Path, unwatched: dict[str, str]) -> LintImports:
    def lint(packages: Path, *options: str) -> subprocess.CompletedProcess[str]:
        search = os.pathsep.join([str(packages), str(root)])
        return run_python(
            *("-c", LINT, "--no-logo", "--no-cache", *options),
            cwd=root,
            env={**unwatched, "PYTHONPATH": search, "COLUMNS": "200"},
            imports=["importlinter.cli", "importlinter.contracts.layers"],
        )

    return lint


def plant(packages: Path, imports: list[Import]) -> None:
    """Write the skeleton: empty modules, except for the planted lines."""
    bodies = dict.fromkeys(SKELETON, "")
    for module, line in imports:
        bodies[module] = f"{bodies.get(module, '')}{line}\n"
    for module, body in bodies.items():
        path = packages.joinpath(*module.split("."))
        is_folder = any(other.startswith(f"{module}.") for other in bodies)
        file = path / "__init__.py" if is_folder else path.with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(body)


def test_the_project_keeps_its_contracts(lint_imports: LintImports, root: Path):
    result = lint_imports(root / "src")
    assert result.returncode == 0, result.stdout + result.stderr


def test_allowed_imports_keep_the_contracts(lint_imports: LintImports, tmp_path: Path):
    plant(tmp_path, ALLOWED)
    result = lint_imports(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_contract_has_a_planted_violation(root: Path):
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    contracts = {contract["id"] for contract in settings["tool"]["importlinter"]["contracts"]}
    assert contracts == {contract for contract, _ in PLANTED}


@pytest.mark.parametrize("contract, imports", PLANTED)
def test_a_planted_violation_breaks_its_contract(
    lint_imports: LintImports, tmp_path: Path, contract: str, imports: list[Import]
):
    plant(tmp_path, [*ALLOWED, *imports])
    result = lint_imports(tmp_path, "--contract", contract)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "Contracts: 0 kept, 1 broken." in result.stdout


@pytest.mark.parametrize("contract", EXEMPTED)
def test_an_exemption_that_matches_no_import_fails(
    lint_imports: LintImports, tmp_path: Path, contract: str
):
    plant(tmp_path, [entry for entry in ALLOWED if "import" not in entry.line])
    result = lint_imports(tmp_path, "--contract", contract)
    assert result.returncode == 1
    assert "No matches for ignored import" in result.stdout + result.stderr


def test_every_contract_with_exemptions_is_checked_for_unmatched_ones(root: Path):
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    assert [c["id"] for c in contracts if "ignore_imports" in c] == EXEMPTED
