"""The fake `pi` behaves as the table of the reference says: a test for each row, M1 to M28."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import UsageError
from offbook.testing import FakeCli, mock_pi
from tests.measured_scripts import measure_script

Answer = dict[str, Any]


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    script = "offbook.host.fake_program"
    measure_script(
        monkeypatch, tmp_path_factory.mktemp("measured"), script, "offbook.host.fake_cli.PROGRAM"
    )


@pytest.fixture
def pi() -> Iterator[FakeCli]:
    fake = mock_pi(allow_unused_mocks=True).install()
    yield fake
    fake.uninstall()


def run_pi(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Start `pi` as an extension does: by its name, from the PATH."""
    program = shutil.which("pi")
    assert program
    return subprocess.run([program, *args], cwd=cwd, text=True, capture_output=True, check=False)


def message(output: str) -> dict[str, Any]:
    (line,) = output.splitlines()
    event = json.loads(line)
    assert event["type"] == "message_end"
    return event["message"]


def text(output: str) -> str:
    return "".join(block["text"] for block in message(output)["content"])


# --- M1 to M5: install


def test_m1_an_installed_fake_is_an_executable_file(pi: FakeCli):
    assert (pi.folder / "pi").is_file()
    assert os.access(pi.folder / "pi", os.X_OK)


def test_m2_an_installed_fake_is_first_on_the_path(pi: FakeCli):
    assert os.environ["PATH"].startswith(f"{pi.folder}{os.pathsep}")


def test_m3_install_is_idempotent(pi: FakeCli):
    before = os.environ["PATH"], pi.folder
    pi.install()
    assert (os.environ["PATH"], pi.folder) == before


def test_m4_uninstall_restores_the_path_and_removes_the_files():
    before = os.environ["PATH"]
    fake = mock_pi().install()
    folder = fake.folder
    fake.uninstall()
    assert os.environ["PATH"] == before
    assert not folder.parent.exists()


def test_m5_uninstall_is_idempotent():
    before = os.environ["PATH"]
    fake = mock_pi().install()
    fake.uninstall()
    fake.uninstall()
    assert os.environ["PATH"] == before


# --- M6 and M7: without a script


def test_m6_without_a_script_it_repeats_its_task(pi: FakeCli):
    assert text(run_pi("-p", "Review main.py").stdout) == "Review main.py"


def test_m7_it_prints_a_message_end_of_the_assistant(pi: FakeCli):
    printed = message(run_pi("hello").stdout)
    assert (printed["role"], printed["model"]) == ("assistant", "mock/test-model")
    assert printed["usage"]["input"] >= 0


# --- M8 to M11: the script


def test_m8_an_answer_has_its_own_output(pi: FakeCli):
    pi.add({"output": "Reviewed."})
    assert text(run_pi("-p", "Review").stdout) == "Reviewed."


def test_m9_answers_are_used_in_order(pi: FakeCli):
    pi.add("one")
    pi.add("two")
    assert [text(run_pi("x").stdout) for _ in range(2)] == ["one", "two"]


def test_m10_the_last_answer_is_repeated(pi: FakeCli):
    pi.add("one")
    pi.add("two")
    assert [text(run_pi("x").stdout) for _ in range(4)] == ["one", "two", "two", "two"]


def test_m11_calls_are_counted(pi: FakeCli):
    counts = [pi.call_count]
    for _ in range(2):
        run_pi("x")
        counts.append(pi.call_count)
    assert counts == [0, 1, 2]


# --- M12 to M14: exit code and stderr


@pytest.mark.parametrize("code", [0, 1], ids=["m12", "m13"])
def test_m12_m13_an_answer_has_its_exit_code(pi: FakeCli, code: int):
    pi.add({"output": "x", "exit_code": code})
    assert run_pi("x").returncode == code


def test_m14_stderr_does_not_change_stdout(pi: FakeCli):
    pi.add({"output": "fine", "stderr": "warning: slow\n"})
    result = run_pi("x")
    assert (result.stderr, text(result.stdout)) == ("warning: slow\n", "fine")


# --- M15: events


def test_m15_raw_events_replace_the_default_one_per_line_in_order(pi: FakeCli):
    events = [{"type": "agent_start"}, {"type": "tool_execution_start", "toolName": "read"}]
    pi.add({"jsonl": events})
    assert [json.loads(line) for line in run_pi("x").stdout.splitlines()] == events


