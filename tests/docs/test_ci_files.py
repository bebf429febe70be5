"""The files for CI are valid, their steps run, and they are red for what they must refuse.

The action, the GitLab job, the workflows of the guide and the hooks of pre-commit run as their
services would run them: the same shell, the same variables, in a project of a user.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from offbook.files import dump_yaml, parse_yaml
from tests.docs.examples import KEPT
from tests.workflow_commands import read_commands

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "ci.md"
TESTS = """
from offbook import say, when

def test_passes(offbook):
    run = offbook.session().run(when("Hi", [say("Hello.")]))
    assert len(run.requests) == 1

def test_fails(offbook):
    run = offbook.session().run(when("Hi", [say("Hello."), say("never")]))
    assert len(run.requests) == 2
"""
FAILING_LINE = TESTS.splitlines().index(
    '    run = offbook.session().run(when("Hi", [say("Hello."), say("never")]))'
)
CASSETTE = """\
format: offbook.cassette
version: 1
interactions:
  - id: 1
    request:
      prompt_hash: sha256:...
      prompt: Greet me
    response:
      output: {output}
"""
SECRET = "sk-proj-" + "Zk3vQ9xLm2Rt7Wp5Yb8Nc4Jd6Hf1Gs0A"


def read(path: str) -> Any:
    return parse_yaml((ROOT / path).read_text(), ROOT / path)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of a user: a test that passes, one that fails, and a cassette."""
    folder = tmp_path / "project"
    (folder / "cassettes").mkdir(parents=True)
    (folder / "test_shop.py").write_text(TESTS)
    (folder / "cassettes/greet.yaml").write_text(CASSETTE.format(output="Hello."))
    return folder


