"""`offbook serve` and `offbook run`: a scripted model for commands of any kind."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.request import Request, urlopen

import openai
import pytest

from offbook import Command
from offbook.errors import RunError
from offbook.exchange.dialects import RULES
from offbook.runs import drive
from offbook.sources import read_script
from offbook.sources.cassette import Recording
from offbook.sources.playbook import Playbook, say, when
from offbook.sources.server import Server
from offbook.surfaces.cli import main
from offbook.trace import WIRE, Events, Trace
from tests.clients import is_alive
from tests.forked import forked_command
from tests.waiting import wait_until

SHOP = """
- when: Refund order 7
  do:
    - call: find_order
      with: {id: 7}
    - say: Done.
"""
AGENT = """
import json, os, sys, urllib.request

def ask(messages):
    function = {"name": "find_order", "parameters": {"type": "object"}}
    tools = [{"type": "function", "function": function}]
    body = json.dumps({"model": "m", "messages": messages, "tools": tools}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, body)) as answer:
        return json.load(answer)["choices"][0]["message"]

messages = [{"role": "user", "content": sys.argv[1]}]
while True:
    message = ask(messages)
    messages.append(message)
    if not message.get("tool_calls"):
        break
    messages += [
        {"role": "tool", "tool_call_id": call["id"], "content": "Ada"}
        for call in message["tool_calls"]
    ]
print(message["content"])
"""

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A playbook file, with an agent in the same folder that uses only the standard library."""
    (tmp_path / "agent.py").write_text(AGENT)
    path = tmp_path / "shop.yaml"
    path.write_text(SHOP)
    return path


