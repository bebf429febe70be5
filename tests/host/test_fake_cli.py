"""A fake program on the PATH answers from its script, in any language and in parallel."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import CheckFailed, UnmockedCall, UsageError
from offbook.reports import TraceTree
from offbook.runs import session
from offbook.sources.playbook import call, say, when
from offbook.testing import FakeCli, fake_cli, mock_pi
from offbook.trace import Trace
from tests.forked import run_python
from tests.measured_scripts import measure_script
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    script = "offbook.host.fake_program"
    measure_script(
        monkeypatch, tmp_path_factory.mktemp("measured"), script, "offbook.host.fake_cli.PROGRAM"
    )


def run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    program = shutil.which(command[0])
    assert program
    return subprocess.run(
        [program, *command[1:]], text=True, capture_output=True, check=False, **options
    )


def test_the_output_is_printed_as_it_is():
    with fake_cli("claude", [{"output": "Reviewed: ü\n"}, "no newline"]):
        assert run("claude", "-p", "x").stdout == "Reviewed: ü\n"
        assert run("claude").stdout == "no newline"


def test_a_call_has_its_arguments_its_folder_and_its_exit_code(tmp_path: Path):
    with fake_cli("claude", [{"exit_code": 3}]) as claude:
        run("claude", "-p", "two words", "", cwd=tmp_path)
        (made,) = claude.calls
    assert (made.args, made.cwd, made.exit_code) == (("-p", "two words", ""), str(tmp_path), 3)


def test_the_calls_are_kept_after_the_end():
    with fake_cli("claude", ["a"]) as claude:
        run("claude", "x")
    assert [made.args for made in claude.calls] == [("x",)]


def test_standard_input_is_recorded_when_asked_for():
    with fake_cli("codex", ["ok"], stdin=True) as codex:
        run("codex", "exec", "-", input="The prompt\n")
    assert codex.calls[0].stdin == "The prompt\n"


def test_bytes_that_are_no_text_are_recorded_as_marks(tmp_path: Path):
    folder = tmp_path / os.fsdecode(b"a\xff")
    folder.mkdir()
    with fake_cli("codex", ["ok"], stdin=True) as codex:
        program = shutil.which("codex")
        assert program
        subprocess.run([program.encode(), b"\xfe"], input=b"\xff\xfe", cwd=folder, check=True)
        (made,) = codex.calls
    assert (made.args, made.stdin) == (("\ufffd",), "\ufffd\ufffd")
    assert made.cwd == str(tmp_path / "a\ufffd")


def test_an_open_standard_input_does_not_block_a_call():
    with fake_cli("codex", ["ok"]):
        program = shutil.which("codex")
        assert program
        with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.wait(timeout=300) == 0


def test_an_unused_answer_fails():
    with pytest.raises(CheckFailed, match=r"never used: 1 of 2 answers .* 'claude': .*\"two\""):  # noqa: SIM117 - the inner one fails
        with fake_cli("claude", ["one", "two"]):
            run("claude")


def test_unused_answers_are_kept_after_the_end():
    claude = fake_cli("claude", ["one", "two"]).install()
    run("claude")
    claude.uninstall()
    assert claude.unused == [{"output": "two"}]
    with pytest.raises(CheckFailed, match="never used: 1 of 2 answers"):
        claude.check()


def test_unused_answers_can_be_allowed():  # noqa: OB101 - it must not raise
    with fake_cli("claude", ["one"], allow_unused_mocks=True):
        pass


def test_an_error_of_the_body_hides_no_unused_answer():
    with pytest.raises(ZeroDivisionError), fake_cli("claude", ["one"]):
        _ = 1 / 0


def test_a_call_without_an_answer_fails_also_if_the_caller_ignores_it():
    claude = fake_cli("claude", ["one"]).install()
    run("claude")
    result = run("claude", "-p", "more")
    claude.uninstall()
    assert result.returncode == 1
    assert "offbook: no answer for call 2" in result.stderr
    with pytest.raises(UnmockedCall, match="no answer for call 2 of the fake program: claude -p"):
        claude.check()


def test_a_match_selects_the_calls_of_an_answer():
    answers = [{"match": "push*", "exit_code": 1}, {"match": "status*", "output": "clean"}]
    with fake_cli("git", answers):
        assert run("git", "status", "-s").stdout == "clean"
        assert run("git", "push", "origin").returncode == 1


def test_a_call_that_no_match_fits_names_the_patterns():
    with pytest.raises(UnmockedCall, match=r"git commit(?s:.)*the answers match: 'push\*'"):  # noqa: SIM117 - the inner one fails
        with fake_cli("git", [{"match": "push*"}]):
            run("git", "commit")


def test_parallel_calls_get_each_answer_once():
    answers = [{"output": str(number)} for number in range(24)]
    with fake_cli("claude", answers) as claude, ThreadPoolExecutor(8) as pool:
        outputs = [made.stdout for made in pool.map(run, ["claude"] * len(answers))]
    assert sorted(outputs, key=int) == [str(number) for number in range(24)]
    assert [made.number for made in claude.calls] == list(range(1, 25))


def kill_call(fake: FakeCli) -> None:
    """Start a call, and kill it when it is recorded."""
    program = shutil.which(fake.program)
    assert program
    with subprocess.Popen([program]) as process:
        wait_until(lambda: fake.calls, process)
        process.kill()


def test_a_late_call_that_was_killed_is_recorded_and_blocks_no_other():
    with fake_cli("claude", [{"delay": 60}, "next"]) as claude:
        kill_call(claude)
        assert run("claude").stdout == "next"
    assert [made.exit_code for made in claude.calls] == [None, 0]


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A file that blocks who writes to it until it is read."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_call_that_was_killed_before_its_answer_fails(pipe: Path):
    claude = fake_cli("claude", [{"write_files": {str(pipe): "x"}}]).install()
    kill_call(claude)
    claude.uninstall()
    with pytest.raises(CheckFailed, match=r"call 1 .* did not give its answer: it was killed"):
        claude.check()


def test_an_answer_that_cannot_be_given_fails_also_if_the_caller_ignores_it(tmp_path: Path):
    (tmp_path / "a").touch()
    answer = {"output": "x", "write_files": {str(tmp_path / "a" / "b"): "1"}}
    claude = fake_cli("claude", [answer]).install()
    result = run("claude")
    claude.uninstall()
    assert (result.returncode, result.stdout, claude.calls[0].exit_code) == (1, "", 1)
    assert result.stderr.startswith("offbook: the fake program failed: FileExistsError")
    with pytest.raises(CheckFailed, match=r"call 1 .* did not give its answer: FileExistsError"):
        claude.check()


def test_a_call_that_ends_after_a_reset_is_not_recorded(pipe: Path):
    with fake_cli("claude", [{"write_files": {str(pipe): "x"}}]) as claude:
        program = shutil.which("claude")
        assert program
        with subprocess.Popen([program]) as process:
            wait_until(lambda: claude.calls, process)
            claude.reset()
            assert pipe.read_text() == "x"
        assert (process.returncode, claude.calls) == (0, [])


def test_a_call_that_ends_after_the_program_is_gone_gives_its_answer(pipe: Path):
    claude = fake_cli("claude", [{"write_files": {str(pipe): "x"}, "exit_code": 3}]).install()
    program = shutil.which("claude")
    assert program
    with subprocess.Popen([program], stderr=subprocess.PIPE) as process:
        wait_until(lambda: claude.calls, process)
        claude.uninstall()
        assert pipe.read_text() == "x"
        assert process.communicate()[1] == b""
    assert process.returncode == 3


def test_two_fakes_are_on_the_path_together():
    before = os.environ["PATH"]
    first, second = fake_cli("claude", ["a"]).install(), fake_cli("codex", ["b"]).install()
    assert run("claude").stdout + run("codex").stdout == "ab"
    first.uninstall()
    assert run("codex").returncode == 1
    second.uninstall()
    assert os.environ["PATH"] == before


def test_a_fake_works_from_a_folder_with_a_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "a folder"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with fake_cli("claude", ["ok"]):
        assert run("claude").stdout == "ok"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_a_caller_in_another_language_gets_the_answer():
    code = "process.stdout.write(require('child_process').execFileSync('claude', ['-p', 'x']))"
    with fake_cli("claude", [{"output": "from the script"}]):
        assert run("node", "-e", code).stdout == "from the script"


def test_a_wrong_program_name_is_refused():
    with pytest.raises(UsageError, match="expected the name of a program, got '/bin/pi'"):
        fake_cli("/bin/pi")


def test_one_answer_instead_of_a_list_is_refused():
    with pytest.raises(UsageError, match="answers must be a list, got dict"):
        fake_cli("pi", {"output": "x"})  # pyright: ignore[reportArgumentType] - the mistake


def delegate(api: Any) -> None:
    @api.tool("delegate", "Start a subagent.", {"type": "object"})
    def delegate(params: dict[str, Any], ctx: object) -> str:
        return run("pi", "-p", params["task"]).stdout


def test_a_call_in_a_run_is_in_its_trace_before_the_next_request(tmp_path: Path):
    trace = tmp_path / "trace.jsonl"
    with mock_pi(["Done."]), session(extensions=[delegate], trace=trace) as rehearsal:
        run("pi", "before the run")
        script = when("Go", [call("delegate", {"task": "Review"}), say("Reviewed.")])
        rehearsal.run(script)
    events = [event for event in Trace(trace) if event.event in {"cli.call", "model.request"}]
    assert [event.event for event in events] == ["model.request", "cli.call", "model.request"]
    data = {"program": "pi", "args": ["-p", "Review"], "exit_code": 0}
    assert events[1].data == data
    lines = "\n".join(
        "".join(part.text for part in line) for line in TraceTree().render(Trace(trace))
    )
    assert "fake pi -p Review exit 0" in lines


def test_a_call_that_did_not_end_has_no_exit_code_in_the_trace(tmp_path: Path):
    trace = tmp_path / "trace.jsonl"
    claude = fake_cli("claude", [{"delay": 60}])

    def delegate(api: Any) -> None:
        @api.tool("delegate")
        def delegate(params: object, ctx: object) -> str:
            kill_call(claude)
            return "killed"

    with claude, session(extensions=[delegate], trace=trace) as rehearsal:
        rehearsal.run(when("Go", [call("delegate"), say("Done.")]))
    (event,) = [event for event in Trace(trace) if event.event == "cli.call"]
    assert event.data == {"program": "claude", "args": []}
    lines = ["".join(part.text for part in line) for line in TraceTree().render(Trace(trace))]
    assert any("fake claude did not end" in line for line in lines)


PLUGIN_TEST = """
import subprocess

def test_used(fake_cli, mock_pi):
    claude = fake_cli("claude", ["ok"])
    mock_pi.add("done")
    assert subprocess.check_output(["claude"]) == b"ok"
    assert b"done" in subprocess.check_output(["pi", "x"])
    assert claude.call_count == mock_pi.call_count == 1

def test_unused(fake_cli):
    fake_cli("claude", ["ok"])

def test_unused_pi(mock_pi):
    mock_pi.add("done")

def test_gone():
    import os
    assert "offbook-fake-" not in os.environ["PATH"]
"""


def test_the_fixtures_fail_a_test_with_an_unused_answer(tmp_path: Path):
    (tmp_path / "test_it.py").write_text(PLUGIN_TEST)
    args = ["-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--no-header", str(tmp_path)]
    result = run_python("-m", "pytest", *args, cwd=tmp_path)
    assert "2 failed, 2 passed" in result.stdout, result.stdout + result.stderr
    assert "never used: 1 of 1 answers of the fake program 'pi'" in result.stdout
