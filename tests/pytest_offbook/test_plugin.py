"""The fixture closes its rehearsals after the test, and a failure shows its trace."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forked import run_pytest

pytest_plugins = ["pytester"]

RunTests = Callable[..., pytest.RunResult]

HEADER = """
import asyncio
import pytest
from offbook.types import AgentSession
from offbook import call, say, when

GREET = when("Greet me", [call("bash", {"command": "echo hi"}), say("Done.")])
CLOSED = []


def closing(api):
    @api.on("session_shutdown")
    async def note(event, ctx):
        CLOSED.append(asyncio.get_running_loop())
"""

ASYNCIO = """
[pytest]
asyncio_mode = {mode}
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""
OPTIONS = ["-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-rA"]


@pytest.fixture
def run_tests(pytester: pytest.Pytester) -> RunTests:
    """Return a function that writes a test file and runs it, with warnings as errors."""

    def run(
        code: str, *options: str, mode: str = "strict", name: str = "test_it"
    ) -> pytest.RunResult:
        pytester.makeini(ASYNCIO.format(mode=mode))
        pytester.makepyfile(**{name: HEADER + code})
        return pytester.runpytest_inprocess(*OPTIONS, *options)

    return run


@pytest.fixture
def run_anyio(pytester: pytest.Pytester) -> RunTests:
    """Return the same function as `run_tests`, with anyio instead of pytest-asyncio."""

    def run(code: str) -> pytest.RunResult:
        backend = "@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n"
        pytester.makepyfile(test_it=f"{HEADER}\npytestmark = pytest.mark.anyio\n{backend}{code}")
        return pytester.runpytest_inprocess(
            *OPTIONS, "-p", "no:pytest_asyncio.plugin", "-W", "error"
        )

    return run


PASSING = {
    "a session": """
def test_it(offbook):
    run = offbook.session().run(GREET)
    assert run.tools == ["bash"]
""",
    "any subject": """
def test_it(offbook):
    assert offbook.drive(AgentSession()).run(GREET).output == "Done."
""",
    "several at once": """
def test_it(offbook):
    one, other = offbook.session(), offbook.session()
    assert one.run(GREET).tools == other.run(GREET).tools == ["bash"]
    assert one.cwd != other.cwd
""",
    "through another fixture": """
@pytest.fixture
def greeted(offbook):
    return offbook.session().run(GREET)

def test_it(greeted):
    assert greeted.tools == ["bash"]
""",
    "in a class": """
class TestIt:
    def test_it(self, offbook):
        assert offbook.session().run(GREET).tools == ["bash"]
""",
    "closed by the test": """
def test_it(offbook):
    with offbook.session() as rehearsal:
        rehearsal.run(GREET)
    assert rehearsal.events.tool_sequence() == ["bash"]
""",
    "with a trace path": """
def test_it(offbook, tmp_path):
    offbook.session(trace=tmp_path / "mine.jsonl").run(GREET)
    assert (tmp_path / "mine.jsonl").exists()
""",
}


@pytest.mark.parametrize("code", PASSING.values(), ids=PASSING)
def test_the_fixture_works_in_a_sync_test(run_tests: RunTests, code: str):
    run_tests(code).assert_outcomes(passed=1)


ASYNC = {
    "awaited at once": """
async def test_it(offbook):
    run = await offbook.session().run(GREET)
    assert run.tools == ["bash"]
""",
    "opened, then run": """
async def test_it(offbook):
    rehearsal = await offbook.drive(AgentSession())
    assert (await rehearsal.run(GREET)).output == "Done."
""",
    "opened with async with": """
async def test_it(offbook):
    async with offbook.session() as rehearsal:
        await rehearsal.run(GREET)
""",
    "in a class": """
class TestIt:
    async def test_it(self, offbook):
        assert (await offbook.session().run(GREET)).tools == ["bash"]
""",
}


