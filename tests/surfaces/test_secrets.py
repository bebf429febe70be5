"""Forty secrets in every place that can hold one; not a byte that is written has any of them.

As people work: a command is recorded, replayed, fails, is imported, run for mocks and looked at; a
loop is recorded in a workspace, judged and reported in every format; tests fail under pytest.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from offbook.errors import ModelError
from offbook.exchange.messages import Text, Thinking, ToolCall
from offbook.exchange.model import Reply, Request
from offbook.sources.server.server import Server
from tests.sources.cassette.test_secrets import ENVIRONMENT, all_files, secrets
from tests.surfaces.conftest import Offbook

pytest_plugins = ["pytester"]

# Sends what it was given in headers, in the URL, in the system prompt, as a prompt and as the
# result of a tool that read a file; then prints it, and what it is answered.
AGENT = """
import json, os, sys, urllib.error, urllib.request
told = open(os.environ["PLANTED"]).read()
known = os.environ["SHOP_PASSWORD"] + " " + " ".join(sys.argv[1:])
call = {"id": "call_1", "type": "function", "function": {"name": "cat", "arguments": "{}"}}
messages = [
    {"role": "system", "content": told},
    {"role": "user", "content": sys.argv[1] + told + known},
    {"role": "assistant", "content": None, "tool_calls": [call]},
    {"role": "tool", "tool_call_id": "call_1", "content": told},
]
headers = {"content-type": "application/json", "cookie": "sid=" + known}
headers |= {"authorization": "Bearer " + sys.argv[3], "x-api-key": sys.argv[3]}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions?api_key=" + sys.argv[3]
tools = [{"type": "function", "function": {"name": "cat", "description": told, "parameters": {}}}]
for _ in range(3):
    body = json.dumps({"model": "gpt-5", "messages": messages, "tools": tools, "user": told})
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers)).read()
        print(json.loads(answer)["choices"][0]["message"]["content"])
    except urllib.error.HTTPError as error:
        print(error.read().decode())
print(told, known)
"""
TESTS = """
import os
from pathlib import Path
from offbook import Mocks, call, say, when

TOLD = Path(os.environ["PLANTED"]).read_text()
WORDS = {"command": TOLD}


def test_a_script_that_is_too_short(offbook):
    session = offbook.session(mock_tools={"bash": TOLD}, system_prompt=TOLD)
    session.run(when(TOLD, [call("bash", WORDS)]))


def test_a_script_that_is_too_long(offbook):
    offbook.session().run(when(TOLD, [say(TOLD), say("more")]))


def test_a_call_that_was_not_expected(offbook):
    def fail(result):
        raise RuntimeError("no")

    session = offbook.session(mock_tools={"bash": TOLD})
    session.run(when(TOLD, [call("bash", WORDS).then(fail), say(TOLD)]))


def test_a_mock_that_does_not_fit(offbook, tmp_path):
    (tmp_path / "m.jsonl").write_text('{"match": "*nothing*", "text": "x"}')
    offbook.session(source=Mocks(tmp_path / "m.jsonl")).run("Hello " + TOLD)


def test_another_request(offbook):
    offbook.session(source=offbook.cassette("shop")).run("Hello " + TOLD)
