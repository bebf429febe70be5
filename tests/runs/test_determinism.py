"""A target that is not deterministic is reported with its first difference."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from offbook.errors import UsageError
from offbook.runs import DeterminismTrial, check_determinism, resolve_target
from tests.sources.cassette.conversations import Counting, ask, record

ASKING = """
import json, os, sys, urllib.request
{extra}
body = json.dumps({{"model": "gpt-5", "messages": [{{"role": "user", "content": {prompt}}}]}})
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
request = urllib.request.Request(url, body.encode(), {{"content-type": "application/json"}})
print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
"""
SAME = ASKING.format(extra="print(os.getcwd())", prompt='"hello"')
SETS = ASKING.format(extra="", prompt='" ".join({"one", "two", "three", "four", "five"})')
PRINTS = ASKING.format(extra="print(list({'one', 'two', 'three', 'four'}))", prompt='"hello"')
EXITS = "import os\nraise SystemExit(0 if os.environ['PYTHONHASHSEED'] == '0' else 3)"


IN_PROCESS = """
from offbook import call, say, session, when

def shop(api):
    @api.tool("look", "Looks.", {"type": "object"})
    async def look(params, ctx):
        %s
        return "looked"

def test_it():
    with session(extensions=[shop]) as rehearsal:
        rehearsal.run(when("Greet me", [call("look", {}), say("Done.")]))

if __name__ == "__main__":
    test_it()
"""
WORDS = "list({'one', 'two', 'three', 'four', 'five'})"
SCENARIO = """
run:
  task: Go
  backend: command
  command: [%s, -c, "print(%s, 'LOOP_COMPLETE')"]
assert:
  - {type: exit_code, expected: 0}
"""


# The third request has the system prompt of the first or of the second.
HEADS = """
import os, urllib.request, json
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
for system in ("plan", "code", ("plan", "code")[hash("x") % 2]):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "Hi"}]
    body = json.dumps({"model": "m", "messages": messages}).encode()
    urllib.request.urlopen(urllib.request.Request(url, body))
"""


def script(tmp_path: Path, text: str, name: str = "agent.py") -> tuple[str, ...]:
    path = tmp_path / name
    path.write_text(text)
    return tuple(resolve_target(str(path))[0])


def test_a_deterministic_target_has_no_divergence(tmp_path: Path):
    model = Counting()
    report = check_determinism(DeterminismTrial(script(tmp_path, SAME), live=model), runs=3)
    assert report.divergences == ()
    assert (report.runs, report.code, report.exchanges, model.asked) == (3, 0, 2, 1)


@pytest.mark.parametrize(
    "text, what, first, name",
    [
        (SETS, "event", "model.request", "agent.py"),
        (HEADS, "event", "model.request", "agent.py"),
        (PRINTS, "stdout line", "[", "agent.py"),
        (EXITS, "exit code", "0", "agent.py"),
        (IN_PROCESS % f"return str({WORDS})", "event", "tool.result", "agent.py"),
        (IN_PROCESS % f"ctx.ui.notify(str({WORDS}))", "event", "ui.notify", "agent.py"),
        (IN_PROCESS % f"ctx.ui.notify(str({WORDS}))", "event", "ui.notify", "test_ui.py"),
        (SCENARIO % (sys.executable, WORDS), "event", "process.output", "scenario.yaml"),
    ],
)
def test_the_first_difference_is_reported_with_the_events_before_it(
    tmp_path: Path, text: str, what: str, first: str, name: str
):
    report = check_determinism(DeterminismTrial(script(tmp_path, text, name), live=Counting()))
    (divergence,) = report.divergences
    assert (divergence.run, divergence.what) == (2, what)
    assert divergence.first.startswith(first)
    assert divergence.other.startswith(first) or what == "exit code"
    assert divergence.first != divergence.other
    position = f"at {what} {divergence.at}" if divergence.at else f"in its {what}"
    assert f"pass 2 differs from pass 1 {position}:" in str(divergence)
    assert str(divergence).count("before:") == min(2, max(divergence.at - 1, 0))


def test_without_shuffling_the_order_of_sets_is_the_same(tmp_path: Path):
    trial = DeterminismTrial(script(tmp_path, SETS), live=Counting(), shuffle=False)
    assert check_determinism(trial).divergences == ()


CLOCK = (
    "import datetime, time\nprint(datetime.datetime.now(), datetime.date.today(), time.time_ns())"
)


@pytest.mark.parametrize("freeze", [True, False])
def test_the_clock_can_be_frozen(tmp_path: Path, *, freeze: bool):
    report = check_determinism(DeterminismTrial(script(tmp_path, CLOCK), freeze=freeze))
    assert (report.divergences == ()) is freeze
    assert report.code == 0


def test_redacted_values_are_not_compared(tmp_path: Path):
    command = script(tmp_path, "import uuid\nprint(uuid.uuid4())")
    assert check_determinism(DeterminismTrial(command)).divergences != ()
    rules = {"patterns": {"$UUID": True}}
    assert check_determinism(DeterminismTrial(command, redactions=rules)).divergences == ()


@pytest.mark.parametrize(
    "fixture_name", ["agent.cassette.yaml", "agent.mocks.jsonl", "agent.llm-mock.jsonl"]
)
def test_a_fixture_next_to_the_target_is_used_in_every_pass(tmp_path: Path, fixture_name: str):
    (tmp_path / "agent.py").write_text(SAME)
    if fixture_name.endswith("jsonl"):
        (tmp_path / fixture_name).write_text('{"text": "hi"}\n')
    else:
        asyncio.run(record(tmp_path / fixture_name, [ask("hello")]))
    command, fixture = resolve_target(str(tmp_path / "agent.py"))
    assert fixture == tmp_path / fixture_name
    report = check_determinism(DeterminismTrial(tuple(command), cassette=fixture))
    assert (report.divergences, report.code, report.exchanges) == ((), 0, 2)


def test_a_target_without_a_model_is_rejected(tmp_path: Path):
    with pytest.raises(UsageError, match="--cassette FILE, or --live"):
        check_determinism(DeterminismTrial(script(tmp_path, SAME)))


def test_a_test_is_run_with_pytest(tmp_path: Path):
    path = tmp_path / "test_one.py"
    path.touch()
    command, _ = resolve_target(f"{path}::test_it")
    assert (command[1:3], command[-1]) == (["-m", "pytest"], f"{path}::test_it")
    assert resolve_target(str(tmp_path))[0][1:3] == ["-m", "pytest"]


@pytest.mark.parametrize("runs", [0, 1])
def test_fewer_than_two_runs_are_rejected(runs: int):
    with pytest.raises(UsageError, match="cannot compare"):
        check_determinism(DeterminismTrial(("true",)), runs=runs)


def test_an_unknown_target_is_rejected():
    with pytest.raises(UsageError, match="target not found"):
        resolve_target("nowhere.py")
