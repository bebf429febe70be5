"""The commands that record, replay, import and maintain cassettes."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from offbook.errors import ModelError
from offbook.exchange import Reply, Text, Thinking, ToolCall
from offbook.sources.cassette import load_cassette
from offbook.sources.server import Server
from offbook.surfaces.cli import main
from tests.forked import forked_command, run_python
from tests.sources.cassette.conversations import (
    LOOK,
    Counting,
    ask,
    looking_up,
    record,
    record_prompts,
)
from tests.surfaces.conftest import Offbook

FOSSILS = Path(__file__).parents[1] / "sources" / "cassette" / "fossils"

AGENT = """
import json, os, sys, urllib.request
for prompt in sys.argv[1:]:
    body = json.dumps({"model": "gpt-5", "messages": [{"role": "user", "content": prompt}]})
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, body.encode(), {"content-type": "application/json"})
    print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
"""


def run_offbook(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "offbook", *arguments, cwd=cwd)


@pytest.fixture
def agent(tmp_path: Path) -> list[str]:
    (tmp_path / "agent.py").write_text(AGENT)
    return ["--", *forked_command("agent.py")]


def test_one_interaction_of_a_cassette_can_be_recorded_again(tmp_path: Path, agent: list[str]):
    model = Counting()
    with Server() as server:
        url = server.mount(model, run="").openai
        result = run_offbook(
            "record", "a.yaml", "--upstream", url, *agent, "one", "two", cwd=tmp_path
        )
        assert (result.returncode, result.stdout) == (0, "answer 1\nanswer 2\n"), result.stderr
        assert "recorded 2 interactions in a.yaml" in result.stderr
        again = run_offbook("record", "a.yaml", "--upstream", url, *agent, "one", cwd=tmp_path)
        assert again.returncode == 2
        assert "already has a recording" in again.stderr
        only = ("--only", "2", "--upstream", url)
        rerecorded = run_offbook("record", "a.yaml", *only, *agent, "one", "zwei", cwd=tmp_path)
        assert rerecorded.returncode == 0, rerecorded.stderr
    replayed = run_offbook("replay", "a.yaml", *agent, "one", "zwei", cwd=tmp_path)
    assert (replayed.returncode, replayed.stdout) == (0, "answer 1\nanswer 3\n"), replayed.stderr
    assert model.asked == 3


def test_a_mismatch_fails_the_replay_with_a_message(tmp_path: Path, agent: list[str]):
    with Server() as server:
        url = server.mount(Counting(), run="").openai
        run_offbook("record", "a.yaml", "--upstream", url, *agent, "one", "two", cwd=tmp_path)
    other = run_offbook("replay", "a.yaml", *agent, "one", "three", cwd=tmp_path)
    assert other.returncode == 1
    assert "Replay mismatch at interaction 2 (hat: main)" in other.stderr
    fewer = run_offbook("replay", "a.yaml", *agent, "one", cwd=tmp_path)
    assert fewer.returncode == 1
    assert "1 of 2 interactions unused" in fewer.stderr
    loose = run_offbook("replay", "a.yaml", "--loose", *agent, "one", "three", cwd=tmp_path)
    assert (loose.returncode, loose.stdout) == (0, "answer 1\nanswer 2\n")


def test_the_commands_in_a_mismatch_message_can_be_run(tmp_path: Path, agent: list[str]):
    volatile = ("for user_abc123", "for user_xyz789")
    changed = ("Refund order 7", "Refund 'order' 8 {number}")
    model = Counting()
    with Server() as server:
        url = server.mount(model, run="").openai
        prompts = ("one", volatile[0], changed[0])
        run_offbook("record", "a b.yaml", "--upstream", url, *agent, *prompts, cwd=tmp_path)
        new_command = (*agent, "one", volatile[1], changed[1])
        first = run_offbook("replay", "a b.yaml", *new_command, cwd=tmp_path)
        hint = re.search(
            r"^Hint: Add redaction for user IDs.*\n  (.*)$", first.stderr, re.MULTILINE
        )
        assert hint is not None, first.stderr
        redacted = run_offbook(*shlex.split(hint[1])[1:], cwd=tmp_path)
        assert redacted.returncode == 0, redacted.stderr
        second = run_offbook("replay", "a b.yaml", *new_command, cwd=tmp_path)
        assert "Replay mismatch at interaction 3" in second.stderr
        fix = re.search(r"^Fix, if the change is intended: (.*)$", second.stderr, re.MULTILINE)
        assert fix is not None, second.stderr
        arguments = shlex.split(fix[1])
        assert arguments[:5] == ["offbook", "record", "a b.yaml", "--only", "3"]
        variables = {**os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "sk-none"}
        rerecorded = run_python("-m", *arguments, cwd=tmp_path, env=variables)
        assert rerecorded.returncode == 0
        assert "recorded interaction 3 of a b.yaml again" in rerecorded.stderr
    assert model.asked == 4
    third = run_offbook("replay", "a b.yaml", *new_command, cwd=tmp_path)
    assert (third.returncode, third.stdout) == (0, "answer 1\nanswer 2\nanswer 4\n"), third.stderr


def test_the_command_printed_after_one_request_too_many_extends_the_cassette(
    tmp_path: Path, agent: list[str]
):
    model = Counting()
    with Server() as server:
        url = server.mount(model, run="").openai
        run_offbook("record", "a.yaml", "--upstream", url, *agent, "one", cwd=tmp_path)
        more = run_offbook("replay", "a.yaml", *agent, "one", "two", cwd=tmp_path)
        fix = re.search(r"^Fix, if the change is intended: (.*)$", more.stderr, re.MULTILINE)
        assert fix is not None, more.stderr
        variables = {**os.environ, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "sk-none"}
        extended = run_python("-m", *shlex.split(fix[1]), cwd=tmp_path, env=variables)
    assert extended.returncode == 0
    assert "recorded 1 interaction in a.yaml, replayed 1" in extended.stderr
    assert model.asked == 2
    replayed = run_offbook("replay", "a.yaml", *agent, "one", "two", cwd=tmp_path)
    assert (replayed.returncode, replayed.stdout) == (0, "answer 1\nanswer 2\n")


def test_the_command_printed_for_unused_interactions_removes_them(tmp_path: Path, agent: list[str]):
    with Server() as server:
        url = server.mount(Counting(), run="").openai
        run_offbook("record", "a b.yaml", "--upstream", url, *agent, *"abcde", cwd=tmp_path)
    fewer = run_offbook("replay", "a b.yaml", *agent, "a", "b", cwd=tmp_path)
    fix = re.search(r"(offbook cassette edit .*)$", fewer.stderr, re.MULTILINE)
    assert fix is not None, fewer.stderr
    assert run_offbook(*shlex.split(fix[1])[1:], cwd=tmp_path).returncode == 0
    assert run_offbook("replay", "a b.yaml", *agent, "a", "b", cwd=tmp_path).returncode == 0


def test_the_command_printed_for_an_edited_cassette_updates_it(tmp_path: Path, agent: list[str]):
    with Server() as server:
        url = server.mount(Counting(), run="").openai
        run_offbook("record", "a b.yaml", "--upstream", url, *agent, "one", cwd=tmp_path)
    edited = tmp_path / "a b.yaml"
    edited.write_text(edited.read_text().replace("one", "uno"))
    fix = run_offbook("show", "a b.yaml", "--stats", cwd=tmp_path).stdout.partition("fix: ")[2]
    assert run_offbook(*shlex.split(fix)[1:], cwd=tmp_path).returncode == 0
    assert run_offbook("replay", "a b.yaml", *agent, "uno", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("age, code", [("0h", 2), ("1d", 0), ("1w", 2)])
def test_a_replay_has_a_limit_for_the_age_of_the_recording(
    tmp_path: Path, agent: list[str], age: str, code: int
):
    with Server() as server:
        url = server.mount(Counting(), run="").openai
        run_offbook("record", "a.yaml", "--upstream", url, *agent, "one", cwd=tmp_path)
    result = run_offbook("replay", "a.yaml", "--max-age", age, *agent, "one", cwd=tmp_path)
    assert result.returncode == code, result.stderr


def test_a_cursor_continues_after_the_last_command(tmp_path: Path, agent: list[str]):
    with Server() as server:
        url = server.mount(Counting(), run="").openai
        run_offbook("record", "a.yaml", "--upstream", url, *agent, "go", "go", "go", cwd=tmp_path)
    options = ("a.yaml", "--cursor", "cursor", *agent)
    outputs = [run_offbook("replay", *options, "go", cwd=tmp_path).stdout for _ in range(2)]
    assert outputs == ["answer 1\n", "answer 2\n"]
    trimmed = run_offbook("cassette", "edit", "a.yaml", "--unused-by", "cursor", cwd=tmp_path)
    assert trimmed.stdout == "a.yaml: removed 1 interaction\n"


def test_recorded_mocks_replace_the_model(tmp_path: Path, agent: list[str]):
    call = ToolCall("call_7", "find_order", {"id": 7})
    model = Counting(
        ModelError("slow down", status=429),
        Reply((Thinking("hm"), Text("Hello sk-ant-api03-abcdefghijklmnop"), call), "tool_use"),
    )
    with Server() as server:
        options = ("m.jsonl", "--upstream", server.mount(model, run="").openai)
        failed = run_offbook("record", *options, *agent, "one", cwd=tmp_path)
        assert (failed.returncode, "recorded 1 mock" in failed.stderr) == (1, True)
        existing = run_offbook("record", *options, *agent, "one", cwd=tmp_path)
        assert (existing.returncode, "already exists" in existing.stderr) == (2, True)
        result = run_offbook("record", "--replace", *options, *agent, "one", "two", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        unused = run_offbook("record", "n.jsonl", "--", "true", cwd=tmp_path)
        assert (unused.returncode, (tmp_path / "n.jsonl").exists()) == (2, False)
    first, second = map(msgspec.json.decode, (tmp_path / "m.jsonl").read_text().splitlines())
    # The agent of this test runs no tool, so the result never came.
    recorded = {"name": "find_order", "args": {"id": 7}, "id": "call_7", "unanswered": True}
    assert first["tool_calls"] == [recorded]
    assert (first["text"], first["thinking"]) == ("Hello [API_KEY]", "hm")
    assert (second["text"], second["input_tokens"], second["output_tokens"]) == ("answer 3", 10, 2)
    again = run_offbook("run", "--script", "m.jsonl", *agent, "one", "two", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (0, "Hello [API_KEY]\nanswer 3\n"), again.stderr
    only = run_offbook("record", "m.jsonl", "--only", "1", "--", "true", cwd=tmp_path)
    assert (only.returncode, "need a cassette" in only.stderr) == (2, True)


def test_an_import_reports_the_number_of_interactions(tmp_path: Path):
    (tmp_path / "t.jsonl").write_text('{"prompt": "q", "response": "a"}\n')
    result = run_offbook("import", "t.jsonl", "-o", "t.yaml", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "t.yaml: 1 interaction\n")
    assert run_offbook("import", "t.jsonl", "-o", "t.yaml", cwd=tmp_path).returncode == 2
    assert run_offbook("import", "t.jsonl", "-o", "t.txt", cwd=tmp_path).returncode == 2


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cassette of two hats in the working directory."""
    monkeypatch.chdir(tmp_path)
    record_prompts(tmp_path / "a.yaml", [("planner", "plan it"), ("builder", "build it")])
    return tmp_path / "a.yaml"