# --- M16 and M17: files


def test_m16_a_file_is_written_in_the_folder_of_the_call(pi: FakeCli, tmp_path: Path):
    pi.add({"write_files": {"plan.md": "# Plan\n"}})
    run_pi("x", cwd=tmp_path)
    assert (tmp_path / "plan.md").read_text() == "# Plan\n"


def test_m17_the_folders_of_a_file_are_created(pi: FakeCli, tmp_path: Path):
    pi.add({"write_files": {"a/b/c.txt": "deep"}})
    run_pi("x", cwd=tmp_path)
    assert (tmp_path / "a/b/c.txt").read_text() == "deep"


# --- M18 and M19: reset


def test_m18_reset_removes_the_script_and_the_calls(pi: FakeCli):
    pi.add("scripted")
    run_pi("x")
    pi.reset()
    assert (pi.call_count, pi.calls) == (0, [])
    assert text(run_pi("again").stdout) == "again"


def test_m19_after_reset_a_new_script_is_used(pi: FakeCli):
    pi.add("old")
    run_pi("x")
    pi.reset()
    pi.add("new")
    assert text(run_pi("x").stdout) == "new"


# --- M20 to M22: the command line


def test_m20_session_dir_gets_a_session_file(pi: FakeCli, tmp_path: Path):
    run_pi("--session-dir", str(tmp_path / "sessions"), "-p", "Task")
    (path,) = (tmp_path / "sessions").glob("session-*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0]["type"] == "session"
    assert [line["message"]["role"] for line in lines[1:]] == ["user", "assistant"]


def test_m21_the_task_may_be_in_a_file(pi: FakeCli, tmp_path: Path):
    (tmp_path / "task.md").write_text("Review all of it")
    assert text(run_pi("-p", "@task.md", cwd=tmp_path).stdout) == "Review all of it"


def test_m21_a_missing_task_file_fails_as_in_pi(pi: FakeCli):
    result = run_pi("-p", "@no-such-file.md")
    assert (result.returncode, "no-such-file.md" in result.stderr) == (1, True)


def test_m22_options_are_not_part_of_the_task(pi: FakeCli):
    options = ["--mode", "json", "-p", "--no-session", "--model", "fake/model"]
    assert text(run_pi(*options, "The task").stdout) == "The task"


# --- M23: delay


def test_m23_an_answer_may_be_delayed(pi: FakeCli):
    pi.add({"output": "late", "delay": 0.2})
    start = time.monotonic()
    run_pi("x")
    assert time.monotonic() - start >= 0.2


# --- M24 to M27: validation

WRONG: Mapping[str, tuple[Answer, str]] = {
    "m24": ({"outputt": "x"}, r"no key 'outputt'\ndid you mean 'output'"),
    "m25": ({"exitcode": 1, "files": {}}, "no key 'exitcode'\ndid you mean 'exit_code'"),
    "a value of the wrong type": ({"exit_code": "1"}, "invalid answer"),
    "an exit code that no process has": ({"exit_code": 256}, "invalid answer"),
    "a negative delay": ({"delay": -1}, "invalid answer"),
}


@pytest.mark.parametrize("name", WRONG)
def test_m24_m25_a_wrong_answer_is_refused_with_its_key(pi: FakeCli, name: str):
    answer, error = WRONG[name]
    with pytest.raises(UsageError, match=error):
        pi.add(answer)
    with pytest.raises(UsageError, match=error):
        mock_pi([answer])


def test_m26_all_keys_are_accepted(pi: FakeCli):  # noqa: OB101 - it must not raise
    keys: Answer = {"output": "", "stderr": "", "exit_code": 0, "jsonl": [], "write_files": {}}
    pi.add({**keys, "delay": 0, "match": "*"})


def test_m27_an_empty_answer_repeats_the_task(pi: FakeCli):
    pi.add({})
    assert text(run_pi("The task").stdout) == "The task"


# --- M28: everything together


def test_m28_the_parts_of_an_answer_are_combined(pi: FakeCli, tmp_path: Path):
    answer = {"output": "o", "stderr": "e", "write_files": {"f": "x"}, "exit_code": 3}
    pi.add(answer)
    result = run_pi("x", cwd=tmp_path)
    assert (text(result.stdout), result.stderr, result.returncode) == ("o", "e", 3)
    assert (tmp_path / "f").read_text() == "x"