"""
CALL = '<event topic="build.done">{}</event>\nLOOP_COMPLETE\n'


class Leaky:
    """A model that says all it should not, and a provider that tells it when it refuses."""

    def __init__(self, told: str) -> None:
        self.told = told
        self.asked = 0

    async def reply(self, _request: Request, /) -> Reply:
        self.asked += 1
        if self.asked % 3 == 0:
            raise ModelError(f"wrong key: {self.told}", status=401)
        call = ToolCall("call_2", "cat", {"password": "hunter22", "note": self.told})
        chunks = tuple(self.told[at : at + 7] for at in range(0, len(self.told), 7))
        return Reply((Thinking(self.told), Text(self.told), call), "tool_use", chunks=chunks)


class Planted:
    """The secrets, where they are planted, and what was written after that."""

    def __init__(self, folder: Path) -> None:
        self.bodies, texts = secrets()
        self.kept = self.bodies[len(texts) :]
        self.told = "\n".join([*texts, f"password: {self.kept[-1]}"])
        self.file = folder / "planted.txt"
        self.file.write_text(self.told)
        self.said: list[str] = []

    @property
    def words(self) -> list[str]:
        """A command line that holds some."""
        key, password, token = self.bodies[3], self.bodies[5], self.bodies[7]
        options = ["--api-key", key, f"--password={password}", "--token", token]
        return [*options, f"postgres://shop:{self.bodies[9]}@host/db"]

    def hear(self, *texts: str) -> None:
        self.said += texts

    def found(self, folder: Path) -> list[str]:
        """Which secrets are in anything that was said or written, and where."""
        written = {str(path): path.read_bytes() for path in all_files(folder) if path != self.file}
        written |= {f"said {at}": text.encode() for at, text in enumerate(self.said)}
        return [
            f"{name}: {raw[max(0, at - 40) : at + 30]!r}"
            for name, raw in written.items()
            for body in [*self.bodies, "hunter22"]
            if (at := raw.find(body.encode())) >= 0
        ]


@pytest.fixture
def planted(tmp_path: Path, workspaces: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Planted]:
    planted = Planted(tmp_path)
    for name, value in zip(ENVIRONMENT, planted.kept, strict=False):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PLANTED", str(planted.file))
    monkeypatch.chdir(tmp_path)
    with Server() as server:
        url = server.mount(Leaky(planted.told), run="").openai
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        monkeypatch.setenv("OPENAI_API_KEY", f"sk-proj-{planted.bodies[0]}")
        yield planted


def test_no_secret_is_written_when_commands_are_recorded_and_replayed(
    planted: Planted, tmp_path: Path, offbook_command: Offbook
):
    (tmp_path / "agent.py").write_text(AGENT)
    words = [sys.executable, "agent.py"]
    asked, other = (["--", *words, text, *planted.words] for text in ("Refund ", "Return "))
    traced = ("--trace", "trace.jsonl", "--json")
    for line, code in (
        (("record", "shop.yaml", *traced, *asked), 0),
        (("replay", "shop.yaml", *traced, *asked), 0),
        (("replay", "shop.yaml", *traced, *other), 1),
        (("record", "shop.yaml", "--only", "2", *other), 1),
        (("show", "trace.jsonl"), 0),
        (("cassette", "show", "shop.yaml"), 0),
        (("cassette", "show", "shop.yaml", "1"), 0),
        (("cassette", "stats", "shop.yaml"), 0),
        (("cassette", "verify", "shop.yaml", "--live"), 1),
        (("determinism", "agent.py", "--live"), 1),
    ):
        done = offbook_command(*line)
        printed = done.out if "--only" not in line else ""  # shown as the command prints it
        planted.hear(printed, done.err)
        assert done.code in {code, 0}, (line, done.out, done.err)
    record = {"prompt": planted.told, "response": {"text": planted.told}}
    (tmp_path / "production.jsonl").write_bytes(msgspec.json.encode(record))
    for name in ("imported.yaml", "imported.jsonl"):
        assert offbook_command("import", "production.jsonl", "-o", name).code == 0
    (tmp_path / "production.jsonl").unlink()
    mocks = offbook_command("record", "mocks.jsonl", *asked)
    planted.hear(mocks.err)
    assert (tmp_path / "mocks.jsonl").read_text().count("\n") == 3
    assert planted.found(tmp_path) == []
    assert len(all_files(tmp_path)) >= 7


def test_no_secret_is_written_when_a_loop_is_recorded_judged_and_reported(
    planted: Planted, tmp_path: Path, offbook_command: Offbook
):
    (tmp_path / "worker.py").write_text(
        f"import os, sys\nprint({CALL!r}.format(open(os.environ['PLANTED']).read()))\n"
        "print(os.environ['SHOP_API_KEY'], file=sys.stderr)\n"
    )
    command = f"{sys.executable} {tmp_path / 'worker.py'} {' '.join(planted.words)}"
    environment = [f"PLANTED={planted.file}", f"SHOP_API_KEY={planted.bodies[11]}"]
    given = [word for one in environment for word in ("--env", one)]
    pattern = f"{planted.bodies[2]}"
    failing = [
        {"type": "stdout_contains", "pattern": "nothing of the kind"},
        {"type": "event_occurred", "topic": "nowhere"},
        {"type": "event_count", "topic": "build.done", "exact": 7},
        {"type": "stdout_contains", "pattern": f"sk-proj-{pattern}"},
    ]
    said = [
        offbook_command("workspace", "setup", "shop", "--scratchpad", "clean"),
        offbook_command(
            "workspace", "run", "shop", "--task", planted.told, "--command", command, *given
        ),
        offbook_command("workspace", "assert", "shop", msgspec.json.encode(failing).decode()),
        *(
            offbook_command("workspace", "report", "shop", form, "--include-traces", "--print")
            for form in ("junit", "tap", "ctrf", "json")
        ),
        *(
            offbook_command("workspace", "inspect", "shop", "--format", form)
            for form in ("json", "summary", "timeline")
        ),
    ]
    assert said[1].code == 0, said[1].err
    assert said[2].code == 1, said[2].err
    assert all(done.code == 0 for done in said[3:])
    planted.hear(*(text for done in said for text in (done.out, done.err)))
    assert planted.found(tmp_path) == []


def test_no_secret_is_told_by_pytest(planted: Planted, pytester: pytest.Pytester):
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(test_it=TESTS)
    quiet = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-rA")
    cassettes = pytester.path / "cassettes"
    cassettes.mkdir()
    (cassettes / "shop.yaml").write_text(
        "interactions:\n  - request: {prompt_hash: sha256:aa, messages: [{user: Hello}]}\n"
        "    response: {output: hi}\n"
    )
    result = pytester.runpytest_inprocess(*quiet, "--tb=short", "--junitxml=junit.xml")
    result.assert_outcomes(failed=5)
    planted.hear(result.stdout.str(), result.stderr.str())
    assert planted.found(pytester.path) == []
