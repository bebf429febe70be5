"""In GitHub Actions, no text of a trace is a workflow command; our own annotations are."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.reports import NeutralStream, neutralize
from offbook.trace import Event, encode_event
from tests.forked import forked_command
from tests.workflow_commands import read_commands

pytest_plugins = ["pytester"]
INJECTED = "ok\n::error::injected\n   ::warning file=a::injected\n##[error]injected\r::notice::x"
texts = st.text(alphabet=st.sampled_from(":#[]\r\n \t\x0b\u2028error"), max_size=30)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """The trace of a failed run in which everything is injected."""
    events = [
        ("_meta.run_start", {"subject": INJECTED, "turns": 1}),
        ("agent.start", {"prompt": INJECTED}),
        ("tool.call", {"call_id": "c1", "tool": "bash", "input": {"command": INJECTED}}),
        (
            "tool.result",
            {"call_id": "c1", "tool": "bash", "content": [{"type": "text", "text": INJECTED}]},
        ),
        ("process.output", {"stream": "stdout", "text": INJECTED}),
        ("check.verdict", {"check": INJECTED, "status": "fail", "message": INJECTED}),
        ("_meta.run_end", {"ok": False, "error": INJECTED}),
    ]
    path = tmp_path / "trace.jsonl"
    lines = [encode_event(Event(1, name, data, n)) for n, (name, data) in enumerate(events, 1)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def run_offbook(*arguments: object, cwd: Path, **streams: int) -> subprocess.CompletedProcess[str]:
    words = forked_command("-m", "offbook", *arguments)
    return subprocess.run(
        words,
        cwd=cwd,
        env={"GITHUB_ACTIONS": "true", "PATH": "/usr/bin:/bin", "HOME": str(cwd)},
        text=True,
        stdout=streams.get("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        check=False,
    )


COMMANDS = (
    ("show", "trace.jsonl", "--full"),
    ("show", "trace.jsonl"),
    ("show", "trace.jsonl", "--json"),
    ("report", "trace.jsonl", "--format", "markdown"),
    ("report", "trace.jsonl", "--format", "tap"),
    ("report", "trace.jsonl", "--format", "junit"),
    ("compare", "trace.jsonl", "trace.jsonl"),
    ("show", "missing\n::error::injected"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_is_in_the_output(trace: Path, command: tuple[str, ...]):
    ended = run_offbook(*command, cwd=trace.parent)
    assert ended.stdout + ended.stderr
    assert read_commands(ended.stdout) == read_commands(ended.stderr) == []


def test_without_it_the_tree_would_have_commands(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from offbook.surfaces.cli import main

    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    with pytest.raises(SystemExit):
        main(["show", str(trace), "--full"])
    assert read_commands(capsys.readouterr().out)


def test_our_own_annotations_are_commands(trace: Path):
    ended = run_offbook("report", "trace.jsonl", "--format", "github", cwd=trace.parent)
    [command] = read_commands(ended.stdout)
    assert command.name == "error"
    assert "::warning file=a::injected" in command.message


def test_json_has_the_same_values(trace: Path):
    verdict = {"check": "##[error]", "status": "fail", "message": "##[error]x"}
    trace.write_bytes(encode_event(Event(1, "check.verdict", verdict, 1)) + b"\n")
    ended = run_offbook("show", "trace.jsonl", "--json", cwd=trace.parent)
    assert "##[" not in ended.stdout
    assert json.loads(ended.stdout)["trace"] == "trace.jsonl"


def test_a_file_gets_its_content_unchanged(trace: Path):
    with (trace.parent / "out.txt").open("w") as file:
        run_offbook("show", "trace.jsonl", "--full", cwd=trace.parent, stdout=file.fileno())
    assert "##[error]injected" in (trace.parent / "out.txt").read_text()


def test_the_commands_of_a_child_process_are_its_own(tmp_path: Path):
    (tmp_path / "p.yaml").write_text("- when: Hi\n  do:\n    - say: x\n")
    child = "print('::error::of the child')"
    command = ("run", "--script", "p.yaml", "--", sys.executable, "-c", child)
    ended = run_offbook(*command, cwd=tmp_path)
    assert [each.message for each in read_commands(ended.stdout)] == ["of the child"]


@given(texts)
def test_no_line_of_a_text_is_a_command(text: str):
    assert read_commands(neutralize(text)) == []


@given(st.lists(texts, max_size=6))
def test_a_command_in_parts_is_none_either(parts: list[str]):
    written = io.StringIO()
    stream = NeutralStream(written)
    for part in parts:
        assert stream.write(part) == len(part)
    assert read_commands(written.getvalue()) == []
    assert written.getvalue().replace(" ", "") == "".join(parts).replace(" ", "")


def test_a_text_without_commands_is_unchanged():
    text = "a :: b\n# c ## d [e]\n : x\n"
    assert neutralize(text) == text


TEST = """
from offbook import call, say, when

def shout(api):
    @api.tool("shout", "Shout.", {"type": "object", "properties": {}})
    def run(params, ctx):
        return "ok ##[error]injected"

def test_it(offbook):
    session = offbook.session(extensions=[shout])
    session.run(when("Go", [call("shout"), say("x"), say("never")]))
"""


def test_the_trace_in_a_report_of_pytest_has_none(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(test_it=TEST)
    result = pytester.runpytest_inprocess("-p", "no:randomly", "-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    assert "injected" in result.stdout.str()
    assert read_commands(result.stdout.str()) == []
