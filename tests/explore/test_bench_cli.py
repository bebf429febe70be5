"""`offbook bench` measures functions, scenario files and commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forked import run_python

SHOP = """
from offbook import call, say, session, when

def once(extra=()):
    with session() as rehearsal:
        steps = [call("bash", {"command": "true"}) for _ in range(1 + len(extra))]
        rehearsal.run(when("Go", [*steps, say("Done.")]))

def twice():
    once(extra=[1])
"""
AGENT = """
import json, os, urllib.request

def send(body):
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    head = {"content-type": "application/json", "authorization": "Bearer x"}
    request = urllib.request.Request(url, json.dumps(body).encode(), head)
    return json.load(urllib.request.urlopen(request))

send({"model": "gpt-5-mini", "messages": [{"role": "user", "content": "Go"}]})
"""
PLAYBOOK = "- when: Go\n  do:\n    - say: Done.\n"


def bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "offbook", "bench", *arguments, cwd=folder, forks=True)


@pytest.mark.slow
def test_one_request_more_than_the_baseline_fails_the_gate(tmp_path: Path):
    (tmp_path / "shop.py").write_text(SHOP)
    saved = bench(tmp_path, "shop:once", "--repeat", "8", "--save", "b.json")
    assert saved.returncode == 0, saved.stderr
    assert "requests       2  (2 to 2)" in saved.stdout
    assert "cost usd       no data" in saved.stdout
    gate = bench(tmp_path, "shop:twice", "--repeat", "8", "--baseline", "b.json", "--json")
    assert gate.returncode == 1, gate.stderr
    result = json.loads(gate.stdout)
    assert not result["passed"]
    [requests] = [c for c in result["compared"] if c["metric"] == "requests"]
    assert (requests["before"], requests["after"], requests["worse"]) == (2, 3, True)


@pytest.mark.slow
def test_a_command_is_measured_with_its_model(tmp_path: Path):
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "shop.yaml").write_text(PLAYBOOK)
    command = ["--script", "shop.yaml", "--json", "--", sys.executable, "agent.py"]
    result = bench(tmp_path, "--repeat", "1", *command)
    assert result.returncode == 0, result.stderr
    [sample] = json.loads(result.stdout)["samples"]
    assert sample["requests"] == 1
    assert sample["cost_usd"] > 0
    assert sample["cpu_seconds"] > 0


@pytest.mark.slow
def test_cpu_is_that_of_the_whole_process_tree(tmp_path: Path):
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    script = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {burn!r}]).wait()"
    result = bench(tmp_path, "--repeat", "1", "--json", "--", sys.executable, "-c", script)
    assert result.returncode == 0, result.stderr
    [sample] = json.loads(result.stdout)["samples"]
    assert sample["cpu_seconds"] >= 0.3


# --- A scenario file, and two targets in turns

FLOW = """\
run:
  task: Go
  backend: playbook
  playbook: {playbook}
assert:
  - type: exit_code
    expected: 0
"""
ONE_REQUEST = "- when: Go\n  do:\n    - say: LOOP_COMPLETE\n"
TWO_REQUESTS = "- when: Go\n  do:\n    - say: Not yet.\n    - say: LOOP_COMPLETE\n"


def write_flow(folder: Path, name: str, playbook: str) -> None:
    (folder / f"{name}.book.yaml").write_text(playbook)
    (folder / f"{name}.yaml").write_text(FLOW.format(playbook=f"{name}.book.yaml"))


def only_counts(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the comparisons of figures that do not depend on the machine, by name."""
    compared = json.loads(result.stdout)["compared"]
    return {c["metric"]: c for c in compared if not c["metric"].endswith("_seconds")}