@pytest.mark.parametrize(
    "arguments, code, expected",
    [
        ("show .", 0, "a.yaml  2 interactions (planner 1, builder 1)\n"),
        ("show a.yaml", 0, "2. (builder) build it -> output 2\n"),
        ("show a.yaml 2", 0, "prompt: build it\n"),
        ("show a.yaml 3", 2, "from 1 to 2"),
        ("show a.yaml --stats", 0, "hats          planner 1, builder 1\n"),
        ("show a.yaml --json", 0, '"tokens": 3'),
        ("show . --json", 0, '"planner": 1'),
        ("show a.yaml 2 --json", 0, '"prompt": "build it"'),
        ("cassette edit a.yaml --trim 1", 0, "removed 1 interaction"),
        ("cassette edit a.yaml --trim ,", 2, "nothing to trim"),
        ("cassette edit a.yaml --trim x-2", 2, "invalid interaction number"),
        ("cassette edit a.yaml --unused-by nowhere", 2, "no such cursor"),
        ("cassette edit a.yaml --trim 1 --upgrade", 2, "exclude each other"),
        ("cassette edit a.yaml --upgrade", 0, "a.yaml: 0 interactions changed\n"),
        ("cassette verify a.yaml --against a.yaml", 0, "a.yaml: no drift\n"),
        ("cassette verify a.yaml --against a.yaml --json", 0, '"drifted": 0'),
        ("cassette verify a.yaml", 0, "1 cassette checked: no secrets, no edited requests\n"),
        ("cassette verify a.yaml .", 0, "2 cassettes checked"),
        ("cassette verify a.yaml --json", 0, '"checked": 1'),
        ("cassette verify empty", 2, "no cassettes found"),
        ("cassette verify a.yaml a.yaml --live", 2, "more than one cassette"),
        ("cassette verify a.yaml --upstream http://127.0.0.1:9", 2, "no request is stored"),
        ("show empty", 2, "no cassettes found"),
    ],
)
@pytest.mark.usefixtures("shop")
def test_maintenance_commands_report_their_result(
    offbook_command: Offbook, arguments: str, code: int, expected: str
):
    Path("empty").mkdir()
    result = offbook_command(*arguments.split())
    assert result.code == code, result.err
    assert expected in (result.err if code else result.out)