@pytest.fixture
def offbook_run(shop: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs `offbook run` and returns its exit code and output."""

    def run(*command: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
        with pytest.raises(SystemExit) as exit_:
            main(["run", "--script", str(shop), *options, "--", *command])
        assert isinstance(exit_.value.code, int)
        return exit_.value.code, "".join(capfd.readouterr())

    return run


def test_a_command_reads_the_model_url_from_the_environment(shop: Path, offbook_run: Run):
    trace = shop.with_name("trace.jsonl")
    agent = str(shop.with_name("agent.py"))
    code, printed = offbook_run(
        *forked_command(agent, "Refund order 7"), options=("--trace", str(trace))
    )
    assert (code, printed) == (0, "Done.\n")
    events = Events(Trace(trace))
    assert events.tool_sequence() == ["find_order"]
    assert events.tool_results[0].text == "Ada"
    assert events.all[-1].data == {"ok": True, "exit": 0}


def test_an_unexpected_prompt_is_reported_with_the_nearest_turn(shop: Path, offbook_run: Run):
    code, printed = offbook_run(*forked_command(shop.with_name("agent.py"), "Refund order 8"))
    assert code == 1
    assert "did you mean 'Refund order 7'" in printed


def test_remaining_actions_fail_the_run(offbook_run: Run):
    code, printed = offbook_run(sys.executable, "-c", "pass")
    assert code == 1
    assert "2 actions remaining" in printed


def test_a_failing_command_fails_the_run(shop: Path, offbook_run: Run):
    agent = shop.with_name("agent.py")
    agent.write_text(AGENT + "sys.exit(3)\n")
    code, printed = offbook_run(*forked_command(agent, "Refund order 7"))
    assert code == 1
    assert "exit code 3" in printed


ENDINGS = {
    "an unfinished script": ("sys.exit(0)", "ScriptUnfinished: ", "2 actions remaining"),
    "an exit code": ("sys.exit(3)", "RunError: ", "failed with exit code 3"),
    "a signal": ("import os; os.kill(os.getpid(), 9)", "RunError: ", "was killed by SIGKILL"),
    "a deadline": (
        "import time; time.sleep(60)",
        "DeadlineExceeded: ",
        "still running after 0.5 s",
    ),
}


@pytest.mark.parametrize("first_line, error, reason", ENDINGS.values(), ids=ENDINGS)
def test_a_failed_command_has_the_verdict_and_the_reason_that_drive_gives(
    shop: Path, offbook_run: Run, first_line: str, error: str, reason: str
):
    agent, traces = shop.with_name("agent.py"), [shop.with_name("run"), shop.with_name("drive")]
    agent.write_text(f"import sys; {first_line}\n")
    deadline = 0.5 if "sleep" in first_line else 60
    options = ("--trace", str(traces[0]), "--deadline", str(deadline))
    code, printed = offbook_run(sys.executable, str(agent), options=options)
    command = Command([sys.executable, str(agent)], deadline=deadline)
    with drive(command, trace=traces[1]) as rehearsal, pytest.raises(RunError):
        rehearsal.run(*read_script(shop))
    assert code == 1
    assert reason in printed
    events = [Events(Trace(trace)) for trace in traces]
    for end in (events[0].all[-1], events[1].all[-1]):
        assert end.event == "_meta.run_end"
        assert end.data["error"].startswith(error)
        assert reason in end.data["error"]
    verdicts = [[(v.check, v.status) for v in run.verdicts] for run in events]
    assert verdicts[0] == verdicts[1]


CODEX = ["codex", "exec", "hi"]
COMMANDS = {
    "alone": CODEX,
    "in a shell": ["sh", "-c", "true && codex exec hi"],
    "below another command": ["env", *CODEX],
    "as a path": ["./bin/codex", "exec", "hi"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_codex_finds_the_model_wherever_it_stands_in_the_command(
    shop: Path, offbook_run: Run, monkeypatch: pytest.MonkeyPatch, command: list[str]
):
    program = shop.parent / "bin" / "codex"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    monkeypatch.chdir(shop.parent)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    _, printed = offbook_run(*command)
    [line] = [line for line in printed.splitlines() if line.endswith("exec hi")]
    assert line.count('openai_base_url="http://127.0.0.1:') == 1


def test_a_command_that_is_not_found_is_a_usage_error(offbook_run: Run):
    code, printed = offbook_run("no-such-command")
    assert code == 2
    assert "no-such-command" in printed


@pytest.mark.slow
def test_a_command_and_its_children_are_killed_at_the_deadline(shop: Path, offbook_run: Run):
    pid = shop.with_name("pid")
    child = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
    parent = (
        "import os, subprocess, sys, time; "
        "subprocess.Popen([sys.executable, '-c', *sys.argv[1:]]); "
        "\nwhile not (os.path.exists(sys.argv[2]) and open(sys.argv[2]).read()): time.sleep(0.01)"
        "\ntime.sleep(60)"
    )
    code, printed = offbook_run(
        sys.executable, "-c", parent, child, str(pid), options=("--deadline", "4")
    )
    assert code == 1
    assert "still running after 4 s" in printed
    status = Path(f"/proc/{pid.read_text()}/stat")
    assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


def test_an_unsupported_file_type_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "x.txt"
    path.write_text("{}")
    with pytest.raises(SystemExit) as exit_:
        main(["serve", str(path)])
    assert exit_.value.code == 2
    assert "a playbook a .py" in capsys.readouterr().err


def test_unreachable_mock_lines_are_reported(shop: Path, capfd: pytest.CaptureFixture[str]):
    mocks = shop.with_name("mocks.jsonl")
    lines = [{"match": "*"}, {"match": "*order*"}, {"match": "hello"}]
    mocks.write_text("".join(json.dumps({**line, "text": "Yes."}) + "\n" for line in lines))
    agent = str(shop.with_name("agent.py"))
    options = ["--mocks", str(mocks), "--allow-unused-mocks"]
    with pytest.raises(SystemExit) as exit_:
        main(["run", *options, "--", *forked_command(agent, "Refund order 7")])
    stderr = capfd.readouterr().err
    assert exit_.value.code == 0
    assert f"{mocks}:2: unreachable: line 1 ('*') always matches first" in stderr
    assert f"{mocks}:1: unused" not in stderr


def test_an_unused_mock_line_fails_the_command(shop: Path, capfd: pytest.CaptureFixture[str]):
    mocks = shop.with_name("mocks.jsonl")
    mocks.write_text('{"match": "*order*", "text": "Yes."}\n{"match": "*never*", "text": "No."}\n')
    command = ["--", *forked_command(shop.with_name("agent.py"), "Refund order 7")]
    for options, code in (([], 1), (["--allow-unused-mocks"], 0)):
        with pytest.raises(SystemExit) as exit_:
            main(["run", "--mocks", str(mocks), *options, *command])
        stderr = capfd.readouterr().err
        assert exit_.value.code == code
        assert f"{mocks}:2: unused" in stderr
        assert ("never used: LLM mock line 2 ('*never*')" in stderr) is (code == 1)


def test_a_command_without_requests_fails_the_run(shop: Path, capfd: pytest.CaptureFixture[str]):
    mocks = shop.with_name("mocks.jsonl")
    mocks.write_text('{"text": "Yes."}\n')
    with pytest.raises(SystemExit) as exit_:
        main(["run", "--mocks", str(mocks), "--", sys.executable, "-c", ""])
    stderr = capfd.readouterr().err
    assert exit_.value.code == 1
    assert f"{mocks}:1: unused" in stderr
    assert "the model received no request: 0 of 1 mock line used" in stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--port", "99999"],
        ["--port", "-1"],
        ["--tokens-per-second", "-5"],
        ["--first-token", "-1"],
        ["--jitter", "2"],
        ["--seed", "x"],
    ],
)
def test_invalid_numbers_are_rejected(
    shop: Path, options: list[str], capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as exit_:
        main(["serve", str(shop), *options])
    assert exit_.value.code == 2
    assert f"Invalid value for '{options[0]}'" in capsys.readouterr().err


def test_a_mock_file_can_be_used(shop: Path, capfd: pytest.CaptureFixture[str]):
    mocks = shop.with_name("mocks.jsonl")
    mocks.write_text('{"match": "*order 7*", "text": "From a line."}\n')
    agent = str(shop.with_name("agent.py"))
    for option in ("--script", "--playbook", "--mocks"):
        for prompt, code, expected in [("order 7", 0, "From a line."), ("order 8", 1, "order 8")]:
            with pytest.raises(SystemExit) as exit_:
                main(["run", option, str(mocks), "--", *forked_command(agent, prompt)])
            assert exit_.value.code == code
            assert expected in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    "options, expected",
    [
        (["--playbook", "shop.yaml", "--mocks", "mocks.jsonl"], "--script is given twice"),
        (["--playbook", "shop.yaml", "--lenient", "orphan_reslt"], "did you mean 'orphan_result'"),
    ],
)
def test_invalid_options_are_reported(
    shop: Path,
    options: list[str],
    expected: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(shop.parent)
    with pytest.raises(SystemExit) as exit_:
        main(["run", *options, "--", "true"])
    assert exit_.value.code == 2
    assert expected in capsys.readouterr().err


LENIENT_AGENT = """
import json, os, urllib.request

orphan = {"role": "tool", "tool_call_id": "c1", "content": "21"}
messages = [{"role": "user", "content": "Refund order 7"}, orphan]
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
body = json.dumps({"model": "m", "messages": messages}).encode()
with urllib.request.urlopen(urllib.request.Request(url, body)) as answer:
    print(json.load(answer)["choices"][0]["message"]["content"])
"""


@pytest.mark.parametrize("lenient, code", [((), 1), (("--lenient", "orphan_result"), 0)])
def test_a_provider_rule_can_be_disabled_by_name(
    tmp_path: Path, lenient: tuple[str, ...], code: int, capfd: pytest.CaptureFixture[str]
):
    mocks = tmp_path / "mocks.jsonl"
    mocks.write_text('{"text": "Let through."}\n')
    with pytest.raises(SystemExit) as exit_:
        main(["run", "--mocks", str(mocks), *lenient, "--", sys.executable, "-c", LENIENT_AGENT])
    assert exit_.value.code == code
    assert ("Let through." in capfd.readouterr().out) == (code == 0)


@pytest.mark.parametrize("command", ["run", "serve"])
def test_help_lists_the_rules(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    output = capsys.readouterr().out
    for rule in RULES:
        assert rule in output


DAEMON = """
import os, sys, time

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(300)
    os._exit(0)
while not (os.path.exists(sys.argv[1]) and open(sys.argv[1]).read()):
    time.sleep(0.01)
"""


def test_the_trace_has_the_bytes_of_each_exchange_on_request(shop: Path, offbook_run: Run):
    trace = shop.with_name("trace.jsonl")
    agent = str(shop.with_name("agent.py"))
    options = ("--trace", str(trace), "--wire")
    assert offbook_run(*forked_command(agent, "Refund order 7"), options=options)[0] == 0
    wires = [event.data for event in Trace(trace) if event.event == WIRE]
    assert [wire["exchange"] for wire in wires] == ["x1", "x2"]
    assert "Refund order 7" in wires[0]["request"]["start"]
    assert '"tool_calls"' in wires[0]["response"]["start"]


def test_bytes_without_a_trace_are_wrong_usage(offbook_run: Run):
    code, printed = offbook_run(sys.executable, "-V", options=("--wire",))
    assert code == 2
    assert "--wire has no effect without --trace" in printed


def test_a_daemon_of_the_command_is_killed(shop: Path, offbook_run: Run):
    pid = shop.with_name("pid")
    code, _ = offbook_run(sys.executable, "-c", DAEMON, str(pid))
    assert code == 1  # the command sends no request
    assert not is_alive(int(pid.read_text()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_run_and_its_daemons_and_is_the_reason(shop: Path, number: int):
    pid, trace = shop.with_name("pid"), shop.with_name("trace.jsonl")
    waiting = DAEMON + "time.sleep(300)\n"
    arguments = ["run", "--script", str(shop), "--trace", str(trace), "--"]
    with subprocess.Popen(
        [sys.executable, "-m", "offbook", *arguments, sys.executable, "-c", waiting, str(pid)],
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        wait_until(lambda: pid.exists() and pid.read_text(), process)
        process.send_signal(number)
        assert process.wait(300) == 128 + number
        assert process.stderr is not None
        printed = process.stderr.read()
    assert not is_alive(int(pid.read_text()))
    end = Events(Trace(trace)).all[-1]
    assert end.data == {"ok": False, "error": f"interrupted by {signal.Signals(number).name}"}
    assert b"offbook: interrupted" in printed
    assert b"remaining" not in printed  # the script is not to blame


def test_a_cassette_can_be_used(shop: Path, capfd: pytest.CaptureFixture[str]):
    cassette = shop.with_name("cassette.yaml")
    source = Playbook()
    source.load(when("Refund", [say("As it was.")]))
    with Server() as server, Recording(source, cassette) as recording:
        url = f"{server.mount(recording).openai}/chat/completions"
        function = {"name": "find_order", "parameters": {"type": "object"}}
        body = {
            "model": "m",
            "messages": [{"role": "user", "content": "Refund order 7"}],
            "tools": [{"type": "function", "function": function}],
        }
        with urlopen(Request(url, json.dumps(body).encode())) as answer:  # noqa: S310 - a local server
            assert answer.status == 200
    agent = str(shop.with_name("agent.py"))
    with pytest.raises(SystemExit) as exit_:
        main(["run", "--script", str(cassette), "--", *forked_command(agent, "Refund order 7")])
    assert exit_.value.code == 0
    assert "As it was." in "".join(capfd.readouterr())


@pytest.mark.parametrize("prompt, code", [("Refund order 7", 0), ("Refund order 8", 1)])
def test_a_served_playbook_answers_openai_clients_until_interrupted(
    shop: Path, prompt: str, code: int
):
    command = forked_command("-m", "offbook", "serve", shop, "--port", "0")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
        ) as process,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(process.kill)  # a failed assertion would wait for it for ever
        assert process.stdout is not None
        while (
            found := re.match(r"export OPENAI_BASE_URL=(.*)", process.stdout.readline())
        ) is None:
            assert process.poll() is None
        base = found[1]
        key = process.stdout.readline().removeprefix("export OPENAI_API_KEY=").strip()
        assert key == "offbook"  # not masked: the agent needs it
        for url in (base, base.replace("/v1", "/s/mine/v1")):
            with openai.OpenAI(base_url=url, api_key=key) as client:
                try:
                    response = client.chat.completions.create(
                        model="m",
                        messages=[{"role": "user", "content": prompt}],
                        tools=[{"type": "function", "function": {"name": "find_order"}}],
                    )
                except openai.BadRequestError:
                    assert code == 1
                else:
                    assert response.choices[0].finish_reason == "tool_calls"
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == code


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_right_after_the_first_line_of_serve_stops_it(shop: Path, number: int):
    command = [sys.executable, "-m", "offbook", "serve", str(shop), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"serving ")
        process.send_signal(number)
        process.stdout.read()
    assert process.returncode == 0


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("--playbook a.yaml --mocks a.jsonl -- true", "--script is given twice"),
        ("-- true", "missing --script"),
        ("--mocks a.jsonl", "missing command"),
    ],
)
def test_an_incomplete_or_contradictory_run_is_rejected(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as exit_:
        main(["run", *arguments.split()])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


# --- Faults

RETRYING = AGENT.replace(
    "    with urllib.request.urlopen(urllib.request.Request(url, body)) as answer:\n"
    "        return json.load(answer)",
    "    for attempt in range(4):\n"
    "        try:\n"
    "            with urllib.request.urlopen(urllib.request.Request(url, body)) as answer:\n"
    '                return json.load(answer)["choices"][0]["message"]\n'
    "        except (OSError, ValueError):\n"
    "            pass\n"
    "    sys.exit(3)\n"
    "    return ({})",
)


def test_a_command_that_tries_again_survives_its_faults(offbook_run: Run, shop: Path):
    (shop.parent / "agent.py").write_text(RETRYING)
    options = ("--fault", "reset@1", "--fault", "truncate@3", "--fault", "status:503@4")
    code, output = offbook_run(
        *forked_command(shop.parent / "agent.py", "Refund order 7"), options=options
    )
    assert code == 0, output
    assert "3 faults: 3 retried (seed 0)" in output


def test_a_command_that_fails_after_a_fault_has_reported_it(offbook_run: Run, shop: Path):
    agent = str(shop.parent / "agent.py")
    code, output = offbook_run(
        *forked_command(agent, "Refund order 7"), options=("--fault", "status@2")
    )
    assert code == 1
    assert "status at request 2: reported" in output


@pytest.mark.parametrize("answer, outcome", [("", "swallowed"), ("All good", "unknown")])
def test_a_command_that_hides_a_fault_fails(
    offbook_run: Run, shop: Path, answer: str, outcome: str
):
    swallowing = RETRYING.replace("sys.exit(3)", f"return {{'content': {answer!r}}}")
    (shop.parent / "agent.py").write_text(swallowing)
    code, output = offbook_run(
        *forked_command(shop.parent / "agent.py", "Refund order 7"),
        options=("--fault", "reset", "--fault-rate", "1"),
    )
    assert code == 1
    assert f"reset at request 1: {outcome}" in output


def test_an_unknown_fault_is_a_usage_error(offbook_run: Run):
    code, output = offbook_run("true", options=("--fault", "rest"))
    assert code == 2
    assert "unknown fault 'rest'" in output