@pytest.mark.slow
def test_a_scenario_with_one_more_request_fails_the_gate(tmp_path: Path):
    write_flow(tmp_path, "flow", ONE_REQUEST)
    saved = bench(tmp_path, "flow.yaml", "--repeat", "1", "--json", "--save", "b.json")
    assert saved.returncode == 0, saved.stderr
    [sample] = json.loads(saved.stdout)["samples"]
    assert sample["requests"] == 1
    baseline = json.loads((tmp_path / "b.json").read_text())
    baseline["samples"] *= 8  # as from --repeat 8
    (tmp_path / "b.json").write_text(json.dumps(baseline))
    write_flow(tmp_path, "flow", TWO_REQUESTS)
    gate = bench(tmp_path, "flow.yaml", "--repeat", "8", "--json", "--baseline", "b.json")
    assert gate.returncode == 1, gate.stderr
    requests = only_counts(gate)["requests"]
    assert (requests["before"], requests["after"], requests["worse"]) == (1, 2, True)


NOISE = """
from pathlib import Path
from offbook import call, say, session, when

def noisy(name):
    # A retry now and then, in no order: 1 of 3 runs has one request more.
    path = Path(name)
    number = int(path.read_text()) if path.exists() else 0
    path.write_text(str(number + 1))
    extra = [call("bash", {"command": "true"})] if (number * 7919 % 31) % 3 == 0 else []
    with session() as rehearsal:
        rehearsal.run(when("Go", [call("bash", {"command": "true"}), *extra, say("Done.")]))

def one():
    noisy("one")

def other():
    noisy("other")

def more():
    one()
    with session() as rehearsal:
        rehearsal.run(when("Again", [say("Done.")]))
"""


@pytest.mark.slow
def test_noise_between_two_targets_does_not_fail_the_gate(tmp_path: Path):
    (tmp_path / "noise.py").write_text(NOISE)
    (tmp_path / "one").write_text("9")  # from here, 6 of 12 runs have one request more
    (tmp_path / "other").write_text("5")  # from here, 4 of 12
    options = ("--repeat", "12", "--min-effect", "0", "--json")
    result = bench(tmp_path, "noise:one", "--against", "noise:other", *options)
    requests = only_counts(result)["requests"]
    assert requests["after"] > requests["before"]
    assert not requests["worse"]


@pytest.mark.slow
def test_a_real_difference_between_two_noisy_targets_fails_the_gate(tmp_path: Path):
    (tmp_path / "noise.py").write_text(NOISE)
    result = bench(tmp_path, "noise:more", "--against", "noise:other", "--json")
    assert result.returncode == 1, result.stderr
    assert only_counts(result)["requests"]["worse"]


@pytest.mark.slow
def test_two_scenario_files_are_compared_in_turns(tmp_path: Path):
    write_flow(tmp_path, "new", TWO_REQUESTS)
    write_flow(tmp_path, "old", ONE_REQUEST)
    result = bench(tmp_path, "new.yaml", "--against", "old.yaml", "--repeat", "8", "--json")
    assert result.returncode == 1, result.stderr
    requests = only_counts(result)["requests"]
    assert (requests["before"], requests["after"], requests["worse"]) == (1, 2, True)


def test_a_function_cannot_be_compared_with_a_scenario(tmp_path: Path):
    (tmp_path / "shop.py").write_text(SHOP)
    write_flow(tmp_path, "flow", ONE_REQUEST)
    result = bench(tmp_path, "shop:once", "--against", "flow.yaml")
    assert (result.returncode, "a function and a command cannot" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "expected one target"),
        (["missing:name"], "cannot import missing"),
        (["flow.yaml"], "no such scenario file"),
        (["a:b", "--repeat", "3", "--baseline", "b.json"], "3 runs cannot show a difference"),
        (["a:b", "--baseline", "b.json", "--against", "a:c"], "exclude each other"),
        (["a:b", "--script", "shop.yaml"], "--script is the model of a command"),
    ],
)
def test_wrong_usage_is_explained(tmp_path: Path, arguments: list[str], message: str):
    result = bench(tmp_path, *arguments)
    assert result.returncode == 2
    assert message in result.stderr


def test_a_command_that_fails_is_not_measured(tmp_path: Path):
    result = bench(tmp_path, "--repeat", "1", "--", "false")
    assert result.returncode == 1
    assert "the command exited with 1, so it was not measured" in result.stderr
