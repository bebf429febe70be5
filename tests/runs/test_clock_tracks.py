# ruff: noqa: S311, DTZ005, DTZ011 - agents read the clock and random values as users do
"""Agents that send the time and random values are recorded once, and replay without a difference.

The values are written so that no redaction of a cassette knows them.
"""

from __future__ import annotations

import random
import secrets
import sys
import time
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from random import choice
from threading import Thread
from time import time as imported_time
from typing import Any, cast

import pydantic_ai
import pytest
from langchain_core.tools import tool as langchain_tool

from offbook import Cassette, Playbook, Recording, call, drive, say, session, when
from offbook.errors import ReplayMismatch
from offbook.runs import Rehearsal, TerminalCommand
from offbook.sources.cassette import load_cassette
from offbook.sources.cassette.maintenance import describe_limits
from tests.subjects.frameworks.test_tool_runners import openai_loop
from tests.thorough import THOROUGH

DRIVE, SESSION = cast("Any", drive), cast("Any", session)
FIND = call("find_order", {"number": 7})
SCRIPT = [when("Go", [FIND, FIND, say("Done.")])]
REPLAYS = 10 if THOROUGH else 3  # the first may leave something to the second


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def words(number: int) -> str:
    """Return a number in letters."""
    return "".join(chr(97 + int(digit)) for digit in str(number))


