"""The workflow file of the guide for CI: it is valid, its commands run, its artefacts exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from offbook.files import parse_yaml
from tests.workflow_commands import read_commands

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "ci.md"
TESTS = """
from offbook import say, when

def test_passes(offbook):
    offbook.session().run(when("Hi", [say("Hello.")]))

def test_fails(offbook):
    offbook.session().run(when("Hi", [say("Hello."), say("never")]))
"""


@pytest.fixture(scope="module")
def steps() -> list[dict[str, Any]]:
    """The steps of the only workflow in the guide."""
    [text] = re.findall(r"```yaml\n(name: .*?)```", GUIDE.read_text(), re.DOTALL)
    workflow = parse_yaml(text, GUIDE)
    assert workflow["on"] == ["push", "pull_request"]
    [job] = workflow["jobs"].values()
    return job["steps"]


def test_the_commands_leave_what_is_uploaded(steps: list[dict[str, Any]], tmp_path: Path):
    (tmp_path / "test_shop.py").write_text(TESTS)
    commands = [step["run"] for step in steps if "run" in step]
    installs, *rest = commands
    assert installs.startswith("pip install ")
    summary = tmp_path / "summary.md"
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "CI": "true",
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(tmp_path),
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    ended = [
        subprocess.run(
            ["/bin/bash", "-e", "-c", command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        for command in rest
    ]
    assert [each.returncode for each in ended] == [1]
    [annotation] = read_commands(ended[0].stdout)
    assert annotation.properties["file"] == "test_shop.py"
    assert (
        int(annotation.properties["line"])
        == TESTS.splitlines().index(
            '    offbook.session().run(when("Hi", [say("Hello."), say("never")]))'
        )
        + 1
    )
    assert "1 failed, 1 passed" in summary.read_text()
    [upload] = [step for step in steps if "upload-artifact" in step.get("uses", "")]
    assert upload["if"] == "always()"  # a failed run is the one that somebody looks at
    paths = [tmp_path / line for line in upload["with"]["path"].splitlines()]
    assert [path.exists() for path in paths] == [True] * len(paths)
    assert paths[0].read_text().startswith("<!doctype html>")
    # Actions leaves hidden folders out, unless it is told not to.
    assert upload["with"]["include-hidden-files"] is True