@pytest.mark.parametrize("code", ASYNC.values(), ids=ASYNC)
def test_the_fixture_works_under_pytest_asyncio(run_tests: RunTests, code: str):
    run_tests(code, mode="auto").assert_outcomes(passed=1)
    run_tests(f"pytestmark = pytest.mark.asyncio\n{code}").assert_outcomes(passed=1)


@pytest.mark.parametrize("code", ASYNC.values(), ids=ASYNC)
def test_the_fixture_works_under_anyio(run_anyio: RunTests, code: str):
    run_anyio(code).assert_outcomes(passed=1)


OWN_LOOP = """
LOOPS = []

async def test_first(offbook):
    LOOPS.append(asyncio.get_running_loop())
    await offbook.session(extensions=[closing]).run(GREET)
    assert CLOSED == []

async def test_then():
    assert CLOSED == LOOPS
"""


def test_rehearsals_of_an_async_test_are_closed_in_its_loop(run_tests: RunTests):
    run_tests(OWN_LOOP, mode="auto").assert_outcomes(passed=2)


def test_rehearsals_of_an_anyio_test_are_closed_in_its_loop(run_anyio: RunTests):
    """The loop is already closed when pytest tears down the fixture."""
    run_anyio(OWN_LOOP).assert_outcomes(passed=2)


def test_rehearsals_of_an_async_fixture_are_closed_in_its_loop(run_tests: RunTests):
    run_tests(
        """
@pytest.fixture
async def opened(offbook):
    session = await offbook.session(extensions=[closing], auto_assert=False)
    return session, asyncio.get_running_loop()

def test_first(opened):
    pytest.LOOP = opened[1]

def test_then():
    assert CLOSED == [pytest.LOOP]
""",
        mode="auto",
    ).assert_outcomes(passed=2)


def test_rehearsals_are_closed_after_the_test(run_tests: RunTests):
    run_tests("""
SEEN = []

def test_first(offbook):
    rehearsal = offbook.session(extensions=[closing])
    rehearsal.run(GREET)
    SEEN.append(rehearsal)

def test_then():
    assert len(CLOSED) == 1
    assert not SEEN[0].cwd.exists()
    assert not SEEN[0].trace.exists()
""").assert_outcomes(passed=2)


UNAWAITED = """
async def test_it(offbook):
    offbook.session().run(GREET)
"""


def test_an_unawaited_run_fails_the_test(run_tests: RunTests):
    outcome = run_tests(UNAWAITED, mode="auto")
    outcome.assert_outcomes(failed=1)
    outcome.stdout.fnmatch_lines(["*a run was never awaited, so nothing was tested"])


def test_an_unawaited_run_fails_an_anyio_test(run_anyio: RunTests):
    run_anyio(UNAWAITED).assert_outcomes(failed=1)


def test_the_failure_of_the_test_is_reported_first(run_tests: RunTests):
    outcome = run_tests(
        """
async def test_it(offbook):
    offbook.session().run(GREET)
    assert 1 == 2
""",
        mode="auto",
    )
    outcome.assert_outcomes(failed=1)
    outcome.stdout.fnmatch_lines(
        ["E*assert 1 == 2", "*also, when the rehearsal was closed: UsageError: a run was never*"]
    )


def test_an_error_in_a_shutdown_hook_fails_the_test(run_tests: RunTests):
    outcome = run_tests("""
def broken(api):
    @api.on("session_shutdown")
    def fail(event, ctx):
        raise OSError("the database is locked")

def test_it(offbook):
    offbook.session(extensions=[broken]).run(GREET)
""")
    outcome.assert_outcomes(failed=1)
    outcome.stdout.fnmatch_lines(["*the database is locked*"])


FAILING = """
def test_it(offbook):
    run = offbook.session().run(GREET)
    assert run.tools == []
"""
TRACE = Path(".offbook/traces/test_it.py-test_it.jsonl")


