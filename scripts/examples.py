"""Run the example projects from the built wheel: ./dev examples [NAME…].

For each project, an environment is made, the wheel is installed, and the steps of the project's own
workflow run in a copy of it. PYTHON=/path/to/python selects the interpreter of the environments.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from offbook.files import parse_yaml

ROOT = Path(__file__).resolve().parents[1]
PROJECTS = ROOT / "examples" / "projects"
WORKFLOW = Path(".github/workflows/test.yml")
# The program that a project runs and its packages do not bring, with the command that installs it.
PROGRAMS = {
    "coder": ("claude", "npm install --global @anthropic-ai/claude-code@2.1.325"),
    "node-agent": ("node", "apt-get install nodejs"),
}


def list_projects() -> list[str]:
    """Return the names of the projects: the folders with a workflow."""
    return sorted(path.name for path in PROJECTS.iterdir() if (path / WORKFLOW).is_file())


def read_steps(name: str) -> tuple[str, list[str]]:
    """Return the step of a project's workflow that installs its packages, and those that test.

    A step that installs the program of a project is left out: no program is installed here.
    """
    path = PROJECTS / name / WORKFLOW
    workflow: Any = parse_yaml(path.read_text(encoding="utf-8"), path)
    [job] = workflow["jobs"].values()
    install, *steps = [step["run"] for step in job["steps"] if "run" in step]
    steps = [step for step in steps if step not in PROGRAMS.get(name, ())]
    if not install.startswith("pip install ") or not steps:
        raise SystemExit(f"examples: {path}: the first step installs, and others follow")
    return install, steps


def find_missing_program(name: str) -> str:
    """Return why a project cannot run here: its program is not installed. Empty if it can."""
    program, install = PROGRAMS.get(name, ("", ""))
    if not program or shutil.which(program):
        return ""
    return f"{program} is not installed; fix: {install}"


def run_steps(steps: list[str], project: Path, programs: Path) -> int:
    """Run the steps until one fails, and return its exit code."""
    environment = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(project.parent),
        "CI": "true",
    }
    for step in steps:
        print(f"$ {step}", flush=True)
        command = ["/bin/bash", "-eo", "pipefail", "-c", step]
        code = subprocess.run(command, cwd=project, env=environment, check=False).returncode  # noqa: S603 - a step of our own
        if code:
            return code
    return 0


def copy_project(name: str, folder: Path) -> Path:
    """Copy a project without what runs have left in it."""
    left = shutil.ignore_patterns("__pycache__", ".offbook", "report.html")
    return Path(shutil.copytree(PROJECTS / name, folder / name, ignore=left))


def run_project(name: str, folder: Path, wheel: Path) -> int:
    """Run a project from the wheel in a new environment, and return the exit code."""
    install, steps = read_steps(name)
    environment = folder / f"environment-{name}"
    python = os.environ.get("PYTHON") or sys.executable
    subprocess.run([python, "-m", "venv", str(environment)], check=True)  # noqa: S603 - an interpreter of this machine
    # The wheel in place of the package of the index.
    words = [str(wheel) if word == "offbook" else word for word in install.split()]
    return run_steps([" ".join(words), *steps], copy_project(name, folder), environment / "bin")


def main() -> int:
    """Run the named projects, or all. A project that is named and cannot run fails."""
    projects = list_projects()
    if unknown := sorted({*sys.argv[1:]} - {*projects}):
        known = ", ".join(projects)
        print(
            f"examples: no such project: {', '.join(unknown)}; there are {known}", file=sys.stderr
        )
        return 2
    failed: list[str] = []
    missing = {name: find_missing_program(name) for name in sys.argv[1:] or projects}
    with tempfile.TemporaryDirectory(prefix="offbook-examples-") as temporary:
        folder = Path(temporary)
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(build, cwd=ROOT, check=True)  # noqa: S603 - our own interpreter
        [wheel] = folder.glob("*.whl")
        for name, reason in missing.items():
            print(f"== {name}{reason and f': not run: {reason}'}", flush=True)
            if not reason and run_project(name, folder, wheel):
                failed.append(name)
    left_out = [name for name, reason in missing.items() if reason]
    counts = {
        "passed": [name for name in missing if name not in (*failed, *left_out)],
        "failed": failed,
        "not run": left_out,
    }
    parts = [f"{len(names)} {word} ({', '.join(names)})" for word, names in counts.items() if names]
    print(f"examples: {', '.join(parts)}")
    return int(bool(failed) or bool(left_out and sys.argv[1:]) or not counts["passed"])


if __name__ == "__main__":
    sys.exit(main())