def test_trim_and_upgrade_keep_the_rest_of_the_file(offbook_command: Offbook, shop: Path):
    shop.write_text(shop.read_text().replace("prompt: build it", "prompt: build all  # more"))
    assert "edited since they were hashed: 2" in offbook_command("show", shop, "--stats").out
    assert (
        offbook_command("cassette", "edit", shop, "--upgrade").out
        == f"{shop}: 1 interaction changed\n"
    )
    assert "edited" not in offbook_command("show", shop, "--stats").out
    offbook_command("cassette", "edit", shop, "--trim", "1")
    assert [item.request.prompt for item in load_cassette(shop)] == ["build all"]
    assert "# more" in shop.read_text()


@pytest.mark.parametrize(
    "editor, code, expected",
    [
        ("s/output 1/output one/", 0, "saved, 0 hashes updated"),
        ("s/plan it/plan all/", 0, "saved, 1 hashes updated"),
        ("s/^$//", 0, "no changes"),
        ("s/output:/outptu:/", 2, "did you mean 'output'"),
    ],
)
def test_an_edited_cassette_is_saved_only_if_it_is_valid(
    offbook_command: Offbook,
    shop: Path,
    monkeypatch: pytest.MonkeyPatch,
    editor: str,
    code: int,
    expected: str,
):
    monkeypatch.setenv("VISUAL", "")
    monkeypatch.setenv("EDITOR", f"sed -i -e '{editor}'")
    before = shop.read_text()
    result = offbook_command("cassette", "edit", shop)
    assert (result.code, expected in result.out + result.err) == (code, True), (
        result.out + result.err
    )
    if code:
        assert shop.read_text() == before
        rejected = shop.with_name(".a.yaml.rejected")
        assert f"your text is in {rejected}" in result.err
        assert "outptu" in rejected.read_text()
    elif "no changes" not in expected:
        assert shop.read_text() != before
        assert result.out.startswith(f"{shop}: saved")


