"""`offbook pattern test`: discovery, filter, scaffold and watch."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import UsageError
from offbook.patterns import (
    find_left_out,
    find_tests,
    load_pattern,
    run_tests,
    scaffold_test,
    write_scaffold,
)
from offbook.runs.result_identity import find_change
from tests.forked import run_python
from tests.waiting import wait_until

COUNTER = """
from offbook.patterns import Cell, computed, default, handler, pattern

@handler
def increment(event, value):
    value.set(value.get() + 1)

@handler
def rename(event, name):
    name.set(event["to"])

@handler
def refuse(event):
    raise LookupError("no")

@pattern
def counter(value: Cell[int], name: Cell[str] = default("c")):
    return {
        "value": value,
        "double": computed(lambda: value.get() * 2),
        "increment": increment(value=value),
        "rename": rename(name=name),
        "refuse": refuse(),
    }
"""
PASSING = """
from offbook.patterns import create_harness

def test_double():
    with create_harness() as h:
        assert h.load("counter.py", {"value": 2}).result.double == 4

def test_value():
    with create_harness() as h:
        assert h.load("counter.py", {"value": 2}).result.value == 2
"""

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tmp_path / "counter.py").write_text(COUNTER)
    return tmp_path


def offbook(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "offbook", "pattern", "test", *words, cwd=project, forks=True)


def found(project: Path, *words: str) -> list[str]:
    pattern, *test = map(Path, words)
    (job,) = find_tests(pattern, *test)
    return [str(path) for path in job.tests]


@pytest.mark.parametrize(
    "files, words, expected",
    [
        (["test_counter.py"], ["counter.py"], ["test_counter.py"]),
        (["counter_test.py"], ["counter.py"], ["counter_test.py"]),
        (["counter.steps.yaml"], ["counter.py"], ["counter.steps.yaml"]),
        (
            ["test_counter.py", "__tests__/test_counter.py"],
            ["counter.py"],
            ["__tests__/test_counter.py"],
        ),
        (["test_counter.py", "other.py"], ["counter.py", "other.py"], ["other.py"]),
        (["test_counter.py"], ["."], ["test_counter.py"]),
    ],
)
def test_the_explicit_path_comes_first_then_the_folder_of_tests_then_the_same_folder(
    project: Path, files: list[str], words: list[str], expected: list[str]
):
    for name in files:
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("")
    assert found(project, *words) == expected


@pytest.mark.parametrize(
    "files, pattern, expected",
    [
        (["counter.steps.yaml", "count.steps.yaml"], ".", ["count.steps.yaml"]),
        (["counter.steps.yml", "list.steps.yml"], ".", ["list.steps.yml"]),
        (["test_counter.py", "a/test_other.py"], ".", ["a/test_other.py"]),
        (["test_counter.py", "__tests__/test_counter.py"], ".", ["test_counter.py"]),
        (["test_counter.py", "__tests__/test_counter.py"], "counter.py", ["test_counter.py"]),
        (["test_counter.py", "test_other.py"], "counter.py", []),
        (["test_counter.py", ".venv/site-packages/test_a.py"], ".", []),
    ],
)
def test_the_tests_that_do_not_run_are_found(
    project: Path, files: list[str], pattern: str, expected: list[str]
):
    for name in files:
        (project / name).parent.mkdir(exist_ok=True, parents=True)
        (project / name).write_text("")
    left_out = find_left_out(Path(pattern), find_tests(Path(pattern)))
    assert [str(path) for path in left_out] == expected


def test_the_tests_that_do_not_run_are_named(project: Path):
    steps = "pattern: counter.py\nstate: {value: 1}\nsteps:\n  - assert: value == 1\n"
    (project / "counter.steps.yaml").write_text(steps)
    (project / "count.steps.yaml").write_text(steps)
    result = offbook(project, ".")
    assert (result.returncode, "not run: count.steps.yaml\n" in result.stderr) == (0, True)


def test_a_folder_in_which_no_test_runs_names_them(project: Path):
    (project / "count.steps.yaml").write_text("")
    with pytest.raises(UsageError, match=r"no pattern with tests.*\s+not run: count.steps.yaml"):
        find_tests(Path())


@pytest.mark.parametrize(
    "words, message",
    [
        (["missing.py"], "no such file"),
        (["counter.py"], "offbook pattern test counter.py --scaffold"),
        ([".."], "outside of the project"),
        (["counter.py", "missing.py"], "no such file"),
    ],
)
def test_a_wrong_path_is_explained(project: Path, words: list[str], message: str):
    with pytest.raises(UsageError, match=message):
        found(project, *words)


def test_a_change_of_a_file_that_a_pattern_reads_is_seen(project: Path):
    (project / "test_counter.py").write_text(
        f"{PASSING}\ndef test_price():\n    assert open('price.txt').read() == '1'\n"
    )
    (project / "price.txt").write_text("1")
    first = offbook(project, "counter.py")
    assert (first.returncode, "3 passed" in first.stdout) == (0, True), first.stderr
    (project / "price.txt").write_text("2")
    failed = offbook(project, "counter.py")
    assert (failed.returncode, "1 failed, 2 passed" in failed.stdout) == (1, True)
    filtered = offbook(project, "counter.py", "--filter", "value")
    assert (filtered.returncode, "1 passed" in filtered.stdout) == (0, True)


READER = """
import os, subprocess
import prices
from offbook.patterns import computed, pattern