def test_a_failing_test_shows_the_end_and_the_path_of_its_trace(
    run_tests: RunTests, pytester: pytest.Pytester
):
    outcome = run_tests(FAILING)
    outcome.assert_outcomes(failed=1)
    outcome.stdout.fnmatch_lines(
        [
            "*- offbook trace -*",
            "run 1 · session · 1 turn",
            '├─ user "Greet me"',
            '│  ├─ 1. call bash {"command":"echo hi"}',
            "│  │  └─ → hi",
            f"kept: {TRACE}",
        ],
        consecutive=False,
    )
    assert (pytester.path / TRACE).read_text().startswith('{"ts":')
    assert (pytester.path / ".offbook" / ".gitignore").read_text() == "*\n"


def test_a_long_trace_is_shown_from_its_end(run_tests: RunTests):
    outcome = run_tests("""
def test_it(offbook):
    turns = [when(f"prompt {at}", [say("ok")]) for at in range(60)]
    offbook.session().run(*turns)
    assert 0
""")
    outcome.stdout.fnmatch_lines(["… * lines before", '├─ user "prompt 59"', "└─ passed"])
    outcome.stdout.no_fnmatch_line('├─ user "prompt 1"')


def test_the_traceback_of_a_script_error_ends_in_the_test(run_tests: RunTests):
    code = """
def test_it(offbook):
    offbook.session().run(when("Greet me", [call("bash", {"command": "echo hi"})]))
"""
    outcome = run_tests(code)
    outcome.stdout.fnmatch_lines(["E*ScriptExhausted: *", "test_it.py:*: ScriptExhausted"])
    outcome.stdout.no_fnmatch_line("*rehearsal.py*")
    run_tests(code, "--full-trace").stdout.fnmatch_lines(["*rehearsal.py*"])


