"""Any command as a subject: prompt, environment, exit code."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import DeadlineExceeded, RunError, ScriptExhausted, UsageError
from offbook.runs import drive
from offbook.sources.playbook import call, fail, say, when
from offbook.subjects.clis import Codex, Command
from offbook.testing import SubjectConformance
from tests.clients import is_alive
from tests.forked import forked_command

AGENT = """
import json, os, pathlib, subprocess, sys, urllib.error, urllib.request

prompt = sys.argv[1] if len(sys.argv) > 1 else sys.stdin.read()
kept = pathlib.Path(os.environ["HOME"]) / "history.json"
history = json.loads(kept.read_text()) if kept.exists() else []
history.append({"role": "user", "content": prompt})
tools = [{"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}]
while True:
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "m", "messages": history, "tools": tools}).encode(),
        {"content-type": "application/json"},
    )
    try:
        answer = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    except urllib.error.HTTPError as error:
        sys.exit(f"refused: {error.read().decode()}")
    history.append(answer)
    if not answer.get("tool_calls"):
        break
    for made in answer["tool_calls"]:
        command = json.loads(made["function"]["arguments"])["command"]
        output = subprocess.run(command, shell=True, capture_output=True, text=True).stdout
        history.append({"role": "tool", "tool_call_id": made["id"], "content": output})
kept.write_text(json.dumps(history))
print(answer["content"])
"""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small agent without Offbook and without an SDK."""
    path = tmp_path_factory.mktemp("agent") / "agent.py"
    path.write_text(AGENT)
    return path


class TestConformance(SubjectConformance):
    @pytest.fixture(autouse=True)
    def keep_agent(self, agent: Path) -> None:
        self.agent = agent

    def subject(self) -> Command:
        return Command(forked_command(self.agent, "{prompt}"))

    def call(self):
        return "shell", {"command": "echo it works"}


@pytest.mark.parametrize("words", [["{prompt}"], []], ids=["argument", "stdin"])
def test_the_prompt_is_an_argument_or_standard_input(agent: Path, words: list[str]):
    command = Command(forked_command(agent, *words), name="small")
    with drive(command) as rehearsal:
        run = rehearsal.run(
            when("go", [call("shell", {"command": "echo here > f; cat f"}), say("Déjà vu.")]),
            when("on", [say("Still here.")]),
        )
        assert run.results("shell")[0].text == "here\n"
        assert (rehearsal.cwd / "f").read_text() == "here\n"
        texts = [event.data["text"] for event in run.events.named("process.result")]
        assert texts == ["Déjà vu.", "Still here."]
        assert command.output.text == "Still here."


def test_following_prompts_can_have_another_command():
    command = Command("sh -c 'echo first {prompt}'", following="echo then {prompt}")
    with drive(command, auto_assert=False) as rehearsal:
        run = rehearsal.run(when("a", [say("x")]), when("b", [say("y")]))
        texts = [event.data["text"] for event in run.events.named("process.result")]
    assert texts == ["first a", "then b"]


def test_the_environment_has_all_providers_and_none_of_our_secrets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_OWN_TOKEN", "not-for-others")
    with drive(Command("env", env={"MORE": "1"}), auto_assert=False) as rehearsal:
        rehearsal.run(when("go", [say("x")]))
        subject = rehearsal.subject
        assert isinstance(subject, Command)
        found = dict(line.split("=", 1) for line in subject.output.text.splitlines())
        assert not (home := Path(found["HOME"])).samefile(Path.home())
    assert found["OPENAI_BASE_URL"] == found["ANTHROPIC_BASE_URL"] + "/v1"
    assert found["GOOGLE_GEMINI_BASE_URL"].startswith("http://127.0.0.1:")
    assert found["TMPDIR"].startswith(found["HOME"])
    assert found["MORE"] == "1"
    assert "MY_OWN_TOKEN" not in found
    assert not home.exists()


def test_an_exit_code_fails_the_run_with_the_last_lines():
    command = Command(["sh", "-c", "echo what a pity >&2; exit 3"])
    with drive(command, auto_assert=False) as rehearsal, pytest.raises(RunError) as caught:
        rehearsal.run(when("go", [say("x")]))
    assert "sh failed with exit code 3" in str(caught.value)
    assert "what a pity" in str(caught.value)


