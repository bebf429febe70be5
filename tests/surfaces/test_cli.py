"""The output and the exit codes of the command line."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from textwrap import dedent

import pytest

from offbook import call, say, session, when
from offbook.reports import StyledText, render_line, wrap_line
from offbook.surfaces.commands import all_commands
from tests.forked import run_python
from tests.surfaces.conftest import Offbook
from tests.terminals import Terminal

COMMANDS = {name: entry for group in all_commands().values() for name, entry in group.items()}
HEADER = '{"ts":0,"event":"_meta.trace","data":{"format":"offbook.trace","version":1}}\n'
EVENT = '{"ts":1,"event":"handoff","data":{"to":"support"},"seq":1}\n'


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """The trace of a real run."""
    path = tmp_path / "trace.jsonl"
    with session(trace=path, mock_tools={"bash": "hi"}) as rehearsal:
        rehearsal.run(when("Greet me", [call("bash", {"command": "echo"}), say("Done.")]))
    return path


def test_the_version_is_the_package_version(offbook_command: Offbook):
    outcome = offbook_command("--version")
    assert (outcome.code, outcome.out) == (0, f"offbook {version('offbook')}\n")


def test_the_version_alone_imports_no_package(unwatched: dict[str, str]):
    program = (
        "import sys\nsys.argv = ['offbook', '--version']\n"
        "from offbook.__main__ import main\nmain()\n"
        "print(*sys.modules)"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", program], env=unwatched, capture_output=True, text=True, check=True
    )
    printed, modules = outcome.stdout.splitlines()
    assert printed == f"offbook {version('offbook')}"
    assert not {"click", "msgspec", "asyncio", "importlib.metadata"} & set(modules.split())


def test_help_lists_every_command(offbook_command: Offbook):
    outcome = offbook_command("--help")
    assert outcome.code == 0
    for name, entry in COMMANDS.items():
        assert f"{name} {entry.help}" in " ".join(outcome.out.split())


def test_help_shows_commands_under_headings(offbook_command: Offbook):
    out = offbook_command("--help").out
    assert [heading for heading in all_commands() if f"\n{heading}:\n" not in out] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(offbook_command: Offbook, name: str):
    outcome = offbook_command(name, "--help")
    assert outcome.code == 0
    assert f"Example:\n    offbook {name}" in outcome.out


USAGE_ERRORS = {
    "an unknown command": (["shw"], "unknown command 'shw': did you mean 'show'?"),
    "an unknown option": (["show", "--colour", "x"], "No such option"),
    "a missing argument": (["show"], "Missing argument 'TRACE|CASSETTE|FOLDER'"),
    "no such file": (["show", "no-such.jsonl"], "offbook: no-such.jsonl: cannot read the trace"),
}


@pytest.mark.parametrize("args, message", USAGE_ERRORS.values(), ids=USAGE_ERRORS)
def test_wrong_usage_exits_with_2_and_an_error_message(
    offbook_command: Offbook, args: list[str], message: str
):
    outcome = offbook_command(*args)
    assert outcome.code == 2
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert outcome.out == ""


def test_show_prints_a_trace_as_a_tree(offbook_command: Offbook, trace: Path):
    outcome = offbook_command("show", trace)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [
        "run 1 · session · 1 turn",
        '├─ user "Greet me"',
        '│  ├─ 1. call bash {"command":"echo"}',
        "│  │  └─ → hi (mocked)",
        '│  └─ 2. says "Done."',
        "├─ ✓ playbook consumed",
        "└─ passed",
    ]


def test_show_prints_colours_and_times_on_a_terminal(trace: Path):
    with Terminal("show", trace, cwd=trace.parent) as terminal:
        assert terminal.end() == 0
    assert "\x1b[32mpassed\x1b[0m" in terminal.raw
    assert re.search(r'2. says "Done." · \d+ ms · \d+ \+ \d+ tokens', terminal.text)


def test_show_without_times_on_a_terminal_has_none(trace: Path):
    with Terminal("show", trace, "--no-times", cwd=trace.parent, NO_COLOR="1") as terminal:
        assert terminal.end() == 0
    assert '2. says "Done."\n' in terminal.text
    assert "\x1b[" not in terminal.raw


def test_show_json_prints_a_summary(offbook_command: Offbook, trace: Path):
    outcome = offbook_command("show", trace, "--json")
    summary = json.loads(outcome.out)
    assert outcome.code == 0
    assert summary["trace"] == str(trace)
    assert summary["runs"] == [{"subject": "session", "turns": 1, "ok": True, "error": ""}]
    assert summary["tools"] == {"bash": 1}
    assert summary["verdicts"][0]["status"] == "pass"
    assert summary["faults"] == []


BROKEN = {
    # content of the file: exit code, text in stdout, text in stderr
    "a torn last line": (HEADER + EVENT + EVENT[:20], 0, "handoff", ":3: the line is incomplete"),
    "a broken line in the middle": (HEADER + "{]\n" + EVENT, 1, "handoff", ":2: "),
    "only broken lines": ("{]\n" * 30, 2, "", "… and 20 more unreadable lines"),
    "no events": (HEADER, 2, "", "no events in this trace"),
    "an empty file": ("", 2, "", "no events in this trace"),
    "another format": ('{"name": "package"}\n', 2, "", ":1: Object missing required field `ts`"),
    "a newer version": (
        HEADER.replace('"version":1', '"version":999') + EVENT,
        2,
        "",
        "upgrade Offbook to read it",
    ),
    "no header": (EVENT, 0, "handoff", ""),
}


@pytest.mark.parametrize("text, code, out, err", BROKEN.values(), ids=BROKEN)
def test_show_prints_valid_events_and_reports_invalid_lines(
    offbook_command: Offbook, tmp_path: Path, text: str, code: int, out: str, err: str
):
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    outcome = offbook_command("show", path)
    assert outcome.code == code
    assert out in outcome.out
    assert bool(out) == bool(outcome.out)
    assert err in outcome.err
    assert "Traceback" not in outcome.err


def test_show_json_reports_invalid_lines(offbook_command: Offbook, tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    path.write_text(HEADER + "{]\n" + EVENT)
    outcome = offbook_command("show", path, "--json")
    assert outcome.code == 1
    (fault,) = json.loads(outcome.out)["faults"]
    assert fault[0] == 2


def test_the_demo_shows_a_passing_and_a_failing_run(offbook_command: Offbook):
    outcome = offbook_command("demo")
    assert (outcome.code, outcome.err) == (0, "")
    output = outcome.out
    for text in [
        "blocked: this would delete more than you think",
        'ui confirm "Ship it?" "one kettle" → true',
        "└─ passed",
        "└─ failed: ScriptExhausted",
        "fix: end the turn with say(…)",
        "Next steps:",
    ]:
        assert text in output
    order = output.partition("→ ORDER-")[2].partition(":")[0]
    assert f'call ship_order {{"id":"ORDER-{order}"}}' in output
    assert offbook_command("demo").out == output


def test_demo_json_contains_both_runs(offbook_command: Offbook):
    summary = json.loads(offbook_command("demo", "--json").out)
    assert summary["passing"]["runs"][0]["ok"] is True
    assert summary["passing"]["blocked"] == 1
    assert summary["failing"]["runs"][0]["ok"] is False


def test_a_keyboard_interrupt_exits_with_130(
    offbook_command: Offbook, trace: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("offbook.reports.styled_lines.print_lines", interrupt)
    outcome = offbook_command("show", trace)
    assert (outcome.code, outcome.err) == (130, "offbook: interrupted\n")


def test_ctrl_c_at_the_start_of_a_command_is_not_an_error_of_the_script(
    tmp_path: Path, offbook_command: Offbook, monkeypatch: pytest.MonkeyPatch
):
    script = tmp_path / "script.yaml"
    script.write_text("- when: Hello\n  do:\n  - say: Hi.\n")

    def interrupt(*_args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("offbook.runs.rehearsal.Rehearsal.run", interrupt)
    outcome = offbook_command("run", "--script", script, "--", sys.executable, "-c", "")
    assert (outcome.code, outcome.err) == (130, "offbook: interrupted\n")


def test_a_second_ctrl_c_changes_nothing(
    offbook_command: Offbook, trace: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def print_error(text: str) -> None:
        signal.raise_signal(signal.SIGINT)
        sys.stderr.write(text)

    monkeypatch.setattr("offbook.reports.styled_lines.print_lines", interrupt)
    monkeypatch.setattr("offbook.surfaces.cli._print_error", print_error)
    outcome = offbook_command("show", trace)
    assert (outcome.code, outcome.err) == (130, "offbook: interrupted")


@pytest.mark.parametrize(
    "place", ["offbook.surfaces.cli.main", "offbook.surfaces.cli.Commands.find"]
)
def test_ctrl_c_before_a_command_is_found_has_no_traceback(place: str):
    owner, _, name = place.rpartition(".")
    script = f"""
        import sys
        import offbook.surfaces.cli
        from offbook.__main__ import main

        def interrupt(*_, **__):
            raise KeyboardInterrupt

        {owner}.{name} = interrupt
        sys.argv = ["offbook", "show", "run.jsonl"]
        main()
    """
    outcome = subprocess.run(
        [sys.executable, "-c", dedent(script)], capture_output=True, text=True, check=False
    )
    assert (outcome.returncode, outcome.stderr.strip()) == (130, "offbook: interrupted")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_has_its_exit_code_if_a_native_module_panics(
    trace: Path,
    offbook_command: Offbook,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
):
    class Panic(BaseException):
        """As Rust modules raise, whatever has interrupted them."""

    def panic(*_args: object, **_kwargs: object) -> None:
        try:
            signal.raise_signal(number)
        except BaseException:  # noqa: BLE001 - what a panic does
            raise Panic from None

    monkeypatch.setattr("offbook.reports.styled_lines.print_lines", panic)
    outcome = offbook_command("show", trace)
    assert outcome.code == 128 + number
    assert outcome.err == f"offbook: interrupted by {number.name}\n"


def offbook_process(*args: object) -> list[str]:
    return [sys.executable, "-m", "offbook", *map(str, args)]


def test_show_reads_from_a_pipe():
    outcome = subprocess.run(
        offbook_process("show", "/dev/stdin"),
        input=HEADER + EVENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert "handoff" in outcome.stdout


def test_sigint_exits_with_130(tmp_path: Path):
    pipe = tmp_path / "endless"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        offbook_process("show", pipe), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with pipe.open("w") as writer:  # blocks until the command opens the pipe
        writer.write(HEADER + EVENT)
        writer.flush()
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(BrokenPipeError):  # a signal just before a read does not end it
            writer.write(EVENT)
            writer.flush()
        _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (130, "offbook: interrupted\n")


def test_a_closed_output_pipe_exits_with_0(tmp_path: Path):
    path = tmp_path / "long.jsonl"
    path.write_text(HEADER + EVENT * 20_000)
    process = subprocess.Popen(
        offbook_process("show", path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert "handoff" in process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=300) == 0
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a trace, another one, and a test that proves nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.jsonl").write_text(HEADER + EVENT)
    (tmp_path / "two.jsonl").write_text(HEADER + EVENT * 2)
    (tmp_path / "test_empty.py").write_text("def test_nothing(): pass")
    return tmp_path


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize(
    "words, expected",
    [
        ("--help", 0),
        ("--version", 0),
        ("lint --help", 0),
        ("show one.jsonl", 0),
        ("lint test_empty.py", 1),
        ("compare one.jsonl two.jsonl", 1),
        ("show absent.jsonl", 2),
    ],
)
def test_the_exit_code_does_not_depend_on_the_reader_of_the_output(
    words: str, expected: int, buffered: str
):
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONUNBUFFERED": buffered}
    arguments = offbook_process(*words.split())
    outcome = subprocess.run(
        arguments, stdout=writer, stderr=writer, env=environment, timeout=300, check=False
    )
    os.close(writer)
    assert outcome.returncode == expected


@pytest.mark.parametrize("words", ["report one.jsonl --format json -o", "view one.jsonl -o"])
def test_a_folder_as_the_output_is_wrong_usage(words: str, files: Path, offbook_command: Offbook):
    outcome = offbook_command(*words.split(), files)
    assert (outcome.code, outcome.err) == (2, f"offbook: {files}: Is a directory\n")


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    "words, expected",
    [("--help", 0), ("--version", 0), ("show one.jsonl", 0), ("show absent.jsonl", 2)],
)
def test_a_closed_standard_stream_changes_no_exit_code(words: str, expected: int, closed: str):
    command = ["sh", "-c", f"{sys.executable} -m offbook {words} {closed}"]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert outcome.returncode == expected
    assert "Traceback" not in outcome.stderr


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("words", ["--help", "--version", "lint --help", "show one.jsonl"])
def test_output_that_cannot_be_written_is_an_error(words: str, buffered: str):
    with Path("/dev/full").open("w") as full:
        outcome = subprocess.run(
            offbook_process(*words.split()),
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": buffered},
            text=True,
            timeout=300,
            check=False,
        )
    assert outcome.returncode == 1
    assert outcome.stderr.startswith("offbook: No space left on device\n")
    assert "Exception ignored" not in outcome.stderr


@pytest.mark.parametrize("no_colour, expected", [("", True), ("1", False)])
def test_a_terminal_shows_colours_unless_no_color_is_set(
    trace: Path,
    unwatched: dict[str, str],
    no_colour: str,
    expected: bool,  # noqa: FBT001 - a column
):
    reader, terminal = pty.openpty()
    environment = {**unwatched, "TERM": "xterm-256color", "NO_COLOR": no_colour}
    subprocess.run(offbook_process("show", trace), stdout=terminal, env=environment, check=True)
    os.close(terminal)
    output = b""
    while chunk := _read(reader):
        output += chunk
    os.close(reader)
    assert "└─ passed" in output.decode().replace("\x1b[32m", "").replace("\x1b[2m", "").replace(
        "\x1b[0m", ""
    )
    assert (b"\x1b[" in output) is expected


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # the other end is closed
        return b""


def test_no_colours_without_a_terminal(trace: Path):
    outcome = subprocess.run(offbook_process("show", trace), capture_output=True, check=True)
    assert b"\x1b[" not in outcome.stdout


def test_help_imports_no_stage_and_no_package(unwatched: dict[str, str]):
    program = (
        "import runpy, sys\nsys.argv = ['offbook', '--help']\n"
        "runpy.run_module('offbook', run_name='__main__')\n"
        "print(*sys.modules, sep='\\n')"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", program], env=unwatched, capture_output=True, text=True, check=True
    )
    modules = set(outcome.stdout.splitlines())
    assert not {"click", "msgspec", "asyncio", "re"} & modules
    assert {name for name in modules if name.startswith("offbook.")} == {
        "offbook.capability",
        "offbook.checkup",
        "offbook.conformance",
        "offbook.contracts",
        "offbook.evals",
        "offbook.goldens",
        "offbook.explore",
        "offbook.lint",
        "offbook.mcp",
        "offbook.patterns",
        "offbook.protocols",
        "offbook.sandbox",
        "offbook.surfaces",
        "offbook.surfaces.capabilities",
        "offbook.surfaces.commands",
        "offbook.version",
        "offbook.viewer",
        "offbook.workflows",
    }


def test_collections_do_not_visit_what_a_command_imports(unwatched: dict[str, str], trace: Path):
    program = (
        "import gc, runpy, sys\nsys.argv = ['offbook', 'show', sys.argv[1]]\n"
        "try:\n    runpy.run_module('offbook', run_name='__main__')\n"
        "except SystemExit:\n    print(gc.get_freeze_count())"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", program, trace],
        env=unwatched,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(outcome.stdout.splitlines()[-1]) > 10_000  # the functions and classes of click


KILLED = """
import os, signal, sys
from offbook import call, say, session, when

