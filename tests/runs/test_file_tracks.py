"""The files that a command changes are on its tape, and a replay reports the first that differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from offbook import Cassette, Playbook, Recording, drive, say, when
from offbook.errors import CheckFailed
from offbook.runs import Rehearsal, TerminalCommand
from offbook.sources.cassette import load_cassette
from offbook.sources.cassette.maintenance import describe_limits
from tests.clients import CODEX, needs
from tests.forked import forked_command
from tests.runs.taped_clients import replay_client
from tests.subjects.frameworks.test_tool_runners import openai_loop

AGENT = """
import json, os, pathlib, urllib.request
def ask(prompt):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": prompt}]}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
pathlib.Path("notes.txt").write_text("begun\\n")
plan = ask("Plan")
pathlib.Path("out").mkdir(exist_ok=True)
pathlib.Path("out/plan.md").write_text(f"# {plan}\\nline two\\n")
pathlib.Path("out/image.bin").write_bytes(bytes(range(256)))
pathlib.Path("__pycache__").mkdir(exist_ok=True)
pathlib.Path("__pycache__/agent.pyc").write_bytes(os.urandom(8))
report = ask("Report")
pathlib.Path("report.md").write_text(report)
pathlib.Path("notes.txt").unlink()
"""
CHANGES: dict[str, tuple[Callable[[str], str], str]] = {
    "another text": (
        lambda code: code.replace("line two", "line three"),
        "at interaction 1 (track: files): out/plan.md differs",
    ),
    "another binary": (
        lambda code: code.replace("range(256)", "range(255)"),
        "at interaction 1 (track: files): out/image.bin differs",
    ),
    "a file that is not written": (
        lambda code: code.replace('Path("report.md")', 'Path("/dev/null")'),
        "at interaction 2 (track: files): report.md differs\nRecorded: written\nGot:      removed",
    ),
    "a file that is not removed": (
        lambda code: code.replace(".unlink()", ".touch()"),
        "at interaction 2 (track: files): notes.txt differs\nRecorded: removed\nGot:      written",
    ),
    "another file": (
        lambda code: code + 'pathlib.Path("more.txt").write_text("more")',
        "(track: files): more.txt differs\nRecorded: not changed\nGot:      written",
    ),
}


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    """Record the command in a folder with the tape and the trace."""
    playbook = Playbook()
    playbook.load(when("Plan", [say("A plan.")]), when("Report", [say("Key k-0123456789abcdef")]))
    (tmp_path / "agent.py").write_text(AGENT)
    with Recording(playbook, tmp_path / "tape.yaml", tracks="all") as source:
        run(source, tmp_path)
    return tmp_path / "tape.yaml"


class Client(TerminalCommand):
    """A command with a setting of the same name as one of Gemini CLI."""

    folder = ".agent"


def run(source: Any, folder: Path) -> None:
    subject = Client(forked_command("agent.py"), cwd=folder, echo=False)
    with Rehearsal(subject, source=source, trace=folder / "trace.jsonl") as rehearsal:
        rehearsal.run("")


def clear(folder: Path) -> None:
    for name in ("report.md", "out/plan.md", "out/image.bin", "trace.jsonl"):
        (folder / name).unlink()


def test_a_tape_has_the_files_that_a_command_changed(tape: Path):
    steps = [[*item.files] for item in load_cassette(tape)]
    assert [[file.file for file in step] for step in steps] == [
        ["notes.txt", "out/image.bin", "out/plan.md"],
        ["notes.txt", "report.md"],
    ]
    assert steps[0][0].text == "begun"  # without trailing spaces, as requests are
    assert steps[0][1].text.startswith("binary, 256 bytes, sha256 ")
    assert steps[0][2].text == "# A plan.\nline two"
    assert (steps[1][0].removed, steps[1][1].removed) == (True, False)


def test_the_same_files_pass(tape: Path):
    for is_empty in (True, False):  # in a new folder, and where the files are already
        if is_empty:
            clear(tape.parent)
        cassette = Cassette(tape, tracks="all")
        run(cassette, tape.parent)
        assert cassette.verdict().status == "pass", cassette.verdict().message
        (tape.parent / "trace.jsonl").unlink()


def test_a_file_that_is_as_recorded_need_not_be_written(tape: Path):
    code = AGENT.replace('pathlib.Path("report.md").write_text(report)', "")
    (tape.parent / "agent.py").write_text(code)
    (tape.parent / "trace.jsonl").unlink()
    run(Cassette(tape, tracks="all"), tape.parent)


def test_files_that_were_not_compared_are_a_warning(tape: Path):
    async def ask(client: openai.AsyncOpenAI, prompt: str) -> None:
        messages: Any = [{"role": "user", "content": prompt}]
        await client.chat.completions.create(model="m", messages=messages)

    async def agent(_prompt: str) -> None:
        async with openai.AsyncOpenAI() as client:
            await ask(client, "Plan")
            await ask(client, "Report")

    cassette = Cassette(tape, tracks="all")
    with drive(agent, source=cassette) as rehearsal:
        rehearsal.run("")
    verdict = cassette.verdict()
    assert verdict.status == "warn"
    assert verdict.message == "4 files of the tape not compared: no command was run"


@pytest.mark.parametrize("name", CHANGES)
def test_the_first_file_that_differs_is_reported(name: str, tape: Path):
    change, expected = CHANGES[name]
    clear(tape.parent)
    (tape.parent / "agent.py").write_text(change(AGENT))
    with pytest.raises(CheckFailed) as raised:
        run(Cassette(tape, tracks="all"), tape.parent)
    assert expected in str(raised.value)
    if name == "another text":
        assert "- line two\n+ line three" in str(raised.value)
    (tape.parent / "trace.jsonl").unlink()
    run(Cassette(tape), tape.parent)  # the model alone


def test_secrets_of_files_are_not_on_the_tape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHOP_API_KEY", "k-0123456789abcdef")
    playbook, path = Playbook(), tmp_path / "tape.yaml"
    playbook.load(when("Plan", [say("A plan.")]), when("Report", [say("Key k-0123456789abcdef")]))
    (tmp_path / "agent.py").write_text(AGENT)
    with Recording(playbook, path, tracks="all") as source:
        run(source, tmp_path)
    assert "k-0123456789abcdef" in (tmp_path / "report.md").read_text()
    assert "k-0123456789" not in path.read_text()
    (tmp_path / "trace.jsonl").unlink()


def test_a_folder_with_many_files_is_a_limit_of_the_tape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("offbook.checks.expected_files.MAX_STATES", 3)
    playbook, path = Playbook(), tmp_path / "tape.yaml"
    playbook.load(when("Plan", [say("A plan.")]), when("Report", [say("Done.")]))
    (tmp_path / "agent.py").write_text(AGENT)
    with Recording(playbook, path, tracks="model,files") as source:
        run(source, tmp_path)
    (limit,) = describe_limits(load_cassette(path))
    assert limit.startswith("the folder has too many files")


@needs(CODEX)
def test_a_real_client_replays_with_its_files(tmp_path: Path):
    """bench/tapes.py replays four clients ten times."""
    assert replay_client(CODEX, tmp_path, replays=1) == 1


def test_an_agent_of_this_process_has_no_files_on_its_tape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    playbook, path = Playbook(), tmp_path / "tape.yaml"
    playbook.load(when("Go", [say("Done.")]))

    def agent(prompt: str) -> str:
        (tmp_path / "seen.txt").write_text(prompt)
        return openai_loop(prompt, str)

    with (
        Recording(playbook, path, tracks="all") as source,
        drive(agent, source=source, cwd=tmp_path) as rehearsal,
    ):
        rehearsal.run("Go")
    assert [item.files for item in load_cassette(path)] == [()]
