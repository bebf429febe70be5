"""Whichever is ended, offbook or pytest: the agent and its daemons end, and the trace says why."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from offbook.trace import RUN_END, RUN_START, read_trace
from tests.forked import forked_command, forked_python
from tests.matrix.homes import HOMES
from tests.sandbox.packages import PYTHON_GOOD, write_package
from tests.thorough import THOROUGH
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc"),
]

# For each of the runners and signals; `./dev signals` tries twenty.
MEASURED = "OFFBOOK_SIGNAL_POINTS" in os.environ
POINTS = int(os.environ.get("OFFBOOK_SIGNAL_POINTS", "2"))
# Two seconds are enough, but not for a machine that runs other things, too.
SECONDS = 20.0 if MEASURED else 120.0
RLIMIT_LOCKS = 10  # the limit whose value marks the processes of an agent
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]

# It starts a daemon without environment, session and parent of its own, again and again.
AGENT = """
import os, sys, time
while True:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", [sys.argv[1], "300"], {})
        os._exit(0)
    os.wait()
    with open(sys.argv[1] + ".started", "a") as file:
        file.write(".")
    time.sleep(0.05)
"""
TEST = """
import sys
from offbook import Command, say, when

def test_agent(offbook):
    agent = Command([sys.executable, {agent!r}, {tag!r}])
    offbook.drive(agent, trace={trace!r}).run(when("Hello", [say("Hi.")]))
"""


def command_of(runner: str, folder: Path) -> list[str]:
    """Return a command that runs the agent; each of its processes has the folder in its name."""
    agent, trace = folder / "agent.py", folder / "trace.jsonl"
    agent.write_text(AGENT)
    if runner == "pytest":
        test = folder / "test_agent.py"
        test.write_text(TEST.format(agent=str(agent), tag=str(folder), trace=str(trace)))
        # Its own folder: at the end of a session, pytest removes the old folders of all others,
        # which takes minutes where they are large.
        options = ["-p", "pytest_offbook.plugin", f"--basetemp={folder / 'basetemp'}"]
        return [sys.executable, "-m", "pytest", *options, str(test)]
    playbook = folder / "playbook.yaml"
    playbook.write_text("- when: Hello\n  do:\n    - say: Hi.\n")
    options = ["--playbook", str(playbook), "--trace", str(trace)]
    words = [sys.executable, str(agent), str(folder)]
    return [sys.executable, "-m", "offbook", "run", *options, "--", *words]


def accept_signals() -> None:
    """Undo what nohup and the background jobs of a shell ignore, and the mark of a failed run."""
    resource.setrlimit(RLIMIT_LOCKS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    for number in (*SIGNALS[:-1], signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def processes_of(folder: Path, paths: Iterable[Path] = ()) -> dict[Path, str]:
    """Return the command lines with this folder in them: of all processes, or of these files."""
    lines: dict[Path, str] = {}
    for path in paths or Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            lines[path] = line.replace("\0", " ")
    return lines


def wait_until_gone(folder: Path, seconds: float = SECONDS) -> list[str]:
    """Return the processes that are left after these seconds."""
    end = time.monotonic() + seconds
    left = processes_of(folder)
    while left and time.monotonic() < end:
        time.sleep(0.02)
        # All processes are read again only when those that were found have ended.
        left = processes_of(folder, left) or processes_of(folder)
    return [*left.values()]


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("runner", ["offbook", "pytest"])
@pytest.mark.parametrize("point", range(POINTS))
def test_no_process_is_left_after_a_signal_and_the_trace_has_the_reason(
    runner: str, number: signal.Signals, point: int, tmp_path: Path
):
    tmp_path = tmp_path.resolve()
    output, trace = tmp_path / "output", tmp_path / "trace.jsonl"
    with output.open("wb") as file:
        runs = subprocess.Popen(
            command_of(runner, tmp_path),
            cwd=tmp_path,
            stdout=file,
            stderr=subprocess.STDOUT,
            preexec_fn=accept_signals,  # noqa: PLW1509 - no other thread runs here
            # Other plugins take seconds to end.
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        )
    # One point of four is anywhere in the start of Python; the others are while the agent starts
    # its daemons. Not `random` itself: pytest-randomly seeds it alike for each test.
    wait_until(lambda: not point % 4 or (trace.exists() and RUN_START in trace.read_text()), runs)
    seconds = random.Random(f"{runner} {number} {point}").uniform(0.01, 0.8)  # noqa: S311 - no secret
    with pytest.raises(subprocess.TimeoutExpired):
        runs.wait(seconds)
    runs.send_signal(number)
    early = number == signal.SIGINT and point % 4 == 0
    left = wait_until_gone(tmp_path, min(SECONDS, 15) if early else SECONDS)
    if left and early:
        # In its own start, Python can drop a KeyboardInterrupt: people press Ctrl-C again.
        runs.send_signal(number)
        left = wait_until_gone(tmp_path)
    if left:
        runs.kill()  # the supervisor ends the others
    runs.wait()
    printed = output.read_bytes()
    assert left == [], printed.decode()

    # Before we have started, the signal ends Python; a shell shows that as 128 plus its number.
    codes = {-number, 128 + number, *([2] if (runner, number) == ("pytest", signal.SIGINT) else [])}
    # Interrupted while it imports its own `site` or `-m`, Python has a code of its own.
    starting = (b"Could not import runpy module", b"<frozen site>")
    codes |= {1} if any(text in printed for text in starting) else set()
    assert runs.returncode in codes, printed.decode()
    if not (trace.exists() and RUN_START in trace.read_text()):
        return  # the run had not begun
    events, faults = read_trace(trace)
    assert all(fault.torn for fault in faults)
    if number == signal.SIGKILL:
        shown = subprocess.run(
            [sys.executable, "-m", "offbook", "show", trace], capture_output=True, check=True
        )
        assert b"before the end of the run: it was killed" in shown.stdout
        return
    assert events[-1].event == RUN_END
    # Between the start of the run and that of its command, Ctrl-C interrupts Python itself.
    reasons = ["interrupted: Ctrl-C"] if number == signal.SIGINT else []
    reasons += [] if (runner, number) == ("pytest", signal.SIGINT) else [number.name]
    assert any(reason in events[-1].data["error"] for reason in reasons)


# An agent in the process of Offbook: it starts daemons for ever, and does not listen to signals.
FUNCTION = """
import os, time
from offbook import drive