def test_a_failing_tool_of_a_framework_shows_the_line_of_the_user_and_no_internals(
    run_tests: RunTests, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    result = run_tests(
        """
import pydantic_ai

def test_it(offbook):
    agent = pydantic_ai.Agent("openai-chat:m")

    @agent.tool_plain
    def divide(number: int) -> float:
        return 1 / number

    offbook.drive(agent).run(when("Go", [call("divide", {"number": 0}), say("Done.")]))
"""
    )
    result.stdout.fnmatch_lines([">*1 / number", "E*ZeroDivisionError: division by zero"])
    result.stdout.no_fnmatch_line("*site-packages*")
    result.stdout.no_fnmatch_line("*offbook/runs*")
    assert len(str(result.stdout).partition("offbook trace")[0].splitlines()) < 45
    reasons = [line for line in result.outlines if "ZeroDivisionError: division by zero" in line]
    assert len(reasons) == 3  # the error, the end of the trace, and pytest's summary


@pytest.mark.parametrize("program", ["", "raise SystemExit('broken')"])
def test_a_failing_command_shows_the_line_of_the_test_and_no_internals(
    run_tests: RunTests, program: str
):
    result = run_tests(
        f"""
import sys
from offbook.clis import Command

def test_it(offbook):
    agent = Command([sys.executable, "-c", {program!r}, "{{prompt}}"])
    offbook.drive(agent).run(when("Go", [say("Done.")]))
"""
    )
    result.stdout.fnmatch_lines([">*offbook.drive(agent).run(*", "test_it.py:*: *"])
    result.stdout.no_fnmatch_line("*offbook/runs*")
    result.stdout.no_fnmatch_line("*offbook/subjects*")
    assert len(str(result.stdout).partition("offbook trace")[0].splitlines()) < 45


def test_a_warning_of_a_green_test_is_in_the_summary_of_pytest(run_tests: RunTests):
    code = """
def test_it(offbook):
    offbook.session(mock_tools={"bash": "ok"}, auto_assert=False).run(when("Hi", [say("Hi.")]))
"""
    result = run_tests(code, "-Wdefault")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*OffbookWarning: never used: mock_tools bash"])


def test_a_session_that_is_never_run_fails_its_test(run_tests: RunTests):
    result = run_tests(
        """
def test_plain(offbook):
    offbook.session()

async def test_async(offbook):
    offbook.session()

def test_that_failed_before(offbook):
    offbook.session()
    assert 1 == 2
""",
        mode="auto",
    )
    result.assert_outcomes(failed=3)
    # The two tests that passed so far; the third shows its own error.
    title = "E   offbook.errors.UsageError: nothing was tested: session was opened and never run"
    assert result.outlines.count(title) == 2


def test_an_error_in_a_callback_keeps_its_traceback(run_tests: RunTests):
    outcome = run_tests("""
def check(result):
    assert result.text == "something else"

def test_it(offbook):
    call_ = call("bash", {"command": "echo hi"}).then(check)
    offbook.session().run(when("Greet me", [call_, say("Done.")]))
""")
    outcome.assert_outcomes(failed=1)
    outcome.stdout.fnmatch_lines(['>*assert result.text == "something else"'])


def test_an_error_in_fixture_teardown_shows_the_trace(run_tests: RunTests):
    outcome = run_tests("""
@pytest.fixture
def checked(offbook):
    yield offbook.session()
    assert 1 == 2

def test_it(checked):
    checked.run(GREET)
""")
    outcome.assert_outcomes(passed=1, errors=1)
    outcome.stdout.fnmatch_lines(["*- offbook trace -*", "run 1 · session*", f"kept: {TRACE}"])


KEPT = {
    # options: the traces kept for a passing and a failing test
    (): [TRACE],
    ("--offbook-traces=all",): [Path(".offbook/traces/test_it.py-test_fine.jsonl"), TRACE],
    ("--offbook-traces=never",): [],
    ("--offbook-traces=out/traces",): [Path("out/traces/test_it.py-test_it.jsonl")],
    ("-o", "offbook_traces=never"): [],
    ("-o", "offbook_traces=never", "--offbook-traces=out"): [Path("out/test_it.py-test_it.jsonl")],
}


@pytest.mark.parametrize("options, kept", KEPT.items(), ids=map(" ".join, KEPT))
def test_the_option_selects_the_traces_to_keep(
    run_tests: RunTests, pytester: pytest.Pytester, options: tuple[str, ...], kept: list[Path]
):
    code = f"{FAILING}\ndef test_fine(offbook):\n    offbook.session().run(GREET)\n"
    run_tests(code, *options).assert_outcomes(passed=1, failed=1)
    found = [path.relative_to(pytester.path) for path in pytester.path.rglob("*.jsonl")]
    assert sorted(found) == sorted(kept)


def test_traces_have_numbered_unique_names(run_tests: RunTests, pytester: pytest.Pytester):
    run_tests("""
@pytest.mark.parametrize("text", ["a/b", "a:b", "é" * 200])
def test_it(offbook, text):
    offbook.session().run(GREET)
    offbook.session().run(GREET)
    assert 0
""").assert_outcomes(failed=3)
    names = {path.name for path in pytester.path.rglob("*.jsonl")}
    assert len(names) == 6
    assert sum(name.endswith("-2.jsonl") for name in names) == 3
    assert max(len(name) for name in names) < 160


def test_a_trace_with_its_path_set_is_reported_and_not_moved(
    run_tests: RunTests, pytester: pytest.Pytester
):
    outcome = run_tests("""
def test_it(offbook):
    offbook.session(trace="mine.jsonl").run(GREET)
    assert 0
""")
    outcome.stdout.fnmatch_lines(["kept: mine.jsonl"])
    assert not (pytester.path / ".offbook" / "traces").exists()


def test_a_trace_folder_that_cannot_be_created_is_reported(
    run_tests: RunTests, pytester: pytest.Pytester
):
    (pytester.path / "taken").write_text("a file")
    outcome = run_tests(FAILING, "--offbook-traces=taken")
    outcome.assert_outcomes(failed=1)
    outcome.stdout.fnmatch_lines(["not kept: *taken*"])


def test_no_temporary_files_remain(
    run_tests: RunTests, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
):
    folder = pytester.mkdir("tmp")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    run_tests(FAILING + ASYNC["awaited at once"].replace("test_it", "test_more"), mode="auto")
    assert list(folder.iterdir()) == []


def test_xdist_workers_report_traces(pytester: pytest.Pytester):
    pytester.makeini(ASYNCIO.format(mode="auto"))
    pytester.makepyfile(
        test_it=f"""{HEADER}
@pytest.mark.parametrize("number", range(6))
async def test_it(offbook, number):
    await offbook.session().run(GREET)
    assert number % 2
"""
    )
    # A fork has imported the plugins, so that their asserts are not rewritten.
    imported = "ignore::pytest.PytestAssertRewriteWarning"
    outcome = run_pytest(pytester, "-n", "2", "-p", "no:randomly", "-W", imported)
    outcome.assert_outcomes(passed=3, failed=3)
    outcome.stdout.fnmatch_lines(["*- offbook trace -*", '├─ user "Greet me"', "kept: *"])
    assert len(list(pytester.path.glob(".offbook/traces/*.jsonl"))) == 3


IMPORTED = """
import sys

def pytest_unconfigure(config):
    print("imported:", "offbook.runs" in sys.modules, "pytest_offbook.rehearsals" in sys.modules)
"""


@pytest.mark.parametrize("argument, imported", [("", "False False"), ("offbook", "True True")])
def test_nothing_is_imported_until_the_fixture_is_used(
    pytester: pytest.Pytester, unwatched: dict[str, str], argument: str, imported: str
):
    pytester.makeconftest(IMPORTED)
    pytester.makepyfile(f"def test_it({argument}):\n    pass\n")
    outcome = subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "-p", "no:randomly"],
        cwd=pytester.path,
        env=unwatched,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in outcome.stdout
    assert f"imported: {imported}" in outcome.stdout