def deadly(api):
    @api.tool("die")
    def die(params, ctx):
        os.kill(os.getpid(), signal.SIGKILL)

session(extensions=[deadly], trace=sys.argv[1]).run(
    when("Go", [call("bash", {"command": "echo alive"}), call("die"), say("Never.")])
)
"""


def test_a_killed_run_is_shown_up_to_its_last_event(offbook_command: Offbook, tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    killed = subprocess.run([sys.executable, "-c", KILLED, path], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    outcome = offbook_command("show", path)
    assert outcome.code == 0
    assert outcome.out.splitlines()[-3:] == [
        "│  │  └─ → alive",
        "│  └─ 2. call die {}",
        "└─ the trace ends here, before the end of the run: it was killed, or still runs",
    ]


@pytest.mark.parametrize("forced, expected", [("1", True), ("0", False), ("", False)])
def test_force_color_prints_colours_without_a_terminal(
    trace: Path,
    forced: str,
    expected: bool,  # noqa: FBT001 - a column
):
    environment = {**os.environ, "FORCE_COLOR": forced, "NO_COLOR": ""}
    outcome = run_python("-m", "offbook", "show", trace, env=environment)
    assert ("\x1b[" in outcome.stdout) is expected


NARROW = 36


@pytest.mark.parametrize("command", ["show", "--help", "view"])
def test_a_narrow_terminal_breaks_lines_between_words(command: str, trace: Path):
    words = [command] if command == "--help" else [command, "missing.jsonl"]
    words = ["show", trace] if command == "show" else words
    with Terminal(*words, cwd=trace.parent, COLUMNS=str(NARROW), NO_COLOR="1") as terminal:
        terminal.end()
    assert max(map(len, terminal.text.splitlines())) <= NARROW


def test_the_parts_of_a_broken_line_stay_behind_the_guides():
    line = (StyledText("├─ ", "faint"), StyledText("one "), StyledText("two three", "ok"))
    assert [render_line(piece) for piece in wrap_line(line, 12)] == [
        "├─ one two",
        "│    three",
    ]
