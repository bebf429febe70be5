"""Run the example projects from the built wheel: ./dev examples [NAME…].

For each project, an environment is made, the wheel is installed, and the steps of the project's own
workflow run in a copy of it.
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


def list_projects() -> list[str]:
    """Return the names of the projects: the folders with a workflow."""
    return sorted(path.name for path in PROJECTS.iterdir() if (path / WORKFLOW).is_file())


def read_steps(name: str) -> tuple[str, list[str]]:
    """Return the step of a project's workflow that installs, and the others."""
    path = PROJECTS / name / WORKFLOW
    workflow: Any = parse_yaml(path.read_text(encoding="utf-8"), path)
    [job] = workflow["jobs"].values()
    install, *steps = [step["run"] for step in job["steps"] if "run" in step]
    if not install.startswith("pip install ") or not steps:
        raise SystemExit(f"examples: {path}: the first step installs, and others follow")
    return install, steps


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


def main() -> int:
    """Run the named projects, or all."""
    names = sys.argv[1:] or list_projects()
    if unknown := sorted({*names} - {*list_projects()}):
        print(f"examples: no such project: {', '.join(unknown)}", file=sys.stderr)
        return 2
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="offbook-examples-") as temporary:
        folder = Path(temporary)
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(build, cwd=ROOT, check=True)  # noqa: S603 - our own interpreter
        [wheel] = folder.glob("*.whl")
        for name in names:
            print(f"== {name}", flush=True)
            install, steps = read_steps(name)
            environment = folder / f"environment-{name}"
            subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)  # noqa: S603 - as above
            # The wheel in place of the package of the index.
            words = [str(wheel) if word == "offbook" else word for word in install.split()]
            project = copy_project(name, folder)
            if run_steps([" ".join(words), *steps], project, environment / "bin"):
                failed.append(name)
    print(f"examples: failed: {', '.join(failed)}" if failed else f"examples: {len(names)} passed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
