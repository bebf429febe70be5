"""The example projects pass, by the steps of their own workflows; a broken agent fails them.

Their steps run pytest and offbook as forks that have imported the framework (tests/forked.py);
`./dev examples` runs them with the commands of an installed wheel.
"""

import os
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.examples import KEPT
from tests.forked import PYTHON, forked_command

ROOT = Path(__file__).parents[2]
EXAMPLES: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "examples.py"))
PROJECTS: list[str] = EXAMPLES["list_projects"]()
IMPORTS = {
    "coder": [],
    "mcp-server": ["mcp.server.mcpserver"],
    "node-agent": [],
    "rag": ["fastapi", "openai"],
    "researcher": ["langchain.agents", "langchain_openai"],
    "support": ["pydantic_ai.models.openai"],
}
# A change of each agent that its workflow has to notice.
BROKEN = {
    "coder": ("repository/guard.py", "sys.exit(2)", "sys.exit(0)"),
    "mcp-server": ("notes_server.py", "if path.exists():", "if False:"),
    "node-agent": ("agent.mjs", "seen.has(order) ? `refunded", "true ? `returned"),
    "rag": ("service.py", "if not sources or not pages.keys() >= set(sources):", "if False:"),
    "researcher": ("researcher.py", "LIBRARY.get(name, ", "str((name, "),
    "support": ("support.py", "if order not in ctx.deps.seen:", "if False:"),
}


def run_project(name: str, folder: Path, *pytest_options: str) -> int:
    programs = folder / "programs"
    programs.mkdir()

    def write_program(module: str, script: str) -> Path:
        path = programs / module
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    fork = shlex.join(forked_command(imports=IMPORTS[name]))
    # A script that the project starts by sys.executable is a fork, too.
    real = f'case "$1" in -*) exec {shlex.quote(sys.executable)} "$@" ;; esac'
    python = write_program("python", f'{real}\nexec {fork} "$@"')
    # The packages of a project bring none of the plugins of this environment.
    plugins = {name: os.environ[name] for name in KEPT}
    variables = shlex.join(f"{name}={value}" for name, value in {**plugins, PYTHON: python}.items())
    for module, *options in (["offbook"], ["pytest", *pytest_options]):
        words = shlex.join([module, *options])
        write_program(module, f'export {variables}\nexec {fork} -m {words} "$@"')
    _, steps = EXAMPLES["read_steps"](name)
    return EXAMPLES["run_steps"](steps, folder / name, programs)


def skip_without_program(name: str) -> None:
    if reason := EXAMPLES["find_missing_program"](name):
        pytest.skip(reason)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROJECTS)
def test_a_project_passes_by_its_own_workflow(name: str, tmp_path: Path):
    skip_without_program(name)
    EXAMPLES["copy_project"](name, tmp_path)
    assert run_project(name, tmp_path) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_agent_fails_the_workflow_of_its_project(name: str, tmp_path: Path):
    file, working, broken = BROKEN[name]
    skip_without_program(name)
    agent = EXAMPLES["copy_project"](name, tmp_path) / file
    text = agent.read_text()
    assert text.count(working) == 1
    agent.write_text(text.replace(working, broken))
    assert run_project(name, tmp_path, "--exitfirst") != 0


def test_every_project_is_on_the_page():
    page = (ROOT / "examples" / "projects" / "README.md").read_text()
    assert [name for name in PROJECTS if f"| [{name}](" not in page] == []
    assert BROKEN.keys() == {*PROJECTS}
