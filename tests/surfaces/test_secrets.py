"""No command writes or prints any of the secrets.

A command is recorded, replayed, imported and shown; a loop is run in a workspace, checked and
reported in every format; tests fail under pytest.
"""

from __future__ import annotations

import ast
import asyncio
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook import secrets
from offbook.errors import ModelError
from offbook.exchange import Reply, Request, Text, Thinking, ToolCall
from offbook.reports.report import FORMATS as REPORT_FORMATS
from offbook.sources.cassette import Recording
from offbook.sources.server import Server
from offbook.surfaces.mcp_server import all_tools, serve_lines
from tests.planted_secrets import CHANNELS, CONTEXTS, ENVIRONMENT, FORMATS, draw_values, plant
from tests.sources.cassette.conversations import Counting, ask
from tests.sources.cassette.test_secrets import all_files
from tests.surfaces.conftest import Offbook
from tests.viewer.test_html_page import read_lines

pytest_plugins = ["pytester"]

# Sends the secrets in headers, in the URL, in the system prompt, as a prompt and as the result of a
# tool; then prints them and the replies.
AGENT = """
import json, os, sys, urllib.error, urllib.request
text = open(os.environ["PLANTED"]).read()
known = os.environ["SHOP_PASSWORD"] + " " + " ".join(sys.argv[1:])
call = {"id": "call_1", "type": "function", "function": {"name": "cat", "arguments": "{}"}}
messages = [
    {"role": "system", "content": text},
    {"role": "user", "content": sys.argv[1] + text + known},
    {"role": "assistant", "content": None, "tool_calls": [call]},
    {"role": "tool", "tool_call_id": "call_1", "content": text},
]
headers = {"content-type": "application/json", "cookie": "sid=" + known}
headers |= {"authorization": "Bearer " + sys.argv[3], "x-api-key": sys.argv[3]}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions?api_key=" + sys.argv[3]
tools = [{"type": "function", "function": {"name": "cat", "description": text, "parameters": {}}}]
for _ in range(3):
    body = json.dumps({"model": "gpt-5", "messages": messages, "tools": tools, "user": text})
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers)).read()
        print(json.loads(answer)["choices"][0]["message"]["content"])
    except urllib.error.HTTPError as error:
        print(error.read().decode())
print(text, known)
"""
TESTS = """
import os
from pathlib import Path
from offbook import Mocks, call, say, when

SECRETS = Path(os.environ["PLANTED"]).read_text()
PARAMS = {"command": SECRETS}


def test_an_exhausted_script(offbook):
    session = offbook.session(mock_tools={"bash": SECRETS}, system_prompt=SECRETS)
    session.run(when(SECRETS, [call("bash", PARAMS)]))


def test_remaining_actions(offbook):
    offbook.session().run(when(SECRETS, [say(SECRETS), say("more")]))


def test_a_failing_callback(offbook):
    def fail(result):
        raise RuntimeError("no")

    session = offbook.session(mock_tools={"bash": SECRETS})
    session.run(when(SECRETS, [call("bash", PARAMS).then(fail), say(SECRETS)]))


def test_an_unmatched_mock(offbook, tmp_path):
    (tmp_path / "m.jsonl").write_text('{"match": "*nothing*", "text": "x"}')
    offbook.session(source=Mocks(tmp_path / "m.jsonl")).run("Hello " + SECRETS)


def test_a_chain_of_exceptions(offbook):
    try:
        raise ValueError(SECRETS)
    except ValueError as error:
        error.add_note(SECRETS)
        raise RuntimeError(f"failed: {SECRETS}") from error


def test_a_golden_transcript(offbook):
    session = offbook.session(mock_tools={"bash": SECRETS})
    run = session.run(when(SECRETS, [call("bash", PARAMS), say(SECRETS)]))
    run.matches_golden()


def test_a_replay_mismatch(offbook):
    offbook.session(source=offbook.cassette("shop")).run("Hello " + SECRETS)
"""
REPORTS = ("junit", "tap", "ctrf", "json", "github", "markdown", "otlp")
FILES_OF_COMMANDS = {
    "--wire": "wire.jsonl",
    "--events": "events.ndjson",
    "importers": "imported.yaml",
}
OUTPUTS_OF_COMMANDS = {
    "terminal": ("show", "trace.jsonl"),
    "OTLP": ("report", "otlp"),
    "comparison": ("compare", "wire.jsonl"),
}
OUTPUT = '<event topic="build.done">{}</event>\nLOOP_COMPLETE\n'