def test_the_option_and_the_fixture_have_help(pytester: pytest.Pytester):
    pytester.makeini(ASYNCIO.format(mode="auto"))
    shown = pytester.runpytest_inprocess("--help").stdout
    shown.fnmatch_lines(["*--offbook-traces=DIR|all|never*"])
    pytester.makepyfile("def test_it():\n    pass\n")
    pytester.runpytest_inprocess("--fixtures").stdout.fnmatch_lines(["offbook -- *"])


CHAINED = """
import offbook

def test_it(offbook):
    key = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ0123456789"
    try:
        raise ValueError(f"wrong key {key}, wrong password {'correct ' + 'horse'}")
    except ValueError as error:
        raise RuntimeError("the agent failed") from error
"""


def test_a_chained_exception_shows_no_secret_in_the_terminal_and_in_junit(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SHOP_PASSWORD", "correct horse")
    pytester.makepyfile(CHAINED)
    result = pytester.runpytest_inprocess("--showlocals", "--junitxml=report.xml")
    shown = result.stdout.str() + (pytester.path / "report.xml").read_text()
    assert "wrong key [API_KEY], wrong password [API_KEY]" in shown
    assert "ghp_aB3" not in shown
    assert "password correct horse" not in shown


PRIVATE_KEY = """
import offbook

def test_it(offbook):
    body = "\\n".join("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7" for _ in range(9))
    begin, end = (f"-----{word} PRIVATE KEY-----" for word in ("BEGIN", "END"))
    raise ValueError(f"cannot use the key\\n{begin}\\n{body}\\n{end}")
"""


def test_a_private_key_in_an_exception_is_not_shown_although_pytest_marks_each_line(
    pytester: pytest.Pytester,
):
    pytester.makepyfile(PRIVATE_KEY)
    result = pytester.runpytest_inprocess("--junitxml=report.xml")
    result.stdout.fnmatch_lines(["E * cannot use the key", "E * [[]API_KEY]"])
    shown = result.stdout.str() + (pytester.path / "report.xml").read_text()
    assert shown.count("MIIEvQIBADAN") == 2  # in the source of the test, in both outputs


CUT_KEY = """
import offbook

def test_it(offbook):
    settings = ["x" * 70 + " ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ01" * 8 + " " + "y" * 90]
    {line}
"""


@pytest.mark.parametrize(
    "line", ["raise ValueError", "assert settings == []", "assert 'z' in settings[0]"]
)
def test_a_key_that_pytest_cuts_is_not_shown(pytester: pytest.Pytester, line: str):
    pytester.makepyfile(CUT_KEY.format(line=line))
    result = pytester.runpytest_inprocess("--showlocals", "--junitxml=report.xml")
    shown = result.stdout.str() + (pytester.path / "report.xml").read_text()
    assert "xxx [API_KEY]" in shown
    assert "ghp_aB3" not in shown
    assert shown.count("N1pQ3sT5") == 2  # in the source of the test, in both outputs


def test_our_frames_are_shown_by_a_setting(pytester: pytest.Pytester):
    code = f"{HEADER}\ndef test_it(offbook):\n    offbook.session().run(when('a', []), 7)\n"
    pytester.makepyfile(test_it=code)
    hidden = pytester.runpytest_inprocess()
    hidden.stdout.no_fnmatch_line("*rehearsal.py*")
    pytester.makeini("[pytest]\noffbook_full_tracebacks = true\n")
    pytester.runpytest_inprocess().stdout.fnmatch_lines(["*runs*rehearsal.py:*"])


FAILING_COMMAND = """
import sys
from offbook import Command, drive

AGENT = '''
import json, os, urllib.request
body = {"model": "m", "messages": [{"role": "user", "content": "Find it"}]}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
request = urllib.request.Request(url, json.dumps(body).encode())
request.add_header("content-type", "application/json")
urllib.request.urlopen(request).read()
'''

def command(code):
    return Command([sys.executable, "-c", AGENT + code, "{prompt}"])
"""


def test_a_failing_command_shows_the_line_of_the_test_and_its_output_once(run_tests: RunTests):
    code = f"""{FAILING_COMMAND}
def test_it(offbook):
    offbook.drive(command("raise KeyError('bug')")).run(when("Find it", [say("Found.")]))
"""
    outcome = run_tests(code)
    outcome.stdout.fnmatch_lines(["E*RunError: *failed with exit code 1", "E*KeyError: 'bug'"])
    outcome.stdout.no_fnmatch_line("*rehearsal.py*")
    outcome.stdout.no_fnmatch_line("*cli.py*")
    assert outcome.stdout.str().count("KeyError: 'bug'") == 1


def test_a_script_error_of_a_command_is_shown_without_the_error_of_its_process(run_tests: RunTests):
    code = f"""{FAILING_COMMAND}
def test_it():
    with drive(command("urllib.request.urlopen(request)")) as rehearsal:
        rehearsal.run(when("Find it", [say("Found.")]))
"""
    outcome = run_tests(code)
    outcome.stdout.fnmatch_lines(["E*ScriptExhausted: *", "test_it.py:*: ScriptExhausted"])
    for internal in ("*rehearsal.py*", "*cli.py*", "*HTTPError*", "*direct cause*"):
        outcome.stdout.no_fnmatch_line(internal)
    run_tests(code, "--full-trace").stdout.fnmatch_lines(["*rehearsal.py*"])


CHANGES_ITS_MODEL = """
import openai

def agent(prompt):
    client = openai.OpenAI(api_key="none")
    messages = [{"role": "user", "content": prompt}]
    for model in ("one", "two"):
        reply = client.chat.completions.create(model=model, messages=messages)
        messages += [reply.choices[0].message.to_dict(), {"role": "user", "content": "More"}]

def test_it(offbook):
    offbook.drive(agent).run(when("Go", [say("A."), say("B.")]))
"""


def test_what_the_agent_of_a_passed_test_changed_is_listed(run_tests: RunTests):
    result = run_tests(CHANGES_ITS_MODEL)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*changed by the agent*", "*::test_it: another model: expected 'one', got 'two'"]
    )


def test_a_test_whose_agent_changed_nothing_is_not_listed(run_tests: RunTests):
    assert "changed by the agent" not in run_tests(PASSING["a session"]).stdout.str()
