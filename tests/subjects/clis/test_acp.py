"""ACP agents: prompts, permissions, plans, diffs, files, terminals and sessions."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from offbook.checks.comparison import compare_paths, render_comparison
from offbook.errors import (
    CheckFailed,
    DeadlineExceeded,
    OffbookError,
    RunError,
    ScriptMismatch,
    UsageError,
)
from offbook.people import allow, deny, person
from offbook.runs import drive
from offbook.sources.playbook import call, say, when
from offbook.subjects.clis import Acp, Codex, Command, Ralph
from offbook.testing import SubjectConformance
from tests.forked import forked_command

AGENT = Path(__file__).with_name("plain_acp_agent.py")
LS = {"command": "echo it works"}


def start(kind: str = "", **options: Any) -> Acp:
    return Acp(forked_command(AGENT, kind), **options)


class TestConformance(SubjectConformance):
    def subject(self) -> Acp:
        return start()

    def call(self):
        return "shell", LS


def test_the_answer_is_the_last_message_of_the_agent():
    with drive(start()) as rehearsal:
        run = rehearsal.run(
            when("Go", [[say("I look."), call("shell", LS)], say("It works.")]),
            when("Again", [say("Still here.")]),
        )
        texts = [event.data["text"] for event in run.events.named("process.result")]
    assert texts == ["It works.", "Still here."]
    assert run.output == "Still here."


def test_the_chunks_of_a_message_are_one_event():
    with drive(start()) as rehearsal:
        run = rehearsal.run(when("Go", [call("shell", LS), say("It works.")]))
        updates = [event.data for event in run.events.named("process.event")]
    assert [update["sessionUpdate"] for update in updates] == [
        "tool_call",
        "tool_call_update",
        "agent_message_chunk",
    ]
    assert updates[-1]["content"]["text"] == "It works."


def test_the_command_and_the_protocol_of_one_agent_do_the_same(tmp_path: Path):
    turns = [when("Go", [call("shell", LS), say("It works.")]), when("On", [say("Still here.")])]
    command = Command(forked_command(AGENT, "", "{prompt}"))
    traces = [tmp_path / "command.jsonl", tmp_path / "acp.jsonl"]
    for subject, trace in zip((command, start()), traces, strict=True):
        with drive(subject, trace=trace) as rehearsal:
            rehearsal.run(*turns)
    comparison = compare_paths(traces[0], traces[1])
    assert comparison.same, [*render_comparison(comparison)]
    assert len(comparison.traces[0].rows) > 10


def test_another_answer_over_the_protocol_is_a_difference(tmp_path: Path):
    traces = [tmp_path / "command.jsonl", tmp_path / "acp.jsonl"]
    command = Command(forked_command(AGENT, "", "{prompt}"))
    for subject, trace, text in zip((command, start()), traces, ("one", "two"), strict=True):
        with drive(subject, trace=trace) as rehearsal:
            rehearsal.run(when("Go", [say(text)]))
    assert compare_paths(traces[0], traces[1]).traces[0].differences["answers"] == 1


@pytest.mark.parametrize(
    "kind, end",
    [
        ("a crash after it", "failed with exit code 3"),
        ("a kill after it", "was killed by SIGUSR1"),
        ("an error at the end", "(?s)failed with exit code 1 .*cannot save the session"),
    ],
)
def test_an_agent_that_crashes_after_its_last_answer_fails_the_run(kind: str, end: str):
    rehearsal = drive(start(kind))
    rehearsal.run(when("Go", [say("It works.")]))
    with pytest.raises(CheckFailed, match=end):
        rehearsal.dispose()


# --- Permissions

ANSWERS = [
    (allow, "1", ["chosen", "it", "servers"]),
    (deny, "3", ["chosen", "servers"]),
    ("Always", "2", ["chosen", "it", "servers"]),
]


@pytest.mark.parametrize("answer, chosen, files", ANSWERS)
def test_a_person_answers_a_permission_request(answer: Any, chosen: str, files: list[str]):
    with drive(start("asks")) as rehearsal:
        rehearsal.run(
            when("Go", [call("shell", {"command": "touch it"}), person("shell", answer), say("K.")])
        )
        (event,) = [e for e in rehearsal.read_events() if e.event == "person.asked"]
        assert (rehearsal.cwd / "chosen").read_text() == chosen
        assert sorted(path.name for path in rehearsal.cwd.iterdir()) == files
    assert event.data["tool"] == "shell"
    assert event.data["input"] == {"command": "touch it"}
    assert event.data["question"] == "touch it"


WRONG_ANSWERS: list[tuple[list[Any], type[OffbookError], str]] = [
    ([], ScriptMismatch, r"asked an approval of shell.*no person\(…\) of the script answers it"),
    ([person("shell", allow({"command": "ls"}))], UsageError, "ACP cannot change the parameters"),
    ([person("shell", "Never")], UsageError, r"(?s)no such answer about shell: 'Never'.*'Always'"),
]


@pytest.mark.parametrize("people, error, message", WRONG_ANSWERS)
def test_a_wrong_answer_fails_the_run(
    tmp_path: Path, people: list[Any], error: type[OffbookError], message: str
):
    steps = [call("shell", {"command": "touch it"}), *people, say("K.")]
    with (
        pytest.raises(error, match=message),
        drive(start("asks"), cwd=tmp_path) as rehearsal,
    ):
        rehearsal.run(when("Go", steps))
    assert (tmp_path / "chosen").read_text() == "cancelled"
    assert not (tmp_path / "it").exists()


def test_a_person_who_is_never_asked_fails_the_run():
    with (
        pytest.raises(ScriptMismatch, match=r'asked no person: step 2. person\("shell", allow\)'),
        drive(start()) as rehearsal,
    ):
        rehearsal.run(when("Go", [call("shell", LS), person("shell", allow), say("K.")]))


# --- Plans, diffs, files and terminals


def test_a_plan_is_in_the_trace():
    entries = [{"content": "Look", "priority": "high", "status": "pending"}]
    with drive(start()) as rehearsal:
        run = rehearsal.run(when("Go", [call("plan", {"entries": entries}), say("Planned.")]))
        (plan,) = run.events.named("plan")
    assert plan.data == {"plan": {"entries": entries}}


def test_the_client_reads_and_writes_files_and_the_diff_is_in_the_trace():
    lines = {"line": 2, "limit": 1}
    with drive(start(files=True)) as rehearsal:
        run = rehearsal.run(
            when(
                "Go",
                [
                    call("write", {"path": "a/b.txt", "content": "one\ntwo\nthree\n"}),
                    call("read", {"path": "a/b.txt"}),
                    call("read", {"path": "a/b.txt", "lines": lines}),
                    say("Written."),
                ],
            )
        )
        path = rehearsal.cwd / "a/b.txt"
        assert path.read_text() == "one\ntwo\nthree\n"
        updates = [event.data for event in run.events.named("process.event")]
        calls = [e.data["operation"] for e in run.events.named("host.call")]
    assert [result.text for result in run.results("read")] == ["one\ntwo\nthree\n", "two\n"]
    diffs = [item for update in updates for item in update.get("content", ()) if "newText" in item]
    assert [diff["newText"] for diff in diffs] == ["one\ntwo\nthree\n"]
    assert calls == ["write_text_file", "read_text_file", "read_text_file"]


@pytest.mark.parametrize("path", ["../outside.txt", "/no-such-folder/x", "missing.txt"])
def test_a_file_outside_of_the_working_directory_is_refused(path: str):
    with drive(start(files=True)) as rehearsal:
        run = rehearsal.run(when("Go", [call("read", {"path": path}), say("K.")]))
    assert re.match("cannot read|.* is outside of", run.results("read")[0].text)


TERMINALS = [
    ({"command": "echo one; echo two >&2"}, [{"exitCode": 0, "signal": None}, "one\ntwo\n", False]),
    ({"command": "exit 3"}, [{"exitCode": 3, "signal": None}, "", False]),
    ({"command": "echo 12345", "limit": 4}, [{"exitCode": 0, "signal": None}, "345\n", True]),
    ({"command": "sleep 60", "kill": True}, [{"exitCode": None, "signal": "SIGKILL"}, "", False]),
]


@pytest.mark.parametrize("given, expected", TERMINALS)
def test_the_client_runs_a_command_in_a_terminal(given: dict[str, Any], expected: list[Any]):
    with drive(start(terminals=True)) as rehearsal:
        run = rehearsal.run(when("Go", [call("terminal", given), say("Done.")]))
    ended, output, truncated = json.loads(run.results("terminal")[0].text)
    assert [ended, "".join(sorted(output)), truncated] == [
        expected[0],
        "".join(sorted(expected[1])),  # the two streams come in any order
        expected[2],
    ]


def test_an_agent_that_uses_what_the_client_does_not_offer_breaks_the_protocol():
    with (
        pytest.raises(RunError, match="sent 'fs/read_text_file', which the client does not offer"),
        drive(start()) as rehearsal,
    ):
        rehearsal.run(when("Go", [call("read", {"path": "a"}), say("K.")]))


# --- Sessions


def test_a_session_is_loaded_by_a_new_process():
    with drive(start(reload=True)) as rehearsal:
        rehearsal.run(when("Go", [call("shell", LS), say("It works.")]))
        run = rehearsal.run(when("Again", [say("Still here.")]))
        starts = rehearsal.events.named("process.start")
        (request,) = run.events.named("model.request")
    assert len(starts) == 2
    assert request.data["count"] == 5  # two prompts, a call, its result and an answer
    assert run.output == "Still here."


NO_LOAD = [
    ("no load", "reload needs an agent with the capability loadSession"),
    ("an empty load", "session/load must send the messages so far"),
]


@pytest.mark.parametrize("kind, message", NO_LOAD)
def test_an_agent_that_cannot_load_its_session_fails(kind: str, message: str):
    with pytest.raises(RunError, match=message), drive(start(kind, reload=True)) as rehearsal:
        rehearsal.run(when("Go", [say("Hello.")]), when("Again", [say("Still here.")]))


def test_the_mcp_servers_are_part_of_the_session():
    with drive(start(mcp={"shop": ["shop-server"]})) as rehearsal:
        rehearsal.run(when("Go", [say("Hello.")]))
        assert json.loads((rehearsal.cwd / "servers").read_text()) == ["shop"]


# --- Agents that break the protocol, and other failures

BROKEN = [
    ("a version", "unknown protocol version 9"),
    ("a print", "a line on stdout is not JSON: 'thinking'"),
    ("an unknown update", "unknown update 'a_dance'"),
    ("an unknown call", "an update of the unknown tool call"),
    ("no options", "a permission request must have options"),
    ("a reason", "unknown stopReason 'tired'"),
    ("an unknown method", "sent 'session/dance', which the client does not offer"),
    ("an exit", r"(?s)failed with exit code 1 during session/prompt.*out of ideas"),
]


@pytest.mark.parametrize("kind, message", BROKEN)
def test_an_agent_that_breaks_the_protocol_fails_the_run(kind: str, message: str):
    people = [person("shell", "1")] if kind == "no options" else []
    with pytest.raises(RunError, match=message), drive(start(kind)) as rehearsal:
        rehearsal.run(when("Go", [call("shell", LS), *people, say("Done.")]))


def test_the_messages_of_an_agent_that_keeps_the_rules_are_counted():
    with drive(start()) as rehearsal:
        rehearsal.run(when("Go", [say("Hello.")]))
    (verdict,) = [
        event.data
        for event in rehearsal.read_events()
        if event.event == "check.verdict" and event.data["check"] == "ACP protocol"
    ]
    assert verdict["status"] == "pass"
    assert verdict["actual"] >= 4


def test_an_agent_that_does_not_answer_is_ended():
    with (
        pytest.raises(DeadlineExceeded, match="did not answer session/prompt within 1 s"),
        drive(start("silence", deadline=1)) as rehearsal,
    ):
        rehearsal.run(when("Go", [say("Hello.")]))


def test_an_agent_that_requires_to_sign_in_is_reported_with_its_methods():
    with (
        pytest.raises(UsageError, match=r"(?s)requires to sign in.*\['browser'\]"),
        drive(start("a sign-in")) as rehearsal,
    ):
        rehearsal.run(when("Go", [say("Hello.")]))


def test_a_client_without_acp_is_refused():
    with (
        pytest.raises(UsageError, match="ralph does not speak ACP"),
        drive(Acp(Ralph(program="/bin/true"))) as rehearsal,
    ):
        rehearsal.run(when("Go", [say("Hello.")]))


def test_the_options_of_a_client_are_given_to_it():
    with pytest.raises(UsageError, match=r"(?s)'deadline' for a command only.*Codex\(deadline=…\)"):
        Acp(Codex(), deadline=3)