def run_shell(project: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub runs `shell: bash`."""
    return subprocess.run(
        ["/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=project,
        env={
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(project.parent),
            "CI": "true",
            **{name: os.environ[name] for name in KEPT},
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def github_variables(project: Path) -> dict[str, str]:
    summary = project.parent / "summary.md"
    return {
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(project),
        "GITHUB_STEP_SUMMARY": str(summary),
    }


def assert_github_result(project: Path, output: str, uploaded: str) -> None:
    """Two tests, one of which failed: an annotation, a summary and the files of the artefact."""
    [annotation] = read_commands(output)
    assert annotation.properties["file"] == "test_shop.py"
    assert int(annotation.properties["line"]) == FAILING_LINE + 1
    assert "1 failed, 1 passed" in (project.parent / "summary.md").read_text()
    page, traces = [project / line for line in uploaded.splitlines()]
    assert page.read_text().startswith("<!doctype html>")
    assert any(traces.iterdir())


# --- The action


class Action(NamedTuple):
    """The action with the inputs of a step: GitHub's expressions are replaced by their values."""

    inputs: dict[str, str]
    steps: list[dict[str, Any]]

    def fill(self, text: str) -> str:
        return re.sub(r"\$\{\{ inputs\.([a-z]+) \}\}", lambda m: self.inputs[m[1]], text)

    def runs(self, step: dict[str, Any]) -> bool:
        condition = step.get("if", "always()")
        if condition == "always()":
            return True
        match = re.fullmatch(r"inputs\.([a-z]+) != ''", condition)
        assert match is not None, f"unknown condition: {condition}"
        return bool(self.inputs[match[1]])


def use_action(**inputs: str) -> Action:
    action = read("action.yml")
    declared = {name: each["default"] for name, each in action["inputs"].items()}
    assert inputs.keys() <= declared.keys()
    assert action["runs"]["using"] == "composite"
    return Action(declared | inputs, action["runs"]["steps"])


def run_action(project: Path, action: Action) -> list[tuple[str, int, str]]:
    """Run the steps until one fails; return their names, exit codes and output."""
    ended: list[tuple[str, int, str]] = []
    for step in action.steps:
        if "run" not in step or not action.runs(step):
            continue
        assert step["shell"] == "bash"
        # An expression in the script would be a way to inject commands.
        assert "${{" not in step["run"]
        variables = {name: action.fill(value) for name, value in step["env"].items()}
        result = run_shell(project, step["run"], **variables, **github_variables(project))
        ended.append((step["name"], result.returncode, result.stdout))
        if result.returncode:
            break
    return ended


def test_the_action_annotates_the_failure_and_keeps_the_page(project: Path):
    action = use_action(install="", cassettes="cassettes")
    *_, (name, code, output) = steps = run_action(project, action)
    assert [step[:2] for step in steps] == [("Check the cassettes", 0), ("Run the tests", 1)]
    assert (name, code) == ("Run the tests", 1)
    [upload] = [step for step in action.steps if "uses" in step]
    assert upload["if"] == "always()"  # a failed run is the one that somebody looks at
    assert upload["with"]["include-hidden-files"] is True  # .offbook is left out otherwise
    assert_github_result(project, output, action.fill(upload["with"]["path"]))


def test_the_arguments_of_the_action_reach_pytest_and_are_no_commands(project: Path):
    action = use_action(install="", args="-k passes -q -p $(touch${IFS}hacked)")
    [(_, code, output)] = run_action(project, action)
    assert code != 0
    assert not (project / "hacked").exists()
    [(_, code, output)] = run_action(project, use_action(install="", args="-k passes -q"))
    assert code == 0
    assert "1 passed, 1 deselected" in output


def test_the_action_stops_at_a_cassette_with_a_secret(project: Path):
    (project / "cassettes/greet.yaml").write_text(CASSETTE.format(output=SECRET))
    [(name, code, output)] = run_action(project, use_action(install="", cassettes="."))
    assert (name, code) == ("Check the cassettes", 1)
    assert "looks like a secret" in output
    assert SECRET not in output


def test_the_action_stops_at_a_test_that_proves_nothing(project: Path):
    (project / "test_shop.py").write_text("def test_shop(offbook):\n    offbook.session()\n")
    [(name, code, output)] = run_action(project, use_action(install="", lint="."))
    assert (name, code) == ("Lint the tests", 1)
    assert "OB101" in output


def test_the_guide_lists_the_inputs_of_the_action_with_their_defaults():
    text = GUIDE.read_text()
    for name, declared in read("action.yml")["inputs"].items():
        default = f"`{declared['default']}`" if declared["default"] else "none"
        assert re.search(rf"^\| `{name}` \|.*\| {re.escape(default)} \|$", text, re.MULTILINE)
    [steps] = [job["steps"] for job in workflows()[0]["jobs"].values()]
    assert steps[-1]["with"].keys() <= read("action.yml")["inputs"].keys()


# --- The workflows of the guide


def workflows() -> list[dict[str, Any]]:
    texts = re.findall(r"```yaml\n(name: .*?)```", GUIDE.read_text(), re.DOTALL)
    return [parse_yaml(text, GUIDE) for text in texts]


def test_the_steps_by_hand_leave_what_is_uploaded(project: Path):
    _, by_hand = workflows()
    assert by_hand["on"] == ["push", "pull_request"]
    [job] = by_hand["jobs"].values()
    installs, tests = [step["run"] for step in job["steps"] if "run" in step]
    assert installs.startswith("pip install ")
    result = run_shell(project, tests, **github_variables(project))
    assert result.returncode == 1
    [upload] = [step for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
    assert upload["if"] == "always()"
    assert upload["with"]["include-hidden-files"] is True
    assert_github_result(project, result.stdout, upload["with"]["path"])


# --- GitLab


def test_the_job_of_gitlab_leaves_its_reports_and_artefacts(project: Path):
    template = read("templates/gitlab-ci.yml")
    job = template["offbook"]
    installs, *script = job["script"]
    assert installs.endswith(" $OFFBOOK_INSTALL")
    variables = template["variables"] | {"OFFBOOK_CASSETTES": "cassettes"}
    result = run_shell(project, "\n".join(script), **variables)
    assert result.returncode == 1, result.stderr
    assert "1 cassette checked" in result.stdout
    artifacts = job["artifacts"]
    assert artifacts["when"] == "always"
    files = [*artifacts["paths"], artifacts["reports"]["junit"]]
    assert [name for name in files if not (project / name).exists()] == []


def test_the_job_of_gitlab_stops_at_a_cassette_with_a_secret(project: Path):
    (project / "cassettes/greet.yaml").write_text(CASSETTE.format(output=SECRET))
    template = read("templates/gitlab-ci.yml")
    _, *script = template["offbook"]["script"]
    variables = template["variables"] | {"OFFBOOK_CASSETTES": "cassettes"}
    result = run_shell(project, "\n".join(script), **variables)
    assert result.returncode == 1
    assert "collected" not in result.stdout


def test_the_guide_has_the_whole_job_of_gitlab():
    assert (ROOT / "templates/gitlab-ci.yml").read_text() in GUIDE.read_text()


def test_the_guide_sets_variables_that_the_job_of_gitlab_has():
    [text] = re.findall(r"```yaml\n(include:.*?)```", GUIDE.read_text(), re.DOTALL)
    used = parse_yaml(text, GUIDE)["variables"]
    assert used.keys() <= read("templates/gitlab-ci.yml")["variables"].keys()


# --- pre-commit


def run_hooks(project: Path) -> subprocess.CompletedProcess[str]:
    """Run all hooks by pre-commit, with the commands of this environment."""
    hooks = [hook | {"language": "system"} for hook in read(".pre-commit-hooks.yaml")]
    for hook in hooks:
        if hook["id"] == "offbook-lint":
            hook["args"] = ["."]  # as a user does whose tests are in another folder
    (project / ".pre-commit-config.yaml").write_text(
        dump_yaml({"repos": [{"repo": "local", "hooks": hooks}]})
    )
    return run_shell(
        project, "git init -q && git add -A && python -m pre_commit run --all-files --verbose"
    )


@pytest.mark.skipif(find_spec("pre_commit") is None, reason="pre-commit is not installed")
class TestHooks:
    """The hooks, run by pre-commit itself."""

    def test_pass_a_project_without_faults(self, project: Path):
        result = run_hooks(project)
        assert result.returncode == 0, result.stdout
        assert "1 cassette checked" in result.stdout
        assert "(no files to check)" not in result.stdout

    def test_refuse_a_secret_in_a_cassette_and_a_test_that_proves_nothing(self, project: Path):
        (project / "cassettes/greet.yaml").write_text(CASSETTE.format(output=SECRET))
        (project / "test_more.py").write_text("def test_more(offbook):\n    offbook.session()\n")
        result = run_hooks(project)
        assert result.returncode == 1
        assert "greet.yaml:9: looks like a secret" in result.stdout
        assert "test_more.py:1:1: OB101" in result.stdout
        assert SECRET not in result.stdout

    def test_are_listed_in_the_guide(self):
        [text] = re.findall(r"```yaml\n(repos:.*?)```", GUIDE.read_text(), re.DOTALL)
        [repository] = parse_yaml(text, GUIDE)["repos"]
        ids = [hook["id"] for hook in read(".pre-commit-hooks.yaml")]
        assert [hook["id"] for hook in repository["hooks"]] == ids


# --- The workflows of this repository


@pytest.mark.parametrize("name", ["test", "release"])
def test_a_workflow_runs_commands_that_exist(name: str):
    jobs = read(f".github/workflows/{name}.yml")["jobs"]
    usage = (ROOT / "dev").read_text()
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    ours = [command.split() for command in commands if command.startswith("./dev ")]
    assert ours
    for _, command, *_ in ours:
        assert f"\n  {command} " in usage
    for step in (step for job in jobs.values() for step in job["steps"]):
        assert ("run" in step) is not ("uses" in step)
        assert re.fullmatch(r"[\w./-]+@[\w./-]+", step.get("uses", "a@b"))


def test_only_the_job_that_publishes_may_ask_for_an_identity_beside_the_one_that_attests():
    jobs = read(".github/workflows/release.yml")["jobs"]
    asking = {
        name for name, job in jobs.items() if job.get("permissions", {}).get("id-token") == "write"
    }
    assert asking == {"attest", "publish"}
    assert jobs["publish"]["needs"] == "attest"
    assert jobs["attest"]["needs"] == "build"
    assert [s for s in jobs["publish"]["steps"] if "run" in s] == []  # no code of ours beside it