def agent(prompt=None):
    while True:
        if (child := os.fork()) == 0:
            os.setsid()
            if os.fork() == 0:
                os.execve("/bin/sleep", [{tag!r}, "300"], {{}})
            os._exit(0)
        os.waitpid(child, 0)
        with open({tag!r} + ".started", "a") as file:
            file.write(".")
        time.sleep(0.05)

def world():
    return drive(agent)
"""
PACK = """
id = "daemons"
[[cases]]
id = "one"
subject = "shop.py:agent"
input = "Hi"
playbook = "playbook.yaml"
assertions = [{ kind = "output", contains = "Hi" }]
"""
SCENARIO = """
run: {{task: Go, backend: command, command: {command}}}
assert: [{{type: exit_code, expected: 0}}]
"""
TEST_FUNCTION = """
from offbook import say, when
from shop import agent

def test_agent(offbook):
    offbook.drive(agent).run(when("Hi", [say("Hi.")]))
"""
PYTEST = ["pytest", "-p", "pytest_offbook.plugin"]
XDIST = ["-p", "xdist.plugin", "-n", "2"]
TAG = "{tag}"
# The commands that run an agent, which is in their process or a command of its own.
RUNNERS = {
    "run": ["offbook", "run", "--playbook", "playbook.yaml", "--", sys.executable, "agent.py", TAG],
    "explore": ["offbook", "explore", "shop:world", "Hi"],
    "checkup": ["offbook", "checkup", "shop:agent", "Hi"],
    "eval": ["offbook", "eval", "run", "one.eval.toml"],
    "eval of two jobs": ["offbook", "eval", "run", "one.eval.toml", "--jobs", "2"],
    "eval on Ray": ["offbook", "eval", "run", "one.eval.toml", "--engine", "ray"],
    "scenario": ["offbook", "scenario", "run", "scenario.yaml"],
    "sandbox": ["offbook", "sandbox", "good"],
    "pytest": [*PYTEST, "test_agent.py"],
    "pytest, agent in process": [*PYTEST, "test_function.py"],
    "xdist": [*PYTEST, *XDIST, "test_agent.py"],
    "xdist, agent in process": [*PYTEST, *XDIST, "test_function.py"],
}
RAY = HOMES["ray"]


def write_agents(folder: Path, tag: str) -> None:
    """Write the agent as a function, as a command and as a package, each with its files."""
    (folder / "agent.py").write_text(AGENT)
    (folder / "shop.py").write_text(FUNCTION.format(tag=tag))
    (folder / "one.eval.toml").write_text(PACK)
    (folder / "playbook.yaml").write_text("- when: Hi\n  do:\n    - say: Hi.\n")
    command = [sys.executable, str(folder / "agent.py"), tag]
    (folder / "scenario.yaml").write_text(SCENARIO.format(command=json.dumps(command)))
    test = TEST.format(agent=str(folder / "agent.py"), tag=tag, trace=str(folder / "trace.jsonl"))
    (folder / "test_agent.py").write_text(test)
    (folder / "test_function.py").write_text(TEST_FUNCTION)
    (module,) = (name for name in PYTHON_GOOD if name.endswith(".py"))
    code = f"{FUNCTION.format(tag=tag)}\nagent()\n"
    write_package(folder / "good", PYTHON_GOOD, {module: code})


# An installer that unpacks the wheel: how long the real one takes is not the subject here.
UV = """#!/bin/sh
[ "$1 $2 $3" = "pip install --python" ] || exit 3
for wheel; do :; done
"$4" -I -m zipfile -e "$wheel" "${4%/bin/python}"/lib/python3*/site-packages || exit
touch "INSTALLED"
"""


def write_installer(folder: Path) -> str:
    """Write an installer that notes in `installed` that it has ended, and return its PATH."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "uv").write_text(UV.replace("INSTALLED", str(folder / "installed")))
    (programs / "uv").chmod(0o755)
    return f"{programs}:{os.environ['PATH']}"


