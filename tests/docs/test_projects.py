"""The example projects pass, by the steps of their own workflows; a broken agent fails them."""

import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "examples.py"))
PROJECTS: list[str] = EXAMPLES["list_projects"]()
# A change of each agent that its workflow has to notice, and the program that it needs.
BROKEN = {
    "node-agent": ("agent.mjs", "seen.has(order) ? `refunded", "true ? `returned", "node"),
    "researcher": ("researcher.py", "LIBRARY.get(name, ", "str((name, ", ""),
    "support": ("support.py", "if order not in ctx.deps.seen:", "if False:", ""),
}


def run_project(name: str, folder: Path) -> int:
    _, steps = EXAMPLES["read_steps"](name)
    return EXAMPLES["run_steps"](steps, folder / name, Path(sys.executable).parent)


def skip_without(program: str) -> None:
    if program and shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("name", PROJECTS)
def test_a_project_passes_by_its_own_workflow(name: str, tmp_path: Path):
    skip_without(BROKEN[name][3])
    EXAMPLES["copy_project"](name, tmp_path)
    assert run_project(name, tmp_path) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_agent_fails_the_workflow_of_its_project(name: str, tmp_path: Path):
    file, working, broken, program = BROKEN[name]
    skip_without(program)
    agent = EXAMPLES["copy_project"](name, tmp_path) / file
    text = agent.read_text()
    assert text.count(working) == 1
    agent.write_text(text.replace(working, broken))
    assert run_project(name, tmp_path) != 0


def test_every_project_is_on_the_page():
    page = (ROOT / "examples" / "projects" / "README.md").read_text()
    assert [name for name in PROJECTS if f"| [{name}](" not in page] == []
    assert BROKEN.keys() == {*PROJECTS}