@pattern
def reader():
    return {
        "imported": prices.PRICE,
        "variable": os.environ.get("READER_MODE", ""),
        "listed": len(os.listdir("data")),
        "printed": subprocess.run(["cat", "data/a.txt"], capture_output=True, text=True).stdout,
    }
"""


def test_nothing_that_a_pattern_depends_on_gives_a_stale_pass(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """An import, a variable, the files of a folder, and what a program prints."""
    (project / "reader.py").write_text(READER)
    (project / "prices.py").write_text("PRICE = 1\n")
    (project / "data").mkdir()
    (project / "data" / "a.txt").write_text("a")
    (project / "reader.steps.yaml").write_text(
        "pattern: reader.py\nsteps:\n"
        "  - assert: imported == 1\n  - assert: variable == ''\n"
        "  - assert: listed == 1\n  - assert: printed == 'a'\n"
    )
    (job,) = find_tests(Path("reader.py"))
    assert run_tests(job).exit_code == 0
    capfd.readouterr()
    changes = {
        "imported": lambda: (project / "prices.py").write_text("PRICE = 23\n"),
        "variable": lambda: monkeypatch.setenv("READER_MODE", "new"),
        "listed": (project / "data" / "b.txt").touch,
        "printed": lambda: (project / "data" / "a.txt").write_text("b"),
    }
    for number, change in enumerate(changes.values(), 1):
        change()
        assert run_tests(job).exit_code == 1
        failed = [line for line in capfd.readouterr().out.splitlines() if "FAILED" in line]
        assert [name for name in changes if any(f"assert {name}" in line for line in failed)] == [
            *changes
        ][:number]


@pytest.mark.parametrize("expected, code", [(2, 0), (3, 1)])
def test_files_of_steps_are_run(project: Path, expected: int, code: int, capfd: Any):
    (project / "counter.steps.yaml").write_text(
        "pattern: counter.py\nstate: {value: 1}\nsteps:\n"
        f"  - send: increment\n  - assert: value == {expected}\n"
    )
    (job,) = find_tests(Path("counter.py"))
    assert run_tests(job).exit_code == code
    assert ("FAILED: value is 2" in capfd.readouterr().out) is bool(code)


def test_a_broken_file_of_steps_is_explained(project: Path):
    (project / "counter.steps.yaml").write_text(
        "pattern: counter.py\nstate: {value: 1}\nsteps:\n  - asert: value == 1\n"
    )
    (job,) = find_tests(Path("counter.py"))
    with pytest.raises(UsageError, match="the step has no kind: asert"):
        run_tests(job)


def test_patterns_of_one_name_in_two_folders_import_their_own_neighbours(project: Path):
    """And a change of a neighbour is seen, in files of steps too."""
    for name, price in (("a", 1), ("b", 2)):
        folder = project / name
        folder.mkdir()
        (folder / "prices.py").write_text(f"PRICE = {price}\n")
        (folder / "shop.py").write_text(
            "from offbook.patterns import computed, pattern\nimport prices\n"
            "@pattern\ndef shop():\n    return {'price': computed(lambda: prices.PRICE)}\n"
        )
        (folder / "shop.steps.yaml").write_text(
            f"pattern: shop.py\nsteps:\n  - assert: price == {price}\n"
        )
    outcomes = [run_tests(job) for job in find_tests(Path())]
    assert [outcome.exit_code for outcome in outcomes] == [0, 0]
    assert find_change(outcomes[0].files) == ""
    (project / "a" / "prices.py").write_text("PRICE = 3\n")
    assert find_change(outcomes[0].files) == str(project / "a" / "prices.py")
    assert find_change(outcomes[1].files) == ""


def test_a_data_file_is_watched_and_a_written_one_is_not(project: Path):
    (project / "test_counter.py").write_text(
        "from pathlib import Path\n"
        "def test_price():\n"
        "    assert Path('price.txt').read_text() == '1'\n"
        "    Path('log.txt').write_text(Path('log.txt').read_text() + 'x')\n"
    )
    (project / "price.txt").write_text("1")
    (project / "log.txt").write_text("")
    (job,) = find_tests(Path("counter.py"))
    outcome = run_tests(job)
    assert (outcome.exit_code, find_change(outcome.files)) == (0, "")
    (project / "price.txt").write_text("2")
    assert find_change(outcome.files) == str(project / "price.txt")


@pytest.mark.parametrize("plugin", ["asyncio", "none"])
def test_an_async_test_runs_without_settings(
    project: Path, plugin: str, monkeypatch: pytest.MonkeyPatch
):
    """In a fresh folder, with pytest-asyncio or without it."""
    if plugin == "none":
        monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:asyncio -p no:anyio")
    (project / "pyproject.toml").unlink()
    (project / "test_counter.py").write_text(
        "from offbook.patterns import create_harness\n"
        "async def test_value(tmp_path):\n"
        "    async with create_harness() as h:\n"
        "        counter = h.load('counter.py', {'value': 2})\n"
        "        await h.idle()\n"
        "        assert counter.result.value == 2\n"
        "async def test_fails():\n"
        "    assert False\n"
    )
    result = offbook(project, "counter.py")
    assert (result.returncode, "1 failed, 1 passed" in result.stdout) == (1, True), result.stdout


def test_a_generated_test_passes_as_it_is(project: Path):
    assert offbook(project, "counter.py", "--scaffold").returncode == 0
    text = (project / "test_counter.py").read_text()
    assert "counter.cells.value.get() == 2" in text  # increment
    assert "counter.result.rename.send({'to': 'text'})" in text  # the key that it reads
    assert "TODO: send an event" in text  # refuse accepts none
    result = offbook(project, "counter.py")
    assert result.returncode == 0, result.stdout
    assert "4 passed" in result.stdout


UNUSUAL = {
    "an event with defaults": ("value.set(value.get() + event.get('by', 1))", ".send({})"),
    "a number in the event": ("value.set(value.get() + event['by'] / 2)", ".send({'by': 1})"),
    "asynchronous work": ("await asyncio.sleep(0); value.set(5)", "h.settled()"),
    "an event that breaks a computed value": ("value.set(event['to'])", "{'to': 1}"),
    "an object without a literal": ("value.set(1)", "def test_p_change"),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_a_generated_test_passes_for(name: str, pytester: pytest.Pytester):
    body, expected = UNUSUAL[name]
    file = pytester.path / "p.py"
    file.write_text(
        "import asyncio, datetime\n"
        "from offbook.patterns import Cell, computed, default, handler, pattern\n"
        f"@handler\n{'async ' if 'await' in body else ''}def change(event, value):\n    {body}\n"
        "@pattern\ndef p(value: Cell[float] = default(1)):\n"
        "    return {\n"
        "        'half': computed(lambda: value.get() / 2),\n"
        "        'day': computed(lambda: datetime.date(2024, 1, 1)),\n"
        "        'change': change(value=value),\n    }\n"
    )
    text = scaffold_test(load_pattern(file), "p.py")
    assert expected in text
    assert "day" not in text
    (pytester.path / "test_p.py").write_text(text)
    pytester.runpytest_inprocess(
        "-p", "no:randomly", "-p", "no:pytest_asyncio.plugin"
    ).assert_outcomes(passed=2)


def test_a_test_is_generated_for_one_of_several_patterns(project: Path):
    (project / "counter.py").write_text(COUNTER + "\n\n@pattern\ndef empty(): return {}\n")
    path = Path("counter.py:counter")
    assert write_scaffold(path) == 0
    assert 'h.load("counter.py:counter"' in (project / "test_counter_counter.py").read_text()


def test_a_pattern_that_fails_when_it_is_loaded_gets_no_test(tmp_path: Path):
    file = tmp_path / "p.py"
    file.write_text(
        "from offbook.patterns import effect, pattern\n"
        "@pattern\ndef p():\n    effect(lambda: 1 / 0)\n    return {}\n"
    )
    with pytest.raises(UsageError, match=r"p\.py:2: no test for the pattern p: .*division"):
        scaffold_test(load_pattern(file), "p.py")


def test_a_filter_that_matches_no_file_of_steps_is_no_pass(project: Path):
    (project / "counter.steps.yaml").write_text(
        "pattern: counter.py\nstate: {value: 1}\nsteps:\n  - assert: value == 1\n"
    )
    (job,) = find_tests(Path("counter.py"))
    with pytest.raises(UsageError, match="no file of steps matches the filter 'other'"):
        run_tests(job, name_filter="other")
    assert run_tests(job, name_filter="counter").exit_code == 0


def test_a_generated_test_replaces_nothing(project: Path):
    (project / "test_counter.py").write_text("")
    result = offbook(project, "counter.py", "--scaffold")
    assert result.returncode == 2
    assert "exists already" in result.stderr


def running_in(folder: Path) -> list[str]:
    """Return the other Python processes whose working folder this is."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        try:
            program = (process / "exe").resolve().name
            if (process / "cwd").resolve() == folder and program.startswith("python"):
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_watch_runs_again_after_a_change_and_quits(project: Path):
    (project / "test_counter.py").write_text(PASSING)
    socket = f"offbook-{os.getpid()}"
    tmux = ["tmux", "-L", socket]
    command = f"{sys.executable} -m offbook pattern test counter.py --watch; echo exit $?; cat"

    def screen() -> str:
        return subprocess.run(
            [*tmux, "capture-pane", "-p"], capture_output=True, text=True, check=True
        ).stdout

    def wait_for(text: str) -> None:
        wait_until(lambda: text in screen())

    subprocess.run(
        [*tmux, "new-session", "-d", "-c", str(project), "-x", "150", command], check=True
    )
    try:
        wait_for("watching for changes")
        (project / "counter.py").write_text(COUNTER.replace("* 2", "* 3"))
        wait_for("1 failed, 1 passed")
        (project / "counter.py").write_text(COUNTER)
        wait_for("2 passed")
        subprocess.run([*tmux, "send-keys", "q", "Enter"], check=True)
        wait_for("exit 0")
        assert running_in(project) == []  # nothing is left behind
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
