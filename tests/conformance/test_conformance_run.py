"""Cases as processes: output, exit codes, limits, leftovers and updates."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from offbook.conformance import (
    ConformanceResult,
    find_cases,
    read_suite_settings,
    run_cases,
    start_worker,
)
from tests.waiting import wait_until

FOREVER = "sleep 1000"


def run(folder: Path, files: dict[str, str], **options: Any) -> dict[str, ConformanceResult]:
    """Write a suite, run it and return the results by name."""
    limits = {name: options.pop(name) for name in ("timeout", "max_output") if name in options}
    lines = [f"{name} = {value}" for name, value in limits.items()]
    folder.mkdir(exist_ok=True)
    (folder / "conformance.toml").write_text("\n".join(lines))
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    settings = read_suite_settings(folder, [options.pop("command", "sh {file}")])
    results = run_cases(find_cases(folder, settings), settings, **options)
    return {result.name: result for result in results}


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


COMPARED = {
    "the same output": ("echo hi", "expected", "hi\n", ""),
    "a missing final newline in the file": ("echo hi", "expected", "hi", ""),
    "a missing final newline in the output": ("printf hi", "expected", "hi\n", ""),
    "another output": ("echo ho", "expected", "hi\n", "the output differs"),
    "a further empty line": ("echo hi; echo", "expected", "hi\n", "the output differs"),
    "a trailing space": ("echo 'hi '", "expected", "hi\n", "the output differs"),
    "a carriage return": (r"printf 'hi\r\n'", "expected", "hi\n", "the output differs"),
    "no output": (":", "expected", "hi\n", "the output differs"),
    "output on standard error": ("echo hi; echo warning >&2", "expected", "hi\n", ""),
    "the right output and an exit code": ("echo hi; exit 3", "expected", "hi\n", "exit code 3"),
    "a signal": ("kill -9 $$", "expected", "", "exit code -9"),
    "the error": ("echo boom >&2; exit 1", "error", "boom", ""),
    "the error on standard output": ("echo boom; exit 1", "error", "boom", ""),
    "one of two errors": ("echo two >&2; exit 1", "error", "one\nre:^t", ""),
    "another error": ("echo bang >&2; exit 1", "error", "boom", "the error does not match: boom"),
    "the message without a failure": (
        "echo boom >&2",
        "error",
        "boom",
        "expected an error, got exit code 0: boom",
    ),
}


@pytest.mark.parametrize("name", COMPARED)
def test_a_case_is_compared(name: str, tmp_path: Path):
    source, kind, expectation, message = COMPARED[name]
    result = run(tmp_path, {"a.sh": source, f"a.{kind}": expectation})["a.sh"]
    assert (result.outcome, result.message) == ("failed" if message else "passed", message)


def test_a_difference_is_shown_with_invisible_characters(tmp_path: Path):
    files = {"a.sh": r"printf 'one\r\ntwo\n'", "a.expected": "one\ntwo\n"}
    diff = run(tmp_path, files)["a.sh"].diff
    assert {"-one", "+one\\r", " two"} <= set(diff)


def test_a_difference_in_a_long_output_is_shown_with_the_lines_around_it(tmp_path: Path):
    files = {"a.sh": "seq 1 40000; echo x", "a.expected": "\n".join(map(str, range(1, 40_000)))}
    heading = ("--- expected", "+++ actual")
    lines = (" 39997", " 39998", " 39999", "+40000", "+x", "+")
    assert run(tmp_path, files)["a.sh"].diff == (*heading, *lines)


def test_output_that_is_no_text_is_compared(tmp_path: Path):
    (tmp_path / "a.expected").write_bytes(b"\xff\x00")
    assert run(tmp_path, {"a.sh": r"printf '\377\000'"})["a.sh"].outcome == "passed"


def test_a_case_without_an_expectation_fails_and_the_others_run(tmp_path: Path):
    results = run(tmp_path, {"a.sh": "echo hi", "a.expected": "hi", "b.sh": "echo ho"})
    assert results["a.sh"].outcome == "passed"
    assert results["b.sh"].failed


@pytest.mark.parametrize(
    "source, outcome", [("exit 1", "xfailed"), ("echo hi", "xpassed"), (FOREVER, "xfailed")]
)
def test_a_known_failure_passes_and_a_stale_mark_fails(tmp_path: Path, source: str, outcome: str):
    files = {"a.sh": f"# @xfail: issue 7\n{source}\n", "a.expected": "hi"}
    result = run(tmp_path, files, timeout=0.2 if source == FOREVER else 300)["a.sh"]
    assert result.outcome == outcome
    assert result.failed is (outcome == "xpassed")
    assert "issue 7" in result.message


UNJUDGED: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "a command that cannot be started": (
        {"a.expected": "hi"},
        {"command": "no-such-command {file}"},
        "cannot run 'no-such-command': No such file or directory",
    ),
    "no expectation": ({}, {}, "no expectation: write a.expected or a.error"),
    "no expectation, with an update": (
        {},
        {"update": True},
        "no expectation: write a.expected or a.error",
    ),
}


@pytest.mark.parametrize("files, options, message", UNJUDGED.values(), ids=UNJUDGED)
def test_a_case_that_could_not_be_judged_is_no_known_failure(
    tmp_path: Path, files: dict[str, str], options: dict[str, Any], message: str
):
    files = {"a.sh": "# @xfail: issue 7\nexit 1\n", "z.sh": "", "z.expected": "", **files}
    result = run(tmp_path, files, **options)["a.sh"]
    assert (result.outcome, result.message) == ("failed", message)


def test_a_case_that_hangs_is_killed_with_its_children(tmp_path: Path):
    pids = tmp_path / "pids"
    source = f"{FOREVER} & echo $! >{pids}; setsid {FOREVER} & echo $! >>{pids}; wait"
    results = run(
        tmp_path,
        {"a.sh": source, "a.expected": "", "b.sh": "echo hi", "b.expected": "hi"},
        timeout=5,  # to write both pids on a busy machine
    )
    assert results["a.sh"].message == "killed after 5 s"
    assert results["b.sh"].outcome == "passed"
    assert not any(is_running(int(pid)) for pid in pids.read_text().split())


@pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")
def test_a_process_that_forks_away_is_killed_and_does_not_hold_the_case(tmp_path: Path):
    # Another session, its parent gone, and the pipes of the case still open.
    source = (
        f"(setsid sh -c 'echo $$ >{tmp_path}/pid; {FOREVER}' &); "
        f"while [ ! -s {tmp_path}/pid ]; do :; done; echo hi"
    )
    result = run(tmp_path, {"a.sh": source, "a.expected": "hi"})["a.sh"]
    assert result.outcome == "passed"
    assert result.leaked >= 1
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_a_case_that_prints_100_mb_ends_by_its_limit(tmp_path: Path):
    files = {
        "a.sh": "yes | head -c 100000000",
        "a.expected": "",
        "b.sh": "yes >&2",
        "b.expected": "",
        "c.sh": "echo hi",
        "c.expected": "hi",
    }
    results = run(tmp_path, files, max_output=1_000_000)
    limit = "killed after 1,000,000 bytes of output"
    assert (results["a.sh"].message, results["b.sh"].message) == (limit, limit)
    assert results["c.sh"].outcome == "passed"


def test_output_up_to_the_limit_is_allowed(tmp_path: Path):
    files = {"a.sh": "printf 12345", "a.expected": "12345"}
    assert run(tmp_path, files, max_output=5)["a.sh"].outcome == "passed"
    assert run(tmp_path, files, max_output=4)["a.sh"].failed


def test_a_case_that_closes_its_pipes_runs_on(tmp_path: Path):
    source = f"echo hi; exec >&- 2>&-; sleep 0.1; touch {tmp_path}/end"
    assert run(tmp_path, {"a.sh": source, "a.expected": "hi"})["a.sh"].outcome == "passed"
    assert (tmp_path / "end").exists()


def test_a_case_gets_no_input(tmp_path: Path):
    assert run(tmp_path, {"a.sh": "cat; echo hi", "a.expected": "hi"})["a.sh"].outcome == "passed"


def test_several_jobs_run_at_a_time(tmp_path: Path):
    # Each waits for the other, so one after another they would never end.
    files: dict[str, str] = {}
    for name, other in (("a", "b"), ("b", "a")):
        wait = f"while [ ! -e {tmp_path}/{other}.up ]; do :; done"
        files |= {f"{name}.sh": f"touch {tmp_path}/{name}.up; {wait}", f"{name}.expected": ""}
    results = run(tmp_path, files, jobs=2, timeout=60)
    assert {result.outcome for result in results.values()} == {"passed"}


def test_a_program_that_does_not_exist_is_reported(tmp_path: Path):
    (tmp_path / "a.sh").write_text("")
    (tmp_path / "a.expected").write_text("")
    settings = read_suite_settings(tmp_path, ["no-such-program {file}"])
    (result,) = run_cases(find_cases(tmp_path, settings), settings)
    assert result.message == "cannot run 'no-such-program': No such file or directory"


def test_a_worker_that_is_killed_fails_its_case_only(tmp_path: Path):
    # The parent of a case is its worker.
    files = {"a.sh": "kill -9 $PPID", "a.expected": ""}
    files |= {"b.sh": "echo hi", "b.expected": "hi"}
    results = run(tmp_path, files)
    assert results["a.sh"].message == "the process of the case was killed"
    assert results["b.sh"].outcome == "passed"


def test_the_case_ends_when_its_starter_is_gone(tmp_path: Path):
    from offbook.conformance import send_message

    worker = start_worker()
    script = f"echo $$ >{tmp_path}/pid; {FOREVER}"
    send_message(worker.channel, (["sh", "-c", script], 60.0, 1000))
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    worker.close()
    assert not is_running(int((tmp_path / "pid").read_text()))


# --- update


@pytest.mark.parametrize(
    "files, name, content",
    [
        ({"a.sh": "echo new", "a.expected": "old"}, "a.expected", "new\n"),
        ({"a.sh": "echo new"}, "a.expected", "new\n"),
        ({"a.sh": "echo one >&2; echo boom >&2; exit 1"}, "a.error", "boom\n"),
    ],
)
def test_an_update_writes_the_expectation(
    tmp_path: Path, files: dict[str, str], name: str, content: str
):
    files = {**files, "z.sh": "", "z.expected": ""}  # the extension of the suite
    assert run(tmp_path, files, update=True)["a.sh"].outcome == "updated"
    assert (tmp_path / name).read_text() == content
    assert run(tmp_path, {})["a.sh"].outcome == "passed"


@pytest.mark.parametrize(
    "files",
    [
        {"a.sh": "exit 1", "a.expected": "old"},
        {"a.sh": "echo bang >&2; exit 1", "a.error": "boom"},
        {"a.sh": FOREVER, "a.expected": "old"},
        {"a.sh": "# @xfail: issue 7\necho new", "a.expected": "old"},
        {"a.expected": "old"},
    ],
)
def test_an_update_keeps_what_is_no_new_result(tmp_path: Path, files: dict[str, str]):
    files = {**files, "z.sh": "", "z.expected": ""}
    results = run(tmp_path, files, update=True, timeout=0.5)
    assert all(result.outcome != "updated" for result in results.values())
    assert {path.name for path in tmp_path.iterdir()} == {*files, "conformance.toml"}
    for name, text in files.items():
        assert (tmp_path / name).read_text() == text


# --- interruption


def test_an_interrupted_run_leaves_no_process(tmp_path: Path):
    (tmp_path / "a.sh").write_text(f"echo $$ >{tmp_path}/pid; {FOREVER}")
    (tmp_path / "a.expected").write_text("")
    command = [sys.executable, "-m", "offbook", "conformance", str(tmp_path), "--run", "sh {file}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        pid = int((tmp_path / "pid").read_text())
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=300)
        assert process.returncode == 130
        assert not is_running(pid)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.external
def test_the_expected_outputs_of_harn_are_compared_exactly(shared_data: Path, tmp_path: Path):
    expected = sorted((shared_data / "harn" / "conformance").rglob("*.expected"))
    assert len(expected) >= 9
    files: dict[str, str] = {}
    for path in expected:
        files |= {f"{path.stem}.expected": path.read_text(), f"{path.stem}.sh": f"cat '{path}'"}
    results = run(tmp_path / "same", files)
    assert {name: result.outcome for name, result in results.items() if result.failed} == {}
    changed = {
        name: text + ("; echo more" if name.endswith(".sh") else "") for name, text in files.items()
    }
    assert all(result.failed for result in run(tmp_path / "changed", changed).values())