def test_drift_is_reported_by_path(
    tmp_path: Path, offbook_command: Offbook, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    path = tmp_path / "a.yaml"
    asyncio.run(record(path, looking_up("toolu_01"), LOOK))
    changed = Reply((ToolCall("c", "find_order", {"id": "seven", "deep": True}),), "tool_use")
    with Server() as server:
        same = server.mount(Counting(LOOK)).openai
        result = offbook_command("cassette", "verify", path, "--upstream", same)
        assert (result.code, result.out) == (0, f"{path}: no drift\n"), result.err
        monkeypatch.setenv("OPENAI_BASE_URL", server.mount(Counting(changed)).openai)
        live = offbook_command("cassette", "verify", path, "--live")
    assert live.code == 1
    assert live.out.splitlines() == [
        "interaction 1:",
        "  + $.calls.find_order.deep: boolean",
        "  - $.text: text",
        "  ~ $.calls.find_order.id: number became text",
        f"{path}: 1 interaction drifted",
    ]


@pytest.mark.parametrize("fossil", sorted(FOSSILS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_command_reads_cassettes_of_every_version(
    offbook_command: Offbook, fossil: Path, tmp_path: Path
):
    path = tmp_path / "old.yaml"
    path.write_bytes(fossil.read_bytes())
    for arguments in ((tmp_path,), (path,), (path, 1), (path, "--stats")):
        assert offbook_command("show", *arguments).code == 0
    assert offbook_command("cassette", "verify", path, "--against", path).code == 0
    assert path.read_bytes() == fossil.read_bytes()
    assert offbook_command("cassette", "edit", path, "--upgrade").code == 0
    assert "version       1" in offbook_command("show", path, "--stats").out


def test_an_invalid_cassette_is_a_usage_error(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("interactions: [")
    result = run_offbook("replay", "a.yaml", "--", "true", cwd=tmp_path)
    assert result.returncode == 2
    assert "a.yaml:1" in result.stderr


@pytest.mark.parametrize(
    "options, message",
    [
        (["--redact", "{"], "--redact: invalid JSON"),
        (["--redact", '{"pattern": {}}'], "unknown key 'pattern'"),
        (["--price", "gpt-5"], "MODEL=IN/OUT"),
        (["--preset", "codexx"], "did you mean 'codex'"),
        (["--upstream", "nowhere"], "not a base URL"),
    ],
)
def test_invalid_options_are_rejected_before_the_command_runs(
    tmp_path: Path, options: list[str], message: str
):
    result = run_offbook("record", "a.yaml", *options, "--", "touch", "ran", cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert not (tmp_path / "ran").exists()


def test_unrecorded_requests_go_to_the_model_only_on_request(tmp_path: Path, agent: list[str]):
    model = Counting()
    with Server() as server:
        url = server.mount(model, run="").openai
        price = ("--price", "gpt-5=1000/10000")
        result = run_offbook(
            "record", "a.yaml", "--upstream", url, *price, *agent, "one", cwd=tmp_path
        )
        assert "(12 tokens, cost $0.0300)" in result.stderr
        more = (*agent, "one", "two")
        closed = run_offbook("replay", "a.yaml", "--upstream", url, *more, cwd=tmp_path)
        assert (closed.returncode, model.asked) == (1, 1)
        assert "Replay exhausted: all 1 interactions of the hat 'main'" in closed.stderr
        options = ("--allow-passthrough", "--upstream", url, "--trace", "t.jsonl", "--json")
        passed = run_offbook("replay", "a.yaml", *options, *more, cwd=tmp_path)
    assert (passed.returncode, model.asked) == (0, 2), passed.stderr
    summary = msgspec.json.decode(passed.stdout)
    assert (summary["interactions_replayed"], summary["interactions_passthrough"]) == (1, 1)
    assert summary["cost_dollars"] == 0
    assert "1 request went to the real model" in passed.stderr
    assert "cassette.passthrough" in (tmp_path / "t.jsonl").read_text()
    assert len(load_cassette(tmp_path / "a.yaml")) == 1


WAITING = AGENT + "\nprint('asked', flush=True)\nimport time\ntime.sleep(60)\n"


def test_an_interrupted_recording_keeps_its_interactions(tmp_path: Path):
    (tmp_path / "agent.py").write_text(WAITING)
    with Server() as server:
        url = server.mount(Counting(), run="").openai
        arguments = ["record", "a.yaml", "--upstream", url, "--", sys.executable, "agent.py", "one"]
        recorder = subprocess.Popen(
            [sys.executable, "-m", "offbook", *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert recorder.stdout is not None
        assert [recorder.stdout.readline() for _ in range(2)] == ["answer 1\n", "asked\n"]
        recorder.send_signal(signal.SIGINT)
        _, stderr = recorder.communicate(timeout=300)
    assert recorder.returncode == 130
    assert "interrupted: kept 1 interaction in a.yaml" in stderr
    assert load_cassette(tmp_path / "a.yaml").header.metadata["interrupted"] is True


def test_import_reports_skipped_lines_and_several_traces(
    tmp_path: Path, offbook_command: Offbook, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    interaction = {"prompt": "q", "response": "a"}
    lines = [msgspec.json.encode({**interaction, "trace_id": name}) for name in ("t1", "t2")]
    (tmp_path / "trace.jsonl").write_bytes(b"\n".join([*lines, b'{"prompt"']))
    result = offbook_command("import", "trace.jsonl", "-o", "one.yaml")
    assert (result.code, result.out) == (0, "one.yaml: 2 interactions\n")
    assert "2 traces" in result.err
    assert "(t1, t2)" in result.err
    assert "skipped: 1 x torn line (3)" in result.err


def test_a_list_of_cassettes_parses_no_interaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    prompts = [("planner", "plan"), ("builder", "build: hat: no"), ("builder", "again")]
    record_prompts(tmp_path / "a.yaml", prompts)
    asyncio.run(record(tmp_path / "b.yaml", [ask("one")]))
    monkeypatch.setattr("offbook.sources.cassette.cassette_file.parse_yaml", None)
    with pytest.raises(SystemExit, match="0"):
        main(["show", str(tmp_path)])
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("a.yaml  3 interactions (planner 1, builder 2)")
    assert second.endswith("b.yaml  1 interaction (main 1)")


def test_a_full_disk_is_reported_with_the_file_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "a.yaml"
    asyncio.run(record(path, [ask("one"), ask("two")]))
    before = path.read_bytes()

    def fail(_file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(SystemExit, match="1"):
        main(["cassette", "edit", str(path), "--trim", "1"])
    assert capsys.readouterr().err == (
        f"offbook: {path}: No space left on device\n"
        "free some disk space, then run the command again\n"
    )
    assert path.read_bytes() == before


CHAT = """
import json, os, sys, urllib.request
messages = []
for prompt in sys.argv[1:]:
    messages.append({"role": "user", "content": prompt})
    body = json.dumps({"model": "gpt-5", "messages": messages})
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, body.encode(), {"content-type": "application/json"})
    messages.append(json.load(urllib.request.urlopen(request))["choices"][0]["message"])
"""


@pytest.fixture
def recorded(tmp_path: Path, agent: list[str]) -> Iterator[tuple[str, Counting]]:
    """Record two interactions; return the options of the model, and the model."""
    model = Counting()
    with Server() as server:
        url = server.mount(model, run="").openai
        run_offbook("record", "a.yaml", "--upstream", url, *agent, "one", "two", cwd=tmp_path)
        yield url, model


def test_an_extended_recording_names_what_it_did_not_use(
    tmp_path: Path, agent: list[str], recorded: tuple[str, Counting]
):
    options = ("--append", "--upstream", recorded[0])
    result = run_offbook("record", "a.yaml", *options, *agent, "one", "three", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "offbook cassette edit a.yaml --trim 2\n" in result.stderr


def test_an_interaction_that_is_not_reached_is_not_recorded_again(
    tmp_path: Path, agent: list[str], recorded: tuple[str, Counting]
):
    before = (tmp_path / "a.yaml").read_bytes()
    options = ("--only", "2", "--upstream", recorded[0])
    result = run_offbook("record", "a.yaml", *options, *agent, "one", cwd=tmp_path)
    assert (result.returncode, (tmp_path / "a.yaml").read_bytes()) == (2, before)
    assert "the command never reached interaction 2" in result.stderr


def test_a_run_that_fails_records_no_interaction_again(
    tmp_path: Path, agent: list[str], recorded: tuple[str, Counting]
):
    before = (tmp_path / "a.yaml").read_bytes()
    options = ("--only", "2", "--upstream", recorded[0])
    result = run_offbook("record", "a.yaml", *options, *agent, "one", "two", "x", cwd=tmp_path)
    assert result.returncode == 1
    assert "Replay exhausted" in result.stderr
    assert (tmp_path / "a.yaml").read_bytes() == before
    assert recorded[1].asked == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.yaml", "agent.py"]


def test_the_interactions_that_continue_a_new_one_are_named(
    tmp_path: Path, agent: list[str], recorded: tuple[str, Counting]
):
    (tmp_path / "agent.py").write_text(CHAT)
    options = ("--upstream", recorded[0])
    run_offbook("record", "b.yaml", *options, *agent, "one", "two", "three", cwd=tmp_path)
    command = ("--only", "2", *options, *agent, "one", "two", "three")
    result = run_offbook("record", "b.yaml", *command, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "offbook: interactions 3 continue it with their old answers" in result.stderr
    assert "offbook record b.yaml --replace -- " in result.stderr


@pytest.mark.parametrize("task, code", [("Buy", 0), ("Sell", 1)])
def test_the_task_of_a_replay_must_be_the_recorded_one(
    tmp_path: Path, agent: list[str], recorded: tuple[str, Counting], task: str, code: int
):
    options = ("--task", "Buy", "--upstream", recorded[0])
    run_offbook("record", "b.yaml", *options, *agent, "one", cwd=tmp_path)
    result = run_offbook("replay", "b.yaml", "--task", task, *agent, "one", cwd=tmp_path)
    assert result.returncode == code, result.stderr
    assert ("the task differs from the recorded one" in result.stderr) is bool(code)


@pytest.mark.parametrize("file", ["new.yaml", "new.jsonl"])
def test_a_recording_whose_model_cannot_be_reached_fails(
    tmp_path: Path, agent: list[str], file: str
):
    options = ("--upstream", "http://127.0.0.1:1/v1")
    result = run_offbook("record", file, *options, *agent, "one", cwd=tmp_path)
    assert result.returncode == 1
    assert "offbook: cannot connect to http://127.0.0.1:1" in result.stderr


BROKEN_CASSETTES = {
    "a secret in an answer": (
        "output 2",
        "use sk-proj-{key}",
        "a.yaml:{line}: looks like a secret",
    ),
    "a secret that YAML escapes": (
        "prompt: build it",
        'prompt: "use sk-\\x70roj-{key}"',
        "a.yaml: interaction 2: looks like a secret",
    ),
    "an edited request": ("prompt: build it", "prompt: buy it", "interaction 2: the request was"),
}


@pytest.mark.parametrize("name", BROKEN_CASSETTES)
def test_verify_refuses(name: str, shop: Path, offbook_command: Offbook):
    old, new, message = BROKEN_CASSETTES[name]
    text = shop.read_text()
    assert text.count(old) == 1
    key = "Zk3vQ9xLm2Rt7Wp5Yb8Nc4Jd6Hf1Gs0A"
    line = text.count("\n", 0, text.index(old)) + 1
    shop.write_text(text.replace(old, new.format(key=key)))
    result = offbook_command("cassette", "verify", "a.yaml")
    assert result.code == 1, result.err
    assert message.format(line=line) in result.out
    assert key not in result.out


def test_verify_refuses_a_file_that_is_no_cassette(tmp_path: Path, offbook_command: Offbook):
    (tmp_path / "flow.yaml").write_text("turns: []\n")
    result = offbook_command("cassette", "verify", str(tmp_path / "flow.yaml"))
    assert result.code == 2


def test_verify_refuses_a_cassette_without_interactions(shop: Path, offbook_command: Offbook):
    head, _, _ = shop.read_text().partition("interactions:")
    shop.write_text(head + "interactions: []\n")
    result = offbook_command("cassette", "verify", "a.yaml")
    assert (result.code, "a.yaml: no interactions" in result.out) == (1, True)
