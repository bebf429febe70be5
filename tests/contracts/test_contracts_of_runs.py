"""Contracts inferred from the trace of a good agent fail the run of a broken one.

`offbook run`, a loop and a scenario are held to the contracts that the project names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offbook.workflows import Scenario, Workspaces, read_scenario, run, run_scenario, setup
from tests.forked import forked_command
from tests.surfaces.conftest import Offbook, offbook_command, workspaces

__all__ = ["offbook_command", "workspaces"]

AGENT = """
import json, os, sys, urllib.request

body = {"model": "m", "messages": [{"role": "user", "content": "Go"}], **json.loads(sys.argv[1])}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode())) as answer:
    print(json.load(answer)["choices"][0]["message"]["content"])
"""
GOOD = '<event topic="build.done">{"status": "passed", "files": 3}</event>'
CONFIG: dict[str, Any] = {
    "hats": {
        "builder": {"triggers": ["task.start"], "publishes": ["build.done"]},
        "reviewer": {"triggers": ["build.done"], "publishes": ["review.done"]},
    },
}
BROKEN = {
    "a field of another type": (GOOD.replace("3", '"three"'), ".payload.files"),
    "a missing field": (GOOD.replace('"status": "passed", ', ""), ".payload"),
    "an unknown topic": (GOOD.replace("build.done", "build.don"), "did you mean 'build.done'?"),
}


def hold_project_to(contracts: str) -> None:
    """Name a file of contracts in the settings of the current folder."""
    Path("pyproject.toml").write_text(f'[tool]\noffbook.contracts = "{contracts}"\n')


@pytest.mark.parametrize(
    "parameters, code, message",
    [
        ('{"temperature": 1, "seed": 7}', 0, ""),
        ('{"temperature": "warm"}', 1, "model.request at .parameters.temperature"),
        ("{}", 1, "model.request at .parameters"),
    ],
)
def test_a_command_is_held_to_the_contracts_of_an_earlier_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    offbook_command: Offbook,
    parameters: str,
    code: int,
    message: str,
):
    monkeypatch.chdir(tmp_path)
    Path("agent.py").write_text(AGENT)
    Path("go.yaml").write_text("- when: Go\n  do:\n    - say: Done.\n")
    model = ("run", "--script", "go.yaml")
    agent = ("--", *forked_command("agent.py"))
    assert offbook_command(*model, "--trace", "t.jsonl", *agent, '{"temperature": 1}').code == 0
    inferred = offbook_command(
        "contract", "--infer", "t.jsonl", "--event", "model.request", "--out", "contracts.json"
    )
    assert inferred.out == "wrote 1 contracts to contracts.json\n"
    (tmp_path / "next").mkdir()
    hold_project_to("contracts.json")
    monkeypatch.chdir(tmp_path / "next")  # contracts are read once for each folder
    result = offbook_command(
        "run", "--script", "../go.yaml", "--", *forked_command("../agent.py", parameters)
    )
    assert (result.code, message in result.err) == (code, True), result.err


@pytest.fixture
def inferred(
    workspaces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offbook_command: Offbook
) -> None:
    """A project held to the contracts inferred from a loop of a good agent."""
    (tmp_path / "first").mkdir()
    monkeypatch.chdir(tmp_path / "first")
    setup("first", config=CONFIG)
    assert run("first", "Go", mock_responses=[GOOD, "LOOP_COMPLETE"]).exit_code == 0
    trace = Workspaces().find("first").recorded_session
    (tmp_path / "second").mkdir()
    monkeypatch.chdir(tmp_path / "second")
    assert offbook_command("contract", "--infer", trace, "--out", "contracts.json").code == 0
    hold_project_to("contracts.json")


@pytest.mark.usefixtures("inferred")
def test_a_loop_that_keeps_its_contracts_passes():
    setup("flow", config=CONFIG)
    result = run("flow", "Again", mock_responses=[GOOD.replace("3", "5"), "LOOP_COMPLETE"])
    assert (result.exit_code, result.error) == (0, "")


@pytest.mark.usefixtures("inferred")
@pytest.mark.parametrize("name", BROKEN)
def test_a_loop_that_breaks_a_contract_fails(name: str):
    output, message = BROKEN[name]
    setup("flow", config=CONFIG)
    result = run("flow", "Go", mock_responses=[output, "LOOP_COMPLETE"])
    assert message in result.error
    assert "contracts.json" in result.error


SCENARIO = """\
run:
  task: Go
  mock_responses:
    - output: |
        {output}
        LOOP_COMPLETE
assert:
  - type: exit_code
    expected: 0
"""


def write_scenario(output: str) -> Scenario:
    path = Path("one.yaml")
    path.write_text(SCENARIO.format(output=output))
    return read_scenario(path)


@pytest.mark.usefixtures("inferred")
@pytest.mark.parametrize(
    "output, message",
    [(GOOD, ""), *BROKEN.values()],
    ids=["the agreed payload", *BROKEN],
)
async def test_a_scenario_is_held_to_the_contracts_of_the_project(output: str, message: str):
    result = await run_scenario(write_scenario(output))
    assert (result.passed, message in result.error) == (not message, True), result.error
