"""Four agents over ACP by one adapter: permissions, sessions, and the same as by their commands."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from offbook.checks.comparison import compare_paths
from offbook.errors import RunError
from offbook.people import allow, deny, person
from offbook.runs import drive
from offbook.sources.playbook import call, say, when
from offbook.subjects.clis import Acp
from offbook.trace.redaction import Redaction
from tests.clients import CLAUDE, CODEX, DEADLINE, GEMINI, OPENCODE, Shell, marks_of


def agents(*shells: Shell) -> list[Any]:
    return [pytest.param(s, id=str(s), marks=marks_of(s, acp=True)) for s in shells]


# The option with which a client asks a person before it runs a command.
ASKS: dict[str, dict[str, Any]] = {
    "claude": {"permissions": "default"},
    "codex": {"approval": "untrusted"},
    "gemini": {"approval": "default"},
    "opencode": {"permissions": "ask"},
}


@pytest.mark.parametrize("shell", agents(CLAUDE, CODEX, GEMINI, OPENCODE))
def test_a_person_allows_a_command_of_an_acp_agent(shell: Shell):
    made = call("shell", {"command": "touch made; echo it works"})
    agent = Acp(shell.make(deadline=DEADLINE, **ASKS[str(shell)]))
    with drive(agent) as rehearsal:
        run = rehearsal.run(when("Make it", [made, person("shell", allow), say("Made.")]))
        assert (rehearsal.cwd / "made").exists()
        assert run.output == "Made."
        again = rehearsal.run(when("Go on", [say("I remember.")]))
        assert again.output == "I remember."
        (asked,) = rehearsal.events.named("person.asked")
    assert asked.data["tool"] == "shell"
    assert asked.data["input"]["command"] == "touch made; echo it works"
    assert "it works" in run.results("shell")[0].text


@pytest.mark.parametrize("shell", agents(CLAUDE, CODEX, GEMINI, OPENCODE))
def test_a_person_denies_a_command_of_an_acp_agent(shell: Shell, tmp_path: Path):
    goes_on = shell is GEMINI  # the others end the turn, without a further request
    made = call("shell", {"command": "touch made"}, unanswered=not goes_on)
    rest = [say("I may not.")] if goes_on else []
    # claude-code-acp 0.16 reports the end of the turn as an internal error.
    ends = pytest.raises(RunError, match="Internal error") if shell is CLAUDE else nullcontext()
    agent = Acp(shell.make(deadline=DEADLINE, **ASKS[str(shell)]))
    with ends, drive(agent, cwd=tmp_path) as rehearsal:
        rehearsal.run(when("Make it", [made, person("shell", deny), *rest]))
    assert not (tmp_path / "made").exists()


# Gemini CLI 0.61 writes the start of a session twice and then does not find it.
@pytest.mark.parametrize("shell", agents(CLAUDE, CODEX, OPENCODE))
def test_a_new_process_loads_the_session(shell: Shell):
    with drive(Acp(shell.make(deadline=DEADLINE), reload=True)) as rehearsal:
        rehearsal.run(when("Say it", [call("shell", {"command": "echo one"}), say("One.")]))
        run = rehearsal.run(when("Again", [say("Still one.")]))
        request = run.events.named("model.request")[0]
    assert request.data["count"] >= 5
    assert run.output == "Still one."


# Each result of Gemini CLI has the number of its process, each of Codex a random id.
NUMBERS = Redaction({"patterns": {"group": r"PGID: \d+", "chunk": "Chunk ID: [0-9a-f]+"}})


@pytest.mark.parametrize("shell", agents(CLAUDE, CODEX, GEMINI, OPENCODE))
def test_an_agent_does_the_same_by_its_command_and_over_acp(shell: Shell, tmp_path: Path):
    traces = [tmp_path / "command.jsonl", tmp_path / "acp.jsonl"]
    command, other = (shell.make(deadline=DEADLINE) for _ in range(2))
    for subject, trace in zip((command, Acp(other)), traces, strict=True):
        with drive(subject, trace=trace) as rehearsal:
            made = call("shell", {"command": "echo it works"})
            rehearsal.run(when("Say it", [made, say("Done.")]))
    (compared,) = compare_paths(traces[0], traces[1], NUMBERS).traces
    # The agents send other system prompts and tools; what they do is the same.
    assert set(compared.differences) <= {"requests"}
    assert compared.same or shell is not OPENCODE
    assert len(compared.rows) > 5