def test_an_exit_code_can_be_allowed():
    command = Command(["sh", "-c", "exit 3"], codes=(0, 3))
    with drive(command, auto_assert=False) as rehearsal:
        run = rehearsal.run(when("go", [say("x")]))
        assert [event.data["code"] for event in run.events.named("process.exit")] == [3]


def test_the_deadline_kills_the_whole_tree(tmp_path: Path):
    pid_file = tmp_path / "pid"
    script = f"setsid sleep 300 & echo $! > {pid_file}; echo waiting; sleep 300"
    command = Command(["sh", "-c", script], deadline=5)
    with drive(command, auto_assert=False) as rehearsal, pytest.raises(DeadlineExceeded) as caught:
        rehearsal.run(when("go", [say("x")]))
    assert "waiting" in str(caught.value)
    assert not is_alive(int(pid_file.read_text()))


def test_an_unmatched_request_is_the_error_and_the_exit_code_its_cause(agent: Path):
    command = Command(forked_command(agent, "{prompt}"))
    with drive(command) as rehearsal, pytest.raises(ScriptExhausted) as caught:
        rehearsal.run(when("go", [call("shell", {"command": "true"})]))
    assert isinstance(caught.value.__cause__, RunError)
    assert "refused" in str(caught.value.__cause__)


def test_a_scripted_failure_reaches_the_command(agent: Path):
    command = Command(forked_command(agent, "{prompt}"))
    with drive(command) as rehearsal, pytest.raises(RunError) as caught:
        rehearsal.run(when("go", [fail("too much", status=429)]))
    assert "too much" in str(caught.value)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Command(""), "expected a command, got ''"),
        (lambda: Command(["echo", 1]), "expected a command, got"),  # pyright: ignore[reportArgumentType] - the mistake
        (lambda: Command("echo", deadline=0), "deadline: expected a number > 0, got 0"),
    ],
)
def test_invalid_options_are_refused(make: object, message: str):
    assert callable(make)
    with pytest.raises(UsageError, match=message):
        make()


def test_an_unknown_option_is_refused_with_the_nearest():
    make: Any = Command
    with pytest.raises(UsageError, match="Command has no option 'dedline'") as caught:
        make("echo", dedline=5)
    assert "did you mean 'deadline'" in str(caught.value)


def test_a_missing_command_is_named():
    with drive(Command("no-such-agent")) as rehearsal, pytest.raises(UsageError) as caught:
        rehearsal.run(when("go", [say("x")]))
    assert "no-such-agent" in str(caught.value)


@pytest.mark.parametrize(
    "servers, message",
    [
        ({"a": "offbook mcp"}, "expected a list of words as command of 'a'"),
        ({"a": []}, "expected a list of words as command of 'a'"),
        ({"a": ["offbook", "mcp"]}, "Command does not support mcp"),
    ],
)
def test_invalid_mcp_servers_are_refused(servers: Mapping[str, Sequence[str]], message: str):
    with pytest.raises(UsageError, match=message):
        Command("true", mcp=servers)


CODEX_FAILURE = """
import json, sys
print("Reading additional input from stdin...", file=sys.stderr)
print(json.dumps({"type": "error", "message": "Reconnecting... 1/1"}))
print(json.dumps({"type": "turn.failed", "error": {"message": "unexpected status 500"}}))
sys.exit(1)
"""


def test_a_failure_of_codex_is_reported_in_its_own_words(tmp_path: Path):
    program = tmp_path / "codex"
    program.write_text(f"#!{sys.executable}\n{CODEX_FAILURE}")
    program.chmod(0o755)
    with drive(Codex(program=str(program))) as rehearsal, pytest.raises(RunError) as failure:
        rehearsal.run(when("Hi", [say("Hello.")]))
    said = "codex: codex failed with exit code 1\nunexpected status 500"
    assert str(failure.value).startswith(f"{said}\n  no request arrived at the model")
