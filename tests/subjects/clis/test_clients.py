"""The real clients: each calls its own real tool, goes on, fails, and ends when it must."""

from pathlib import Path

import pytest

from offbook.errors import DeadlineExceeded, RunError, ScriptExhausted, UsageError
from offbook.exchange.messages import ToolResult
from offbook.runs.api import drive
from offbook.sources.playbook import call, fail, say, when
from offbook.subjects.clis.cli import CliAgent
from offbook.subjects.clis.codex import Codex
from offbook.subjects.subject import Subject
from offbook.testing import SubjectConformance
from tests.clients import CLAUDE, CODEX, GEMINI, PI, Shell, installed, is_alive, needs

ALL = [installed(CODEX), installed(CLAUDE), installed(GEMINI), installed(PI)]
QUICK = [installed(CODEX), installed(CLAUDE)]


class OfShell(SubjectConformance):
    """The conformance suite, for a client with a shell tool."""

    shell: Shell

    def subject(self) -> Subject:
        return self.shell.make()

    def call(self):
        return self.shell.tool, self.shell.params("echo it works")


@needs(CODEX)
class TestCodex(OfShell):
    shell = CODEX


@pytest.mark.slow
@needs(CLAUDE)
class TestClaudeCode(OfShell):
    shell = CLAUDE


def said(subject: Subject) -> str:
    assert isinstance(subject, CliAgent)
    return subject.output.text


@pytest.mark.parametrize("shell", ALL)
def test_its_own_tool_runs_for_real(shell: Shell):
    heard: list[ToolResult] = []
    params = shell.params("echo it is real > made.txt; cat made.txt")
    with drive(shell.make()) as rehearsal:
        first = rehearsal.run(
            when("Make it", [call(shell.tool, params).then(heard.append), say("Made.")])
        )
        assert (rehearsal.cwd / "made.txt").read_text() == "it is real\n"
        assert first.tools == [shell.tool]
        assert first.calls(shell.tool)[0].input == params
        assert "it is real" in heard[0].text
        assert not heard[0].is_error
        assert first.text == said(rehearsal.subject) == "Made."


@pytest.mark.parametrize("shell", [installed(CLAUDE), installed(GEMINI)])
def test_its_tools_answer_to_the_words_of_every_agent(shell: Shell, tmp_path: Path):
    note = str(tmp_path / "note.txt")
    with drive(shell.make(), cwd=tmp_path) as rehearsal:
        run = rehearsal.run(
            when(
                "Note it",
                [
                    call("write", {"path": note, "content": "one\n"}),
                    call("edit", {"path": note, "old": "one", "new": "two", **shell.edit}),
                    call("read", {"path": note}),
                    call("bash", {"command": f"cat {note}"}),
                    say("Noted."),
                ],
            )
        )
        assert run.tools == ["write", "edit", "read", "bash"]
        assert not any(run.results(tool)[0].is_error for tool in run.tools)
        assert "two" in run.results("read")[0].text
        assert "two" in run.results("bash")[0].text


@pytest.mark.parametrize("shell", [*QUICK, installed(PI)])
def test_the_next_prompt_goes_on_after_a_tool(shell: Shell):
    with drive(shell.make()) as rehearsal:
        rehearsal.run(when("Do it", [call(shell.tool, shell.params("echo hi")), say("Done.")]))
        second = rehearsal.run(when("Go on", [say("I remember.")]))
        assert said(rehearsal.subject) == "I remember."
        counts = [event.data["count"] for event in second.events.named("model.request")]
        assert min(counts) > 3  # what was said, called and answered before is sent again


@needs(GEMINI)
def test_gemini_goes_on_after_words_but_sends_a_tool_result_twice():
    """Its own fault when it resumes (0.61.0), and refused as its provider refuses it."""
    with drive(GEMINI.make()) as rehearsal:
        rehearsal.run(when("Hello", [say("Hello.")]))
        second = rehearsal.run(
            when("Go on", [call(GEMINI.tool, GEMINI.params("echo hi")), say("I remember.")])
        )
        assert said(rehearsal.subject) == "I remember."
        assert min(event.data["count"] for event in second.events.named("model.request")) > 2
        with pytest.raises(RunError):
            rehearsal.run(when("And on", [say("Never heard.")]))
        refused = rehearsal.events.named("model.error")[0].data["message"]
        assert "function response parts" in refused


@pytest.mark.parametrize("shell", ALL)
def test_an_error_that_no_retry_mends_fails_the_run(shell: Shell):
    with drive(shell.make(deadline=60)) as rehearsal, pytest.raises(RunError) as caught:
        rehearsal.run(when("Try", [fail("never, says the provider", status=403)]))
    assert shell.make().name in str(caught.value)


@needs(CODEX)
def test_codex_asks_again_when_it_may():
    with drive(Codex(retries=1)) as rehearsal:
        run = rehearsal.run(when("Try", [fail("busy", status=503), say("Got through.")]))
        assert said(rehearsal.subject) == run.text == "Got through."


@pytest.mark.parametrize("shell", ALL)
def test_what_the_script_lacks_fails_the_run(shell: Shell):
    with drive(shell.make(deadline=60)) as rehearsal, pytest.raises(ScriptExhausted):
        rehearsal.run(when("Go", [call(shell.tool, shell.params("true"))]))


@pytest.mark.parametrize("shell", QUICK)
def test_a_deadline_ends_it_and_all_that_it_started(shell: Shell, tmp_path: Path):
    noted = tmp_path / "pid"
    command = f"echo $$ > {noted}; exec sleep 300"
    with drive(shell.make(deadline=6), auto_assert=False) as rehearsal:
        with pytest.raises(DeadlineExceeded, match="still running after 6 s"):
            rehearsal.run(when("Wait", [call(shell.tool, shell.params(command)), say("Done.")]))
        assert not is_alive(int(noted.read_text()))


def test_a_client_that_is_not_installed_is_named_with_the_mend(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("OFFBOOK_CLIENTS", raising=False)
    with pytest.raises(UsageError, match="npm install -g @openai/codex@"):
        drive(CODEX.make())