def start_runner(runner: str, folder: Path, *, forks: bool = True) -> subprocess.Popen[bytes]:
    """Start a command that runs the agent, and wait for its first daemons.

    The signal is for a runner whose agent runs already, so Python and its imports may be a fork.
    """
    forks = forks and runner != "eval on Ray"
    python = str(RAY.python) if runner == "eval on Ray" else sys.executable
    command = forked_command("-m") if forks else [python, "-m"]
    tag = folder / "daemon"
    write_agents(folder, str(tag))
    words = [str(tag) if word == TAG else word for word in RUNNERS[runner]]
    with (folder / "output").open("wb") as file:
        runs = subprocess.Popen(
            [*command, *words],
            cwd=folder,
            stdout=file,
            stderr=subprocess.STDOUT,
            preexec_fn=accept_signals,  # noqa: PLW1509 - no other thread runs here
            env={
                **os.environ,
                **(forked_python() if forks else {}),
                "PYTHONPATH": str(folder),
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "OFFBOOK_WHEELS": str(folder),
                "PATH": write_installer(folder),
                "TMPDIR": str(folder),
                "RAY_TMPDIR": "/tmp",  # noqa: S108 - the path of a socket has 107 bytes at most
            },
        )
    started = Path(f"{tag}.started")  # not seen here if a sandbox writes it

    def has_daemons() -> bool:
        if runner == "sandbox":
            return (folder / "installed").exists() and len(processes_of(tag)) > 2
        return started.exists() and started.stat().st_size > 2

    wait_until(has_daemons, runs)
    return runs


# These start for seconds: a handler that ends them is that of every signal but SIGINT and SIGKILL.
SLOW_RUNNERS = {"xdist", "xdist, agent in process", "sandbox"}
ENDED = [
    (runner, number)
    for runner in RUNNERS
    for number in (*SIGNALS, signal.SIGQUIT)
    if MEASURED
    or THOROUGH
    or runner not in SLOW_RUNNERS
    or number in {signal.SIGINT, signal.SIGTERM, signal.SIGKILL}
]


@pytest.mark.parametrize("runner, number", ENDED)
@pytest.mark.parametrize("point", range(POINTS if MEASURED else 1))
def test_the_daemons_of_an_agent_end_with_the_command_that_runs_it(
    runner: str, number: signal.Signals, point: int, tmp_path: Path
):
    if runner == "eval on Ray" and not RAY.ready:
        pytest.skip(RAY.describe_missing())
    tmp_path = tmp_path.resolve()
    tag = tmp_path / "daemon"
    runs = start_runner(runner, tmp_path, forks=not MEASURED)
    seconds = random.Random(f"{runner} {number} {point}").uniform(0, 0.3)  # noqa: S311 - no secret
    with pytest.raises(subprocess.TimeoutExpired):
        runs.wait(seconds)
    runs.send_signal(number)
    runs.wait()
    assert wait_until_gone(tag) == [], (tmp_path / "output").read_text()
    by_pytest = number == signal.SIGINT and RUNNERS[runner][0] == "pytest"
    interrupted = {2} if by_pytest else set[int]()
    assert runs.returncode in {-number, 128 + number, *interrupted}


def test_the_daemons_of_an_agent_end_with_the_worker_that_runs_it(tmp_path: Path):
    tmp_path = tmp_path.resolve()
    runs = start_runner("xdist, agent in process", tmp_path, forks=False)
    workers = Path(f"/proc/{runs.pid}/task/{runs.pid}/children").read_text().split()
    for worker in workers:
        os.kill(int(worker), signal.SIGKILL)
    assert workers
    assert wait_until_gone(tmp_path / "daemon") == [], (tmp_path / "output").read_text()
    runs.kill()
    runs.wait()


def test_a_process_that_an_agent_does_not_start_is_left(tmp_path: Path):
    code = """
import os, subprocess
from offbook import drive, say, when
def start():
    words = ["/bin/sleep", "300"]
    return subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL).pid
before = start()
def agent(prompt):
    print("agent", start())
with drive(agent, auto_assert=False) as rehearsal:
    rehearsal.run(when("Hi", [say("Hi.")]))
print("others", before, start(), flush=True)
os.kill(os.getpid(), 9)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        check=False,
        preexec_fn=accept_signals,
    )
    lines = dict(line.split(" ", 1) for line in ended.stdout.splitlines())
    wait_until(lambda: not is_running(int(lines["agent"])))
    others = [int(pid) for pid in lines["others"].split()]
    assert [is_running(pid) for pid in others] == [True, True]
    for pid in others:
        os.kill(pid, signal.SIGKILL)


def is_running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
