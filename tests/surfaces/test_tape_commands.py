"""A command is recorded with its tracks, stopped at a step, and continued from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from offbook import Playbook, call, say, when
from offbook.sources.cassette import load_cassette
from offbook.sources.server import Server
from tests.forked import forked_command
from tests.sources.cassette.conversations import Counting
from tests.surfaces.test_cassette_commands import AGENT, run_offbook

PROMPTS = ["one", "two", "three"]
SCRIPT = "- when: three\n  do:\n    - say: elsewhere\n"


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    """Record a command of three steps."""
    (tmp_path / "agent.py").write_text(AGENT)
    with Server() as server:
        url = server.mount(Counting(), run="").openai
        options = ["--tracks", "all", "--upstream", url]
        ended = run_offbook("record", "tape.yaml", *options, *command(), cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    return tmp_path / "tape.yaml"


def command() -> list[str]:
    return ["--", *forked_command("agent.py"), *PROMPTS]


def test_a_recording_has_the_chosen_tracks(tape: Path):
    file = load_cassette(tape)
    assert (len(file), file.header.tracks) == (
        3,
        ("model", "tools", "people", "http", "clock", "files"),
    )
    ended = run_offbook("replay", "tape.yaml", "--tracks", "all", *command(), cwd=tape.parent)
    assert ended.returncode == 0, ended.stderr


def test_a_replay_stops_after_a_step(tape: Path):
    ended = run_offbook("replay", "tape.yaml", "--until", 2, *command(), cwd=tape.parent)
    assert ended.returncode == 0, ended.stderr
    assert (
        "stopped after interaction 2 of 3; to go on: offbook replay tape.yaml --from 2 --live"
        in (ended.stderr)
    )
    assert ended.stdout.splitlines()[:2] == ["answer 1", "answer 2"]


def test_a_replay_goes_on_with_a_script(tape: Path):
    (tape.parent / "new.yaml").write_text(SCRIPT)
    options = ["--from", 2, "--script", "new.yaml"]
    ended = run_offbook("replay", "tape.yaml", *options, *command(), cwd=tape.parent)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["answer 1", "answer 2", "elsewhere"]
    assert load_cassette(tape.parent / "tape.fork-2.yaml").header.metadata["fork"] == {
        "parent": "tape.yaml",
        "step": 2,
    }
    compared = run_offbook("compare", "tape.yaml", "tape.fork-2.yaml", cwd=tape.parent)
    assert compared.returncode == 1, compared.stderr
    assert compared.stdout.splitlines()[:3] == [
        "the tapes part at interaction 3 (track: model)",
        "  tape.yaml (3): three",
        "  tape.fork-2.yaml (3): three",
    ]
    assert "  - answer 3" in compared.stdout.splitlines()
    again = run_offbook("compare", "tape.yaml", "tape.yaml", cwd=tape.parent)
    assert (again.returncode, again.stdout) == (0, "the tapes are the same: 3 interactions\n")


def test_a_replay_goes_on_with_the_real_model(tape: Path):
    with Server() as server:
        url = server.mount(Counting(), run="").openai
        options = ["--from", 2, "--live", "--upstream", url]
        ended = run_offbook("replay", "tape.yaml", *options, *command(), cwd=tape.parent)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["answer 1", "answer 2", "answer 1"]


WRONG = {
    "a fork without a model": (["--from", 2], "--script and --live continue a tape"),
    "a model without a fork": (["--live"], "--script and --live continue a tape"),
    "two models": (["--from", 2, "--live", "--script", "x.yaml"], "exclude each other"),
    "two ends": (["--from", 2, "--until", 2, "--live"], "--from and --until exclude each other"),
    "an unknown track": (["--tracks", "tolls"], "unknown track 'tolls'"),
    "a step that is not there": (["--until", 9], "no interaction 9"),
}


@pytest.mark.parametrize("name", WRONG)
def test_options_that_mean_nothing_are_refused(name: str, tape: Path):
    options, message = WRONG[name]
    ended = run_offbook("replay", "tape.yaml", *options, *command(), cwd=tape.parent)
    assert (ended.returncode, message in ended.stderr) == (2, True), ended.stderr


# --- The shortest tape

CRASHING = """
import json, os, sys, urllib.request
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
messages, words = [{"role": "user", "content": "Go"}], []
while "answer 3" not in words:
    body = json.dumps({"model": "gpt-5", "messages": messages})
    request = urllib.request.Request(url, body.encode(), {"content-type": "application/json"})
    message = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    words.append(message["content"])
    messages += [message, {"role": "user", "content": "Go on"}]
raise LookupError(f"answer 3 is not expected after {len(words)} answers")
"""


def test_a_tape_is_shrunk_to_the_failure_of_a_command(tmp_path: Path):
    (tmp_path / "agent.py").write_text(CRASHING)
    failing = ["--", *forked_command("agent.py")]
    with Server() as server:
        url = server.mount(Counting(), run="").openai
        recorded = run_offbook("record", "tape.yaml", "--upstream", url, *failing, cwd=tmp_path)
    assert (recorded.returncode, len(load_cassette(tmp_path / "tape.yaml"))) == (1, 3)
    ended = run_offbook("replay", "tape.yaml", "--shrink", "short.yaml", *failing, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(
        "short.yaml: 1 of 3 interactions show the failure (3 replays): failed with exit code 1: "
        "LookupError: answer # is not expected after # answers\n"
        "to see it: offbook replay short.yaml -- "
    )
    (only,) = load_cassette(tmp_path / "short.yaml")
    assert only.response.output == "answer 3"


# --- Tools that are not deterministic

LOOKING = """
import json, os, pathlib, urllib.request
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
messages, seen = [{"role": "user", "content": "Go"}], pathlib.Path("seen.txt")
while True:
    tools = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
    body = json.dumps({"model": "gpt-5", "messages": messages, "tools": tools})
    request = urllib.request.Request(url, body.encode(), {"content-type": "application/json"})
    message = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls"):
        break
    seen.write_text(seen.read_text() + "x")
    for made in message["tool_calls"]:
        text = f"seen {len(seen.read_text())} times"
        messages.append({"role": "tool", "tool_call_id": made["id"], "content": text})
"""


def test_a_tool_of_a_command_that_is_not_deterministic_is_found(tmp_path: Path):
    (tmp_path / "agent.py").write_text(LOOKING)
    (tmp_path / "seen.txt").write_text("")
    agent = ["--", *forked_command("agent.py")]
    script = Playbook()
    script.load(when("Go", [call("find", {"number": 7}), say("Done.")]))
    with Server() as server:
        url = server.mount(script, run="").openai
        recorded = run_offbook("record", "tape.yaml", "--upstream", url, *agent, cwd=tmp_path)
    assert recorded.returncode == 0, recorded.stderr
    ended = run_offbook("replay", "tape.yaml", "--twice", *agent, cwd=tmp_path)
    assert (ended.returncode, ended.stdout.splitlines()) == (
        1,
        [
            'find {"number":7}: not deterministic',
            "  recorded: seen 1 times",
            "  first:    seen 2 times",
            "  second:   seen 3 times",
        ],
    ), ended.stderr
    assert "1 call of tools compared in two runs: 1 with another result" in ended.stderr
