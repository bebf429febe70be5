"""A target that does not do the same twice is found out, and told where."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from offbook.errors import UsageError
from offbook.runs.determinism import DeterminismTrial, check_determinism, resolve_target
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


def script(tmp_path: Path, text: str, name: str = "agent.py") -> tuple[str, ...]:
    path = tmp_path / name
    path.write_text(text)
    return tuple(resolve_target(str(path))[0])


def test_a_target_that_does_the_same_each_time_agrees(tmp_path: Path):
    model = Counting()
    report = check_determinism(DeterminismTrial(script(tmp_path, SAME), live=model), runs=3)
    assert report.divergences == ()
    assert (report.runs, report.code, report.exchanges, model.asked) == (3, 0, 2, 1)


@pytest.mark.parametrize(
    "text, what, first, name",
    [
        (SETS, "event", "model.request", "agent.py"),
        (PRINTS, "line of stdout", "[", "agent.py"),
        (EXITS, "exit code", "0", "agent.py"),
        (IN_PROCESS % f"return str({WORDS})", "event", "tool.result", "agent.py"),
        (IN_PROCESS % f"ctx.ui.notify(str({WORDS}))", "event", "ui.notify", "agent.py"),
        (IN_PROCESS % f"ctx.ui.notify(str({WORDS}))", "event", "ui.notify", "test_ui.py"),
        (SCENARIO % (sys.executable, WORDS), "event", "process.output", "scenario.yaml"),
    ],
)
def test_what_differs_first_is_named_with_its_place_and_what_came_before(
    tmp_path: Path, text: str, what: str, first: str, name: str
):
    report = check_determinism(DeterminismTrial(script(tmp_path, text, name), live=Counting()))
    (found,) = report.divergences
    assert (found.run, found.what) == (2, what)
    assert found.first.startswith(first)
    assert found.other.startswith(first) or what == "exit code"
    assert found.first != found.other
    place = f"at {what} {found.at}" if found.at else f"in its {what}"
    assert f"pass 2 differs from pass 1 {place}:" in str(found)
    assert str(found).count("before:") == min(2, max(found.at - 1, 0))


def test_without_shuffling_the_order_of_sets_is_no_divergence(tmp_path: Path):
    trial = DeterminismTrial(script(tmp_path, SETS), live=Counting(), shuffle=False)
    assert check_determinism(trial).divergences == ()


CLOCK = (
    "import datetime, time\nprint(datetime.datetime.now(), datetime.date.today(), time.time_ns())"
)


@pytest.mark.parametrize("freeze", [True, False])
def test_time_stands_still_when_it_is_told_to(tmp_path: Path, *, freeze: bool):
    report = check_determinism(DeterminismTrial(script(tmp_path, CLOCK), freeze=freeze))
    assert (report.divergences == ()) is freeze
    assert report.code == 0


def test_what_may_differ_can_be_named(tmp_path: Path):
    command = script(tmp_path, "import uuid\nprint(uuid.uuid4())")
    assert check_determinism(DeterminismTrial(command)).divergences != ()
    rules = {"patterns": {"$UUID": True}}
    assert check_determinism(DeterminismTrial(command, redactions=rules)).divergences == ()


@pytest.mark.parametrize("beside", ["agent.cassette.yaml", "agent.mocks.jsonl"])
def test_what_is_beside_the_target_answers_in_every_pass(tmp_path: Path, beside: str):
    (tmp_path / "agent.py").write_text(SAME)
    if beside.endswith("jsonl"):
        (tmp_path / beside).write_text('{"text": "hi"}\n')
    else:
        asyncio.run(record(tmp_path / beside, [ask("hello")]))
    command, fixture = resolve_target(str(tmp_path / "agent.py"))
    assert fixture == tmp_path / beside
    report = check_determinism(DeterminismTrial(tuple(command), cassette=fixture))
    assert (report.divergences, report.code, report.exchanges) == ((), 0, 2)


def test_a_target_that_needs_a_model_and_has_none_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="--cassette FILE, or --live"):
        check_determinism(DeterminismTrial(script(tmp_path, SAME)))


def test_a_test_is_run_by_pytest(tmp_path: Path):
    path = tmp_path / "test_one.py"
    path.touch()
    command, _ = resolve_target(f"{path}::test_it")
    assert (command[1:3], command[-1]) == (["-m", "pytest"], f"{path}::test_it")
    assert resolve_target(str(tmp_path))[0][1:3] == ["-m", "pytest"]


@pytest.mark.parametrize("runs", [0, 1])
def test_one_run_agrees_with_nobody(runs: int):
    with pytest.raises(UsageError, match="cannot be compared"):
        check_determinism(DeterminismTrial(("true",)), runs=runs)


def test_an_unknown_target_is_refused():
    with pytest.raises(UsageError, match="no such target"):
        resolve_target("nowhere.py")