READINGS: dict[str, Callable[[], str]] = {
    "time": lambda: words(time.time_ns() // 1000),
    "an imported function": lambda: words(int(imported_time() * 1e6)),
    "an imported class": lambda: words(int(datetime.now().timestamp() * 1e6)),
    "a zone": lambda: words(int(datetime.now(UTC).timestamp() * 1e6)),
    "a day": lambda: words(date.today().toordinal() * 86400 + datetime.now().microsecond),
    "uuid4": lambda: words(uuid.uuid4().int),
    "secrets": lambda: words(secrets.randbits(80)),
    "random": lambda: words(int(random.random() * 1e15)),
    "choice": lambda: "".join(choice("abcdefgh") for _ in range(20)),
    "a thread": lambda: in_thread(lambda: words(random.getrandbits(64) + time.time_ns())),
}


def in_thread(read: Callable[[], str]) -> str:
    found: list[str] = []
    thread = Thread(target=lambda: found.append(read()))
    thread.start()
    thread.join()
    return found[0]


def looped(read: Callable[[], str]) -> Any:
    """An agent that sends a value in its prompt, and with the result of each tool."""

    def look(given: dict[str, Any]) -> str:
        return f"order {given['number']} {read()}"

    def agent(prompt: str) -> str:
        return openai_loop(f"{prompt} {read()}", look)

    return partial(DRIVE, agent)


def with_tools(read: Callable[[], str]) -> Any:
    """An agent whose tools take random values, which a replay of the tools does not."""

    def find_order(number: int) -> str:
        """Find an order."""
        return f"order {number} {read()} {read()}"

    look = cast("Any", langchain_tool)(find_order)

    def agent(prompt: str) -> str:
        return openai_loop(prompt, lambda given: f"{look.run(given)} {read()}")

    return partial(DRIVE, agent)


def instructed(read: Callable[[], str]) -> Any:
    agent = pydantic_ai.Agent("openai-chat:m")

    @agent.instructions
    def now() -> str:  # pyright: ignore[reportUnusedFunction]
        return f"It is {read()}."

    @agent.tool_plain
    def find_order(number: int) -> str:  # pyright: ignore[reportUnusedFunction]
        return f"order {number} {read()}"

    return partial(DRIVE, agent)


def in_session(read: Callable[[], str]) -> Any:
    def extension(api: Any) -> None:
        @api.tool("find_order")
        def find_order(params: Any, _: Any) -> str:  # pyright: ignore[reportUnusedFunction]
            return f"order {params['number']} {read()}"

        @api.on("tool_call")
        def number(event: Any, _: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
            return {"input": {**event.input, "request": read()}}

    return partial(SESSION, extension_factories=[extension])


def read_all() -> str:
    return " ".join(read() for read in READINGS.values())


AGENTS = {
    "a loop": looped,
    "tools with random values": with_tools,
    "instructions": instructed,
    "a session": in_session,
}


def record(rehearse: Any, path: Path, tracks: str = "all") -> None:
    playbook = Playbook()
    playbook.load(*SCRIPT)
    with Recording(playbook, path, tracks=tracks) as source, rehearse(source=source) as rehearsal:
        rehearsal.run("Go")


def replay(rehearse: Any, path: Path, tracks: str = "all") -> Cassette:
    tape = Cassette(path, tracks=tracks)
    with rehearse(source=tape) as rehearsal:
        rehearsal.run("Go")
    return tape


@pytest.mark.parametrize("name", AGENTS)
def test_agents_with_time_and_random_values_are_replayed(name: str, tmp_path: Path):
    path, rehearse = tmp_path / "tape.yaml", AGENTS[name](read_all)
    record(rehearse, path)
    for _ in range(REPLAYS):
        assert replay(rehearse, path).verdict().status == "pass"
    assert replay(rehearse, path, "model,clock").verdict().status == "pass"  # the tools are real


@pytest.mark.parametrize("name", READINGS)
def test_every_reading_is_on_the_clock(name: str, tmp_path: Path):
    path, rehearse = tmp_path / "tape.yaml", in_session(READINGS[name])
    record(rehearse, path)
    assert replay(rehearse, path, "model,clock").verdict().status == "pass"
    with pytest.raises(ReplayMismatch):
        replay(rehearse, path, "model")


def test_the_time_moves_with_the_interactions(tmp_path: Path):
    seen: list[float] = []
    rehearse = in_session(lambda: seen.append(time.time()) or "")
    record(rehearse, tmp_path / "tape.yaml")
    recorded, seen[:] = list(seen), []
    replay(rehearse, tmp_path / "tape.yaml", "model,clock")
    assert recorded == seen
    file = load_cassette(tmp_path / "tape.yaml")
    clock = file.header.clock
    assert clock is not None
    ends = [clock.second((e.started_ms or 0) + e.duration_ms) for e in file.entries[:2]]
    assert seen == [ends[0], ends[0], ends[1], ends[1]]


def test_the_clock_of_this_process_is_untouched(tmp_path: Path):
    def agent(prompt: str) -> str:
        started.append(time.time())
        return openai_loop(prompt, lambda _: "found")

    started: list[float] = []
    record(partial(DRIVE, agent), tmp_path / "tape.yaml")
    path = tmp_path / "tape.yaml"
    text = path.read_text().replace("start_ms: ", "start_ms: -")
    path.write_text(text)
    before = time.time()
    run = replay(partial(DRIVE, agent), path)
    assert run.verdict().status == "pass"
    assert started[1] < 0 < before <= time.time()


def test_a_fork_and_its_tape_have_the_clock_of_the_parent(tmp_path: Path):
    path, rehearse = tmp_path / "tape.yaml", in_session(read_all)
    record(rehearse, path)

    def fork_tape() -> Cassette:
        other = Playbook()
        other.load(when("Go", [FIND, FIND, say("Elsewhere.")]))
        return Cassette(path, tracks="all").fork(1, other)

    with (
        Recording(fork_tape(), tmp_path / "fork.yaml", tracks="all") as source,
        rehearse(source=source) as rehearsal,
    ):
        assert rehearsal.run("Go").output == "Elsewhere."
    assert replay(rehearse, tmp_path / "fork.yaml").summary().interactions_replayed == 4
    assert replay(rehearse, tmp_path / "fork.yaml", "model,clock").summary().drifted == 0
    with rehearse(source=fork_tape()) as rehearsal:
        assert rehearsal.run("Go").output == "Elsewhere."


def test_a_tape_is_extended_with_its_clock(tmp_path: Path):
    path, rehearse = tmp_path / "tape.yaml", in_session(read_all)
    record(rehearse, path)
    playbook = Playbook()
    playbook.load(when("More", [FIND, say("Done.")]))
    with (
        Recording(playbook, path, tracks="all", append=True) as source,
        rehearse(source=source) as rehearsal,
    ):
        rehearsal.run("Go")
        rehearsal.run("More")
    tape = Cassette(path, tracks="model,clock")
    with rehearse(source=tape) as rehearsal:
        rehearsal.run("Go")
        rehearsal.run("More")


def test_a_tape_without_a_clock_is_extended_without_one(tmp_path: Path):
    path, rehearse = tmp_path / "tape.yaml", in_session(lambda: "")
    record(rehearse, path, "model,tools")
    with (
        Recording(Playbook(), path, tracks="all", append=True) as source,
        rehearse(source=source) as rehearsal,
    ):
        rehearsal.run("Go")
    assert replay(rehearse, path).verdict().status == "pass"


# --- Commands

COMMAND = """
import datetime, json, os, random, subprocess, sys, time, urllib.request, uuid
def post(messages):
    body = json.dumps({"model": "m", "messages": messages}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]
def words():
    numbers = uuid.uuid4().int, random.getrandbits(64), time.time_ns() // 1000
    return " ".join("".join(chr(97 + int(digit)) for digit in str(n)) for n in numbers)
messages = [{"role": "user", "content": "Go " + words()}]
if len(sys.argv) == 1:
    code = "import uuid; print(''.join(chr(97 + int(d)) for d in str(uuid.uuid4().int)))"
    other = subprocess.check_output([sys.executable, "-c", code], text=True)
    messages += [post(messages), {"role": "user", "content": f"More {words()} {other}"}]
post(messages)
"""


def run_command(source: Any, folder: Path, *command: str) -> None:
    (folder / "agent.py").write_text(COMMAND)
    subject = TerminalCommand(command or [sys.executable, "agent.py"], cwd=folder, echo=False)
    with Rehearsal(subject, source=source) as rehearsal:
        rehearsal.run("")


def test_a_python_command_has_the_clock_of_its_tape(tmp_path: Path):
    playbook, path = Playbook(), tmp_path / "tape.yaml"
    playbook.load(when("Go", [say("One.")]), when("More", [say("Two.")]))
    with Recording(playbook, path, tracks="model,clock") as source:
        run_command(source, tmp_path)
    assert describe_limits(load_cassette(path)) == []
    tape = Cassette(path, tracks="all")
    run_command(tape, tmp_path)
    assert tape.verdict().status == "pass"
    with pytest.raises(ReplayMismatch):
        run_command(Cassette(path), tmp_path)


def test_a_command_without_python_has_its_own_clock(tmp_path: Path):
    playbook, path = Playbook(), tmp_path / "tape.yaml"
    playbook.load(when("Go", [say("One.")]))
    alone = [sys.executable, "-E", "agent.py", "once"]  # without PYTHONPATH, as a program in C
    with Recording(playbook, path, tracks="model,clock") as source:
        run_command(source, tmp_path, *alone)
    assert describe_limits(load_cassette(path)) == [
        "the command has no Python process: its clock and its random values are real in a replay"
    ]