class Leaky:
    """A model that repeats the secrets in its replies and errors."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked = 0

    async def reply(self, _request: Request, /) -> Reply:
        self.asked += 1
        if self.asked % 3 == 0:
            raise ModelError(f"wrong key: {self.text}", status=401)
        call = ToolCall("call_2", "cat", {"password": "hunter22", "note": self.text})
        chunks = tuple(self.text[at : at + 7] for at in range(0, len(self.text), 7))
        return Reply((Thinking(self.text), Text(self.text), call), "tool_use", chunks=chunks)


class Planted:
    """The secrets of a group, the file that contains them, and what each channel shows."""

    def __init__(self, folder: Path, group: str) -> None:
        planted = plant(group)
        values = draw_values(group, len(ENVIRONMENT) + 5)
        self.group = group
        self.variables, self.values = values[: len(ENVIRONMENT)], values[len(ENVIRONMENT) :]
        self.bodies = [*(spelling for each in planted for spelling in each.spellings), *values]
        self.text = "\n".join([*(each.text for each in planted), f"password: {self.values[-1]}"])
        self.file = folder / "planted.txt"
        self.file.write_text(self.text)
        self.outputs: list[str] = []
        self.channels: dict[str, str] = {}

    @property
    def options(self) -> list[str]:
        """Command line options that contain secrets."""
        key, password, token, user = self.values[:4]
        options = ["--api-key", key, f"--password={password}", "--token", token]
        return [*options, f"postgres://shop:{user}@host/db"]

    def add_output(self, *texts: str) -> None:
        self.outputs += texts

    def add_channel(self, name: str, *texts: str) -> None:
        """Note what a channel of the group shows: it has masks, so the secrets went through it."""
        shown = "\n".join(texts)
        assert shown.count("[API_KEY]") >= 5, name
        self.channels[name] = shown
        self.add_output(shown)

    def find_leaks(self, folder: Path) -> list[str]:
        """Return the secrets in the output and in the files, with their locations."""
        assert {*self.channels} == {*CHANNELS[self.group]}
        written = {str(path): path.read_bytes() for path in all_files(folder) if path != self.file}
        written |= {f"output {at}": text.encode() for at, text in enumerate(self.outputs)}
        return [
            f"{name}: {body!r} in {raw[max(0, at - 40) : at + 30]!r}"
            for name, raw in written.items()
            for body in [*self.bodies, "hunter22"]
            if (at := raw.find(body.encode())) >= 0
        ]


@pytest.fixture
def planted(
    tmp_path: Path,
    workspaces: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Planted]:
    planted = Planted(tmp_path, request.param)
    for name, value in zip(ENVIRONMENT, planted.variables, strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PLANTED", str(planted.file))
    monkeypatch.chdir(tmp_path)
    with Server() as server:
        url = server.mount(Leaky(planted.text), run="").openai
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        monkeypatch.setenv("OPENAI_API_KEY", f"sk-proj-{planted.values[0]}")
        yield planted


def test_the_groups_have_every_pair_of_format_context_and_channel():
    groups = {name: plant(name) for name in CHANNELS}
    pairs = {(each.format, each.context) for group in groups.values() for each in group}
    assert len(pairs) == len(FORMATS) * len(CONTEXTS) == 1200
    for group in groups.values():  # all channels of a group show all its texts
        assert len({each.text for each in group}) == 200
        assert {each.format for each in group} == {*FORMATS}
        assert {each.context for each in group} == {*CONTEXTS}
    channels = [channel for group in CHANNELS.values() for channel in group]
    assert len(channels) == len({*channels})


@pytest.mark.parametrize("planted", ["commands"], indirect=True)
def test_no_secret_is_written_when_commands_are_recorded_and_replayed(
    planted: Planted, tmp_path: Path, offbook_command: Offbook
):
    (tmp_path / "agent.py").write_text(AGENT)
    agent = [sys.executable, "agent.py"]
    recorded, changed = (["--", *agent, text, *planted.options] for text in ("Refund ", "Return "))
    traced = ("--trace", "trace.jsonl", "--json")
    outputs: dict[tuple[str, str], str] = {}
    for line, code in (
        (("record", "shop.yaml", *traced, *recorded), 0),
        (("replay", "shop.yaml", *traced, *recorded), 0),
        (("replay", "shop.yaml", *traced, *changed), 1),
        (("replay", "shop.yaml", "--wire", "--trace", "wire.jsonl", *recorded), 0),
        (("replay", "shop.yaml", "--events", "events.ndjson", *recorded), 0),
        *((("report", "trace.jsonl", "--format", kind), 1) for kind in REPORTS),
        (("compare", "trace.jsonl", "wire.jsonl"), 1),
        (("view", "wire.jsonl", "-o", "page.html"), 0),
        (("record", "shop.yaml", "--only", "2", *changed), 1),
        (("show", "trace.jsonl"), 0),
        (("show", "shop.yaml"), 0),
        (("show", "shop.yaml", "1"), 0),
        (("show", "shop.yaml", "--stats"), 0),
        (("cassette", "verify", "shop.yaml", "--live"), 1),
        (("determinism", "agent.py", "--live"), 1),
    ):
        result = offbook_command(*line)
        # without --json, the output of the agent is printed as it is
        printed = "" if line[0] in {"record", "replay"} and "--json" not in line else result.out
        planted.add_output(printed, result.err)
        outputs[line[0], line[-1]] = result.out
        assert result.code in {code, 0}, (line, result.out, result.err)
    record = {"prompt": planted.text, "response": {"text": planted.text}}
    (tmp_path / "production.jsonl").write_bytes(msgspec.json.encode(record))
    for name in ("imported.yaml", "imported.jsonl"):
        assert offbook_command("import", "production.jsonl", "-o", name).code == 0
    (tmp_path / "production.jsonl").unlink()
    mocks = offbook_command("record", "mocks.jsonl", *recorded)
    planted.add_output(mocks.err)
    assert (tmp_path / "mocks.jsonl").read_text().count("\n") == 3
    for channel, name in FILES_OF_COMMANDS.items():
        planted.add_channel(channel, (tmp_path / name).read_text())
    page = read_lines((tmp_path / "page.html").read_text())
    planted.add_channel("page", msgspec.json.encode(page).decode())
    for channel, words in OUTPUTS_OF_COMMANDS.items():
        planted.add_channel(channel, outputs[words])
    assert planted.find_leaks(tmp_path) == []
    assert len(all_files(tmp_path)) >= 7


@pytest.mark.parametrize("planted", ["loop"], indirect=True)
def test_no_secret_is_written_when_a_loop_is_run_checked_and_reported(
    planted: Planted, tmp_path: Path, offbook_command: Offbook
):
    (tmp_path / "worker.py").write_text(
        f"import os, sys\nprint({OUTPUT!r}.format(open(os.environ['PLANTED']).read()))\n"
        "print(os.environ['SHOP_API_KEY'], file=sys.stderr)\n"
    )
    command = f"{sys.executable} {tmp_path / 'worker.py'} {' '.join(planted.options)}"
    environment = [f"PLANTED={planted.file}", f"SHOP_API_KEY={planted.bodies[11]}"]
    env_options = [word for variable in environment for word in ("--env", variable)]
    pattern = f"{planted.bodies[2]}"
    failing = [
        {"type": "stdout_contains", "pattern": "nothing of the kind"},
        {"type": "event_occurred", "topic": "nowhere"},
        {"type": "event_count", "topic": "build.done", "exact": 7},
        {"type": "stdout_contains", "pattern": f"sk-proj-{pattern}"},
    ]
    results = [
        offbook_command("workspace", "setup", "shop", "--scratchpad", "clean"),
        offbook_command(
            "workspace", "run", "shop", "--task", planted.text, "--command", command, *env_options
        ),
        offbook_command("workspace", "assert", "shop", msgspec.json.encode(failing).decode()),
        *(
            offbook_command(
                "workspace", "report", "shop", report_format, "--include-traces", "--print"
            )
            for report_format in ("junit", "tap", "ctrf", "json")
        ),
        *(
            offbook_command("workspace", "inspect", "shop", "--format", report_format)
            for report_format in ("json", "summary", "timeline")
        ),
    ]
    assert results[1].code == 0, results[1].err
    assert results[2].code == 1, results[2].err
    assert all(result.code == 0 for result in results[3:])
    planted.add_output(*(text for result in results for text in (result.out, result.err)))
    for channel, result in zip(("JUnit", "TAP", "CTRF", "JSON"), results[3:7], strict=True):
        planted.add_channel(channel, result.out)
    planted.add_channel("inspection", results[7].out)
    assert planted.find_leaks(tmp_path) == []


@pytest.mark.parametrize("planted", ["mcp"], indirect=True)
def test_no_secret_is_returned_by_an_mcp_tool_or_stored_in_a_snapshot(
    planted: Planted, tmp_path: Path
):
    def call(tool: str, **arguments: Any) -> None:
        result = asyncio.run(
            all_tools()[f"test_{tool}"].call({"workspace_id": "shop", **arguments})
        )
        planted.add_output(msgspec.json.encode(result).decode())

    fixtures = {"notes.txt": planted.text, "more/.env": planted.text}
    failing = [
        {"type": "file_not_contains", "path": "notes.txt", "pattern": "password"},
        {"type": "file_contains", "path": "notes.txt", "pattern": planted.text},
        {"type": "stdout_contains", "pattern": f"not there: {planted.text}"},
        {"type": planted.text},
    ]
    call("setup", fixtures=fixtures)
    replies = [{"output": OUTPUT.format(planted.text)}]
    call("run", task=planted.text, mock_responses=replies)
    call("assert", assertions=failing)
    call("snapshot", snapshot_id="after")
    (workspace,) = tmp_path.glob("**/notes.txt")
    workspace.write_text(f"changed: {planted.text[::-1]} {planted.text}")
    call("diff", baseline="after")
    for kind in ("json", "summary", "timeline"):
        call("inspect", format=kind)
    for kind in ("junit", "tap", "ctrf", "json"):
        call("report", format=kind)
    call("run", task="x", backend=planted.text)
    assert len(planted.outputs) == 13
    planted.add_channel("MCP", *planted.outputs)
    snapshots = [path for path in all_files(tmp_path) if "snapshots" in str(path)]
    planted.add_channel("snapshot of a workspace", *(path.read_text() for path in snapshots))
    assert all("[API_KEY]" in text for text in planted.outputs[2:5])
    for path in fixtures:  # the files of the agent are its own
        (workspace.parent / path).unlink()
    assert planted.find_leaks(tmp_path) == []


@pytest.mark.parametrize(
    "planted, option", [("pytest", "--tb=short"), ("locals", "--showlocals")], indirect=["planted"]
)
def test_no_secret_is_printed_by_pytest(planted: Planted, pytester: pytest.Pytester, option: str):
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(test_it=TESTS)
    quiet = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-rA")
    cassettes = pytester.path / "cassettes"
    cassettes.mkdir()
    (cassettes / "shop.yaml").write_text(
        "interactions:\n  - request: {prompt_hash: sha256:aa, messages: [{user: Hello}]}\n"
        "    response: {output: hi}\n"
    )
    result = pytester.runpytest_inprocess(*quiet, option, "--junitxml=junit.xml")
    result.assert_outcomes(failed=7)
    planted.add_output(result.stderr.str())
    if planted.group == "locals":
        planted.add_channel("pytest -l", result.stdout.str())
    else:
        planted.add_channel("pytest", result.stdout.str())
        planted.add_channel("JUnit of pytest", (pytester.path / "junit.xml").read_text())
        chain = result.stdout.str().partition("test_a_chain_of_exceptions")[2]
        planted.add_channel("exception chain", chain)
        goldens = [path for path in all_files(pytester.path) if "golden" in str(path)]
        planted.add_channel("golden", *(path.read_text() for path in goldens))
    assert planted.find_leaks(pytester.path) == []


KEY = "sk-proj-Ab3dEf6hIj9kLm2nAb3dEf6hIj9kLm2nAb3dEf6hIj9kLm2n"
FOREIGN_EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("_meta.run_start", {"subject": "python", "command": ["agent", "--token", KEY]}),
    ("model.request", {"new": [{"role": "user", "blocks": [{"type": "text", "text": KEY}]}]}),
    ("model.reply", {"blocks": [{"type": "text", "text": f"It is\n{KEY}"}], "stop": "stop"}),
    ("check.verdict", {"check": f"no {KEY}", "status": "fail", "message": KEY, "expected": KEY}),
    ("_meta.run_end", {"ok": False, "error": f"ValueError: {KEY}"}),
]


@pytest.fixture
def foreign_trace(tmp_path: Path) -> Path:
    """Return a trace that was written without masks, as by another program."""
    events = [{"ts": 1, "event": name, "data": data} for name, data in FOREIGN_EVENTS]
    path = tmp_path / "foreign.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    return path


@pytest.mark.parametrize(
    "words",
    [
        *(("show",), ("show", "--full"), ("show", "--json")),
        *(("report", "--format", name) for name in REPORT_FORMATS),
    ],
    ids=" ".join,
)
def test_no_command_prints_a_secret_of_a_trace_without_masks(
    foreign_trace: Path, offbook_command: Offbook, words: tuple[str, ...]
):
    outcome = offbook_command(*words, foreign_trace)
    assert outcome.code == 0
    assert KEY not in outcome.out


# What else writes to the standard streams of a command, and why it may.
OWN_WRITERS = {
    "cli_options.py": "the gate",
    "__main__.py": "the texts of --help and --version",
    "host/fake_program.py": "the output of a program that a test defines",
    "mcp/stdio_bridge.py": "the messages of a server, and of its bridge",
    "runs/watching.py": "an error of ours, whose text is masked",
    "sandbox/load_entry_points.py": "a program in the sandbox, whose output is read",
    "subjects/process.py": "the output of the user's command, as it is",
    "surfaces/cli/serving.py": "the key of a server, which the agent needs",
    "surfaces/cli/traces.py": "reports, which are masked where they are written",
}


def prints(node: ast.AST) -> bool:
    """Return whether a call writes to a standard stream, other than through the gate."""
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    return called in {"print", "click.echo", "click.secho"} or called.startswith(
        ("sys.stdout.write", "sys.stdout.buffer.write", "sys.stderr.write", "sys.stderr.buffer")
    )


def test_commands_print_through_one_gate():
    root = Path(secrets.__file__).parents[1]
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if any(map(prints, ast.walk(ast.parse(path.read_text("utf-8")))))
    }
    assert found == {*OWN_WRITERS}  # all others print by `echo` of cli_options


def test_a_page_has_no_secret_of_a_trace_without_masks(
    foreign_trace: Path, offbook_command: Offbook
):
    page = foreign_trace.with_suffix(".html")
    assert offbook_command("view", foreign_trace, "-o", page).code == 0
    lines = read_lines(page.read_text())
    assert len(lines) > len(FOREIGN_EVENTS)
    assert KEY not in str(lines)


def test_a_cassette_is_printed_without_the_secrets_that_were_written_into_it(
    tmp_path: Path, offbook_command: Offbook
):
    path = tmp_path / "edited.yaml"

    async def record() -> None:
        with Recording(Counting(Reply((Text("the answer"),))), path) as recording:
            await recording.reply(ask("Hi"))

    asyncio.run(record())
    path.write_text(path.read_text().replace("the answer", KEY))
    for words in ((), (1,)):
        outcome = offbook_command("show", path, *words)
        assert (outcome.code, KEY in outcome.out, "[API_KEY]" in outcome.out) == (0, False, True)


async def test_an_error_of_the_mcp_server_has_no_secret():
    output = io.BytesIO()
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()
    lines.put_nowait(msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": KEY}))
    lines.put_nowait(None)
    await serve_lines(lines, output)
    assert (
        msgspec.json.decode(output.getvalue())["error"]["message"] == "unknown method '[API_KEY]'"
    )
