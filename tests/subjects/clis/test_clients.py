"""The real clients: tools, following prompts, failures and deadlines."""

from pathlib import Path

import pytest

from offbook.errors import DeadlineExceeded, RunError, ScriptExhausted, UsageError
from offbook.exchange import ToolResult
from offbook.runs import drive
from offbook.sources.playbook import Call, call, fail, say, when
from offbook.subjects import Subject
from offbook.subjects.clis import CliAgent, Codex
from offbook.testing import SubjectConformance
from tests.clients import (
    CLAUDE,
    CODEX,
    CONTINUE,
    GEMINI,
    OPENCODE,
    PI,
    QWEN,
    Shell,
    installed,
    is_alive,
    needs,
)

MORE = [installed(OPENCODE), installed(QWEN), installed(CONTINUE)]
ALL = [installed(CODEX), installed(CLAUDE), installed(GEMINI), installed(PI), *MORE]
QUICK = [installed(CODEX), installed(CLAUDE)]


class ShellConformance(SubjectConformance):
    """The conformance suite, for a client with a shell tool."""

    shell: Shell

    def subject(self) -> Subject:
        return self.shell.make()

    def call(self):
        return self.shell.tool, self.shell.params("echo it works")


@needs(CODEX)
class TestCodex(ShellConformance):
    shell = CODEX


@pytest.mark.slow
@needs(CLAUDE)
class TestClaudeCode(ShellConformance):
    shell = CLAUDE


@needs(OPENCODE)
class TestOpenCode(ShellConformance):
    shell = OPENCODE


@needs(QWEN)
class TestQwenCode(ShellConformance):
    shell = QWEN


@needs(CONTINUE)
class TestContinue(ShellConformance):
    shell = CONTINUE


def final_text(subject: Subject) -> str:
    assert isinstance(subject, CliAgent)
    return subject.output.text


@pytest.mark.parametrize("shell", [*QUICK, installed(PI), *MORE])
def test_the_clients_own_tool_runs_and_the_next_prompt_resumes_after_it(shell: Shell):
    results: list[ToolResult] = []
    params = shell.params("echo it is real > made.txt; cat made.txt")
    with drive(shell.start()) as rehearsal:
        first = rehearsal.run(
            when("Make it", [call(shell.tool, params).then(results.append), say("Made.")])
        )
        assert (rehearsal.cwd / "made.txt").read_text() == "it is real\n"
        assert first.tools == [shell.tool]
        assert first.executed[0].input == params
        assert "it is real" in results[0].text
        assert not results[0].failed
        assert first.output == final_text(rehearsal.subject) == "Made."
        second = rehearsal.run(when("Go on", [say("I remember.")]))
        assert final_text(rehearsal.subject) == "I remember."
        counts = [event.data["count"] for event in second.events.named("model.request")]
        assert min(counts) > 3  # the messages of the first prompt are sent again


COMMON_NAMES = ["write", "edit", "read", "bash"]


def note_by_common_names(shell: Shell, note: Path) -> list[Call]:
    return [
        call("write", {"path": str(note), "content": "one\n"}),
        call("edit", {"path": str(note), "old": "one", "new": "two", **shell.edit}),
        call("read", {"path": str(note)}),
        call("bash", {"command": f"cat {note}"}),
    ]


@needs(CLAUDE)
def test_tools_can_be_called_by_the_common_names(tmp_path: Path):
    with drive(CLAUDE.start(), cwd=tmp_path) as rehearsal:
        steps = note_by_common_names(CLAUDE, tmp_path / "note.txt")
        run = rehearsal.run(when("Note it", [*steps, say("Noted.")]))
        assert run.tools == COMMON_NAMES
        assert not any(run.results(tool)[0].failed for tool in run.tools)
        assert "two" in run.results("read")[0].text
        assert "two" in run.results("bash")[0].text


@needs(GEMINI)
def test_gemini_resumes_after_text_but_sends_a_tool_result_twice(tmp_path: Path):
    """A bug of Gemini CLI 0.61.0 when it resumes; the provider refuses it, too.

    Each start of it takes four seconds of the processor, so this also shows that its tools run,
    by their own names and by the common ones.
    """
    with drive(GEMINI.make(), cwd=tmp_path) as rehearsal:
        rehearsal.run(when("Hello", [say("Hello.")]))
        params = GEMINI.params("echo it is real > made.txt; cat made.txt")
        steps = [call(GEMINI.tool, params), *note_by_common_names(GEMINI, tmp_path / "note.txt")]
        second = rehearsal.run(when("Go on", [*steps, say("I remember.")]))
        assert (rehearsal.cwd / "made.txt").read_text() == "it is real\n"
        assert (tmp_path / "note.txt").read_text() == "two\n"
        assert [tool.name for tool in second.executed] == [GEMINI.tool, *COMMON_NAMES]
        assert second.executed[0].input == params
        assert not any(tool.result.failed for tool in second.executed)
        assert "it is real" in second.executed[0].result.text
        assert all("two" in tool.result.text for tool in second.executed[-2:])  # read and bash
        assert second.output == final_text(rehearsal.subject) == "I remember."
        assert min(event.data["count"] for event in second.events.named("model.request")) > 2
        with pytest.raises(RunError):
            rehearsal.run(when("And on", [say("Never sent.")]))
        refused = rehearsal.events.named("model.error")[0].data["message"]
        assert "function response parts" in refused


@pytest.mark.parametrize("shell", ALL)
def test_a_permanent_provider_error_fails_the_run(shell: Shell):
    with drive(shell.start()) as rehearsal, pytest.raises(RunError) as caught:
        rehearsal.run(when("Try", [fail("never, says the provider", status=403)]))
    assert shell.make().name in str(caught.value)


@needs(CODEX)
def test_codex_retries_when_configured():
    with drive(Codex(retries=1)) as rehearsal:
        run = rehearsal.run(when("Try", [fail("busy", status=503), say("Got through.")]))
        assert final_text(rehearsal.subject) == run.output == "Got through."


@pytest.mark.parametrize("shell", ALL)
def test_an_exhausted_script_fails_the_run(shell: Shell):
    with drive(shell.start()) as rehearsal, pytest.raises(ScriptExhausted):
        rehearsal.run(when("Go", [call(shell.tool, shell.params("true"))]))


@pytest.mark.parametrize("shell", QUICK)
def test_the_deadline_kills_the_client_and_its_children(shell: Shell, tmp_path: Path):
    noted = tmp_path / "pid"
    command = f"echo $$ > {noted}; exec sleep 300"
    with drive(shell.make(deadline=6), auto_assert=False) as rehearsal:
        with pytest.raises(DeadlineExceeded, match="still running after 6 s"):
            rehearsal.run(when("Wait", [call(shell.tool, shell.params(command)), say("Done.")]))
        assert not is_alive(int(noted.read_text()))


def test_a_missing_client_is_an_error_with_the_install_command(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("OFFBOOK_CLIENTS", raising=False)
    with pytest.raises(UsageError, match="npm install -g @openai/codex@"):
        drive(CODEX.make())


@pytest.mark.parametrize("prefix", ["", "opencode"])
def test_a_client_is_found_in_the_common_prefix_or_in_its_own(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program = tmp_path / prefix / "node_modules" / ".bin" / "opencode"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    monkeypatch.setenv("OFFBOOK_CLIENTS", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    assert OPENCODE.client.find() == str(program)
