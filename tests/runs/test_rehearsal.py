"""A rehearsal opens, runs and closes its subject, also when a run fails."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import offbook
from offbook import Mocks, Playbook, Reply, Request, call, drive, fail, say, session, when
from offbook.determinism import FrozenClock
from offbook.errors import (
    ExtensionError,
    OffbookError,
    PlaybookError,
    RunError,
    ScriptExhausted,
    ScriptUnfinished,
    ToolFailed,
    UsageError,
)
from offbook.runs import Rehearsal
from offbook.subjects import ModelAccess, RunContext
from offbook.subjects.session import AgentSession, Api, Context, HookEvent
from offbook.trace import Event, Verdict, read_trace
from offbook.types import Text
from tests.runs.echo_subject import Echo

JSON = dict[str, Any]
raw: Any = offbook  # for calls that a type checker would reject

HELLO = when("Hello", [say("Hi!")])


# ----------------------------------------------------------------------------- sync and async


def test_in_a_plain_function_a_run_is_complete_when_it_returns():
    with session() as t:
        assert t.run(HELLO).output == "Hi!"


async def test_in_an_async_function_a_run_is_awaited():
    async with session() as t:
        run = await t.run(HELLO)
        assert run.output == "Hi!"
        assert await run is run


async def test_in_an_async_function_a_rehearsal_can_be_awaited_and_disposed():
    t = await session()
    await t.run(HELLO)
    await t.dispose()
    await t.dispose()
    assert not t.cwd.exists()


async def test_a_run_opens_the_rehearsal_if_needed():
    t = session()
    await t.run(HELLO)
    await t.dispose()
    assert t.events.tool_sequence() == []


async def test_a_run_that_was_never_awaited_fails_the_rehearsal():
    t = await session()
    t.run(HELLO)
    with pytest.raises(UsageError, match="never awaited, so nothing was tested"):
        await t.dispose()


async def test_a_run_that_was_not_awaited_has_no_events():
    t = await session()
    run = t.run(HELLO)
    with pytest.raises(UsageError, match="has not finished"):
        _ = run.events
    await run
    await t.dispose()


async def test_a_plain_with_in_an_async_function_is_rejected():
    t = session()
    with pytest.raises(UsageError, match="cannot be used in an `async def`") as caught, t:
        pass
    assert "async with" in caught.value.hint
    await t.dispose(failed=True)


def test_no_run_is_possible_after_the_rehearsal():
    with session() as t:
        t.run(HELLO)
    with pytest.raises(UsageError, match="the rehearsal is over"):
        t.run(HELLO)


def test_dispose_is_idempotent():
    t = session()
    t.run(HELLO)
    t.dispose()
    t.dispose()


# -------------------------------------------------------------------------- nothing was tested


def test_a_session_that_is_never_run_fails():
    t = session()
    with pytest.raises(UsageError, match="nothing was tested: session was opened and never run"):
        t.dispose()


async def test_a_session_that_is_never_run_fails_in_an_async_test():
    with pytest.raises(UsageError, match="nothing was tested"):
        async with session():
            pass


def test_an_agent_that_is_never_run_fails():
    def agent(prompt: str) -> str:
        return prompt

    t = drive(agent)
    with pytest.raises(UsageError, match="nothing was tested: agent was opened and never run"):
        t.dispose()


def test_a_session_may_stay_unused_without_automatic_assertions():
    with session(auto_assert=False) as t:
        assert "bash" in t.session.tools()


def test_a_test_that_failed_before_its_run_shows_only_its_own_error():
    with pytest.raises(ZeroDivisionError) as caught, session():
        raise ZeroDivisionError
    assert not hasattr(caught.value, "__notes__")


def test_a_run_without_a_prompt_is_refused():
    with (
        session(source=Mocks([{"text": "Hi!"}]), allow_unused_mocks=True) as t,
        pytest.raises(PlaybookError, match="prompt"),
    ):
        t.run()


FAILING = when("x", [fail("no", status=400), say("never reached")])
UNFINISHED = "playbook not fully consumed"


async def test_a_failing_run_in_a_task_that_is_never_awaited_fails_the_test():
    t = await session()
    task = asyncio.ensure_future(t.run(FAILING))
    await asyncio.wait([task])
    with pytest.raises(ScriptUnfinished, match=UNFINISHED):
        await t.dispose()


async def test_a_failing_run_in_a_coroutine_that_is_never_awaited_fails_the_test():
    t = await session()

    async def check() -> None:
        await t.run(FAILING)

    task = asyncio.create_task(check())
    await asyncio.wait([task])
    with pytest.raises(ScriptUnfinished, match=UNFINISHED):
        await t.dispose()


async def test_a_failing_run_in_gather_with_return_exceptions_fails_the_test():
    t = await session()
    [error] = await asyncio.gather(t.run(FAILING), return_exceptions=True)
    assert isinstance(error, ScriptUnfinished)
    with pytest.raises(ScriptUnfinished, match=UNFINISHED):
        await t.dispose()


def test_a_failing_run_that_ends_a_thread_fails_the_test(monkeypatch: pytest.MonkeyPatch):
    errors: list[object] = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    t = session()
    thread = threading.Thread(target=t.run, args=(FAILING,))
    thread.start()
    thread.join()
    assert len(errors) == 1
    with pytest.raises(ScriptUnfinished, match=UNFINISHED):
        t.dispose()


def test_a_failing_run_in_a_thread_whose_result_is_not_read_fails_the_test():
    t = session()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(t.run, FAILING)
    with pytest.raises(ScriptUnfinished, match=UNFINISHED):
        t.dispose()


def test_a_failing_run_that_is_expected_in_a_thread_passes():
    def check() -> None:
        with pytest.raises(ScriptUnfinished):
            t.run(FAILING)

    with session() as t, ThreadPoolExecutor(1) as pool:
        pool.submit(check).result()
        with pytest.raises(ScriptUnfinished):
            pool.submit(t.run, FAILING).result()


async def test_a_failing_run_that_is_expected_in_a_task_passes():
    async with session() as t:
        with pytest.raises(ScriptUnfinished):
            await asyncio.gather(t.run(FAILING))
        with pytest.raises(ScriptUnfinished):
            await asyncio.wait_for(t.run(FAILING), 300)

        async def check() -> None:
            with pytest.raises(ScriptUnfinished):
                await t.run(FAILING)

        await asyncio.gather(check(), return_exceptions=True)


async def test_a_failed_run_raises_its_error_each_time_it_is_awaited():
    async with session() as t:
        run = t.run(FAILING)
        for _ in range(2):
            with pytest.raises(ScriptUnfinished):
                await run


async def test_a_run_in_progress_at_the_end_fails_the_test():
    started = asyncio.Event()

    async def wait(_: JSON) -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    t = await session(mock_tools={"bash": wait})
    task = asyncio.ensure_future(t.run(when("x", [call("bash", {"command": "ls"}), say("ok")])))
    await started.wait()
    with pytest.raises(UsageError, match="closed while a run was in progress"):
        await t.dispose()
    task.cancel()


# ------------------------------------------------------------------------------------- files


def test_a_temporary_folder_is_removed_and_a_given_one_is_kept(tmp_path: Path):
    with session() as own, session(cwd=tmp_path) as given:
        for t in (own, given):
            t.run(when("x", [call("write", {"path": "a.txt", "content": "x"}), say("ok")]))
        assert (own.cwd / "a.txt").exists()
        assert given.cwd == tmp_path.resolve()
    assert not own.cwd.exists()
    assert not own.cwd.parent.exists()
    assert (tmp_path / "a.txt").exists()


def test_events_are_available_after_the_rehearsal():
    with session() as t:
        before = t.events
        run = t.run(HELLO)
    assert not t.trace.exists()
    assert t.events.messages == before.messages == run.events.messages
    assert run.output == "Hi!"


def test_a_trace_with_a_given_path_is_kept(tmp_path: Path):
    path = tmp_path / "traces" / "hello.jsonl"
    with session(trace=path) as t:
        t.run(HELLO)
    events, faults = read_trace(path)
    assert faults == []
    assert events == t.events.all
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


def test_a_second_rehearsal_overwrites_the_trace_of_the_first(tmp_path: Path):
    for text in ("one", "two"):
        with session(trace=tmp_path / "t.jsonl") as t:
            run = t.run(when(text, [say(text)]))
            assert [m.text for m in run.events.messages] == [text, text]
            assert [m.text for m in t.events.messages] == [text, text]


def test_an_agent_that_edits_its_trace_fails(tmp_path: Path):
    path = tmp_path / "trace.jsonl"

    def edit(api: Api) -> None:
        @api.tool("edit", "Edit the trace.")
        def edit_trace(*_: object) -> str:  # pyright: ignore[reportUnusedFunction] - registered
            path.write_bytes(path.read_bytes() + b"{}\n")
            return "edited"

    rehearsal = session(extensions=[edit], trace=path)
    rehearsal.run(when("Hello", [call("edit"), say("Hi!")]))
    with pytest.raises(RunError, match="the trace was changed while the agent ran"):
        rehearsal.dispose()


def test_the_trace_has_the_start_and_the_end_of_a_run():
    with session() as t:
        t.run(HELLO, when("Again", [say("Hi!")]))
        first, *_, last = t.events.all
        assert (first.event, first.data) == ("_meta.run_start", {"subject": "session", "turns": 2})
        assert (last.event, last.data) == ("_meta.run_end", {"ok": True, "output": "Hi!"})


@pytest.mark.parametrize(
    "output, end",
    [
        ("Hello!", {"ok": True, "exit": 0, "output": "Hello!"}),
        (None, {"ok": True, "exit": 0}),
    ],
)
def test_the_end_of_a_command_has_its_exit_code(output: str | None, end: dict[str, Any]):
    class Ended(Echo):
        exit_code = 0

        async def prompt(self, text: str, /) -> object:
            await super().prompt(text)
            return output

    with drive(Ended()) as t:
        t.run(HELLO)
        assert t.events.all[-1].data == end


def test_a_subject_that_is_no_session_finds_all_earlier_events_in_the_file(tmp_path: Path):
    found: list[str] = []

    class Reading(Echo):
        async def prompt(self, text: str, /) -> object:
            found.extend(event.event for event in offbook.Trace(tmp_path / "t.jsonl"))
            return await super().prompt(text)

    with drive(Reading(), trace=tmp_path / "t.jsonl") as t:
        t.run(HELLO)
    assert found[-1] == "_meta.run_start"


def test_timestamps_come_from_the_given_clock():
    t = Rehearsal(AgentSession(), clock=FrozenClock(1000, tick=1))
    with t:
        t.run(HELLO)
        stamps = [event.ts for event in t.events.all]
    assert stamps == list(range(1001, 1001 + len(stamps)))


def test_two_runs_of_the_same_script_have_the_same_trace(tmp_path: Path):
    def record(path: Path) -> bytes:
        t = Rehearsal(
            AgentSession(mock_tools={"bash": "ok"}), trace=path, clock=FrozenClock(0, tick=1)
        )
        with t:
            t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        return path.read_bytes()

    assert record(tmp_path / "a.jsonl") == record(tmp_path / "b.jsonl")


# ------------------------------------------------------------------------------- failures


def fails_to_start(api: Api) -> None:
    @api.on("session_start")
    def start(_: HookEvent, ctx: Context) -> None:
        raise RuntimeError("cannot start")


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith("offbook-")]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of temporary files, which is empty."""
    import tempfile

    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_an_invalid_extension_leaves_no_files(temporary: Path):
    with pytest.raises(ExtensionError):
        session(extensions=["./nope.py"])
    gc.collect()  # an event loop that is still open warns here
    assert leftovers(temporary) == []


async def test_an_invalid_extension_leaves_no_files_in_an_async_function(
    temporary: Path,
):
    t = session(extensions=["./nope.py"])
    with pytest.raises(ExtensionError):
        await t
    with pytest.raises(UsageError, match="the rehearsal is over"):
        await t.run(HELLO)
    assert leftovers(temporary) == []


async def test_a_session_that_fails_to_start_is_shut_down(temporary: Path):
    seen: list[str] = []

    def watcher(api: Api) -> None:
        @api.on("session_shutdown")
        def stop(_: HookEvent, ctx: Context) -> None:
            seen.append("shut down")

    with pytest.raises(ToolFailed, match="cannot start"):
        async with session(extensions=[watcher, fails_to_start]):
            pass
    assert seen == ["shut down"]
    assert leftovers(temporary) == []


def test_a_session_that_fails_to_shut_down_leaves_no_files(temporary: Path):
    def extension(api: Api) -> None:
        @api.on("session_shutdown")
        def stop(_: HookEvent, ctx: Context) -> None:
            raise RuntimeError("cannot stop")

    t = session(extensions=[extension], mock_tools={"bash": "ok"})
    t.run(HELLO)
    with pytest.raises(ToolFailed, match="cannot stop"):
        t.dispose()
    assert leftovers(temporary) == []
    assert [verdict.status for verdict in t.events.verdicts] == ["pass", "fail"]


def test_a_listener_that_raises_fails_the_run_once():
    def listen(event: Event) -> None:
        raise LookupError(event.event)

    with session() as t:
        t.hub.subscribe(listen, "agent.end")
        with pytest.raises(LookupError, match=r"agent\.end"):
            t.run(HELLO)
        end = t.events.all[-1]
        assert (end.event, end.data["ok"]) == ("_meta.run_end", False)


def test_a_listener_that_raises_at_the_end_fails_the_rehearsal():
    def listen(event: Event) -> None:
        raise LookupError(event.event)

    t = session(mock_tools={"bash": "ok"})
    t.run(HELLO)
    t.hub.subscribe(listen, "check.verdict")
    with pytest.raises(LookupError, match=r"check\.verdict"):
        t.dispose()


def test_a_failed_run_has_a_verdict():
    def extension(api: Api) -> None:
        @api.tool("boom")
        def boom(params: JSON, ctx: Context) -> None:
            raise RuntimeError("boom")

    with session(extensions=[extension]) as t:
        with pytest.raises(ToolFailed):
            t.run(when("x", [call("boom"), say("ok")]))
        (verdict,) = t.events.verdicts
        assert (verdict.check, verdict.status) == ("run finished", "error")
        assert "RuntimeError: boom" in verdict.message


INTERRUPTED = """
import os, signal, sys
from offbook import call, say, session, when

def extension(api):
    @api.tool("wait")
    async def wait(params, ctx):
        import asyncio
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

with session(extensions=[extension], trace=sys.argv[1]) as t:
    t.run(when("x", [call("wait"), say("never")]))
"""


def test_ctrl_c_leaves_a_complete_trace(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    process = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, path],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert process.returncode in {-signal.SIGINT, 128 + signal.SIGINT}
    assert "KeyboardInterrupt" in process.stderr
    events, faults = read_trace(path)
    assert faults == []
    (end,) = [event for event in events if event.event == "_meta.run_end"]
    assert end.data["ok"] is False
    assert os.path.exists(path)  # noqa: PTH110 - path is a Path


# -------------------------------------------------------------------------- subjects and sources


class Parrot:
    """A subject that makes one request per prompt and swallows errors."""

    name = "parrot"
    model_access: ModelAccess = "call"
    emits_tool_calls = False

    def __init__(self, *, careful: bool = True, twice: bool = False) -> None:
        self._careful = careful
        self._twice = twice

    async def open(self, context: RunContext, /) -> None:
        self._context = context

    async def prompt(self, text: str, /) -> str:
        from offbook.exchange import History, user

        request = Request(History([user(text)]))
        try:
            reply = await self._context.source.reply(request)
            if self._twice:
                reply = await self._context.source.reply(request)
        except Exception as error:
            if self._careful:
                raise RuntimeError("the parrot fell") from error
            return "never mind"
        return reply.text

    async def close(self) -> None: ...

    def tools(self) -> None: ...

    def commands(self) -> tuple[str, ...]:
        return ()

    def verdicts(self) -> Iterable[Verdict]:
        return ()


def test_any_subject_can_be_driven():
    with drive(Parrot()) as t:
        assert t.run(HELLO).output == "Hi!"
        with pytest.raises(UsageError, match="parrot is not a session"):
            _ = t.session


@pytest.mark.parametrize("careful", [True, False], ids=["wraps errors", "swallows errors"])
def test_an_error_of_the_script_fails_the_run_although_the_subject_hides_it(careful: object):
    with drive(Parrot(careful=bool(careful), twice=True)) as t:
        with pytest.raises(ScriptExhausted):
            t.run(HELLO)
        assert t.events.verdicts[0].status == "fail"


class Always:
    async def reply(self, _: Request, /) -> Reply:
        return Reply((Text("from a source"),))


def test_with_another_source_the_script_is_a_list_of_prompts():
    with session(source=Always()) as t:
        assert t.run("Hello", "Again").output == "from a source"
        with pytest.raises(PlaybookError, match="expected prompts, got Turn"):
            t.run(HELLO)


def test_a_playbook_can_be_the_source():
    with session(source=Playbook(strict=False), mock_tools={"bash": "ok"}) as t:
        run = t.run(when("x", [call("bash", {"command": "ls"})]))
        assert "PLAYBOOK EXHAUSTED" in run.output


# ------------------------------------------------------------------------------------ invalid input


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: raw.session(extensions="a.py"), "extensions must be a list, got str"),
        (lambda: raw.session(extensions={"a": 1}), "extensions must be a list, got dict"),
        (lambda: raw.session(extensions=5), "extensions must be a list, got int"),
        (lambda: raw.session(extension_factories=len), "extension_factories must be a list"),
        (lambda: raw.session(mock_tools=["bash"]), "mock_tools must be a dict, got list"),
        (lambda: raw.session(mock_tools=[]), "mock_tools must be a dict, got list"),
        (
            lambda: raw.session(mock_tools={"bash": 5}),
            "mock_tools['bash']: tool result: expected a mapping, got an integer",
        ),
        (lambda: raw.session(mock_tools={"bash": {"text": 1}}), "unknown key 'text'"),
        (
            lambda: raw.session(mock_tools={"bash": {"content": 5}}),
            "tool result.content: expected a text or a list, got an integer",
        ),
        (lambda: raw.session(mock_tools={5: "ok"}), "mock_tools: expected a text, got an integer"),
        (lambda: raw.session(mock_ui=True), "mock_ui must be a dict, got bool"),
        (lambda: raw.session(mock_ui=[]), "mock_ui must be a dict, got list"),
        (lambda: raw.session(mock_ui={"confrim": True}), "did you mean 'confirm'"),
        (lambda: raw.session(mock_ui={5: True}), "mock_ui: unknown method 5"),
        (
            lambda: raw.session(mock_ui={"confirm": "yes"}),
            "mock_ui['confirm']: expected bool, a list of them or a function, got str",
        ),
        (
            lambda: raw.session(mock_ui={"confirm": None}),
            "mock_ui['confirm']: expected bool, a list of them or a function, got NoneType",
        ),
        (
            lambda: raw.session(mock_ui={"select": True}),
            "mock_ui['select']: expected int, str or None, a list of them or a function, got bool",
        ),
        (
            lambda: raw.session(mock_ui={"select": [0.5]}),
            "mock_ui['select']: expected int, str or None, a list of them or a function, got float",
        ),
        (
            lambda: raw.session(mock_ui={"input": 5}),
            "mock_ui['input']: expected str or None, a list of them or a function, got int",
        ),
        (lambda: raw.session(mock_ui={"notify": "ignore"}), '"collect" or a function'),
        (lambda: raw.session(system_prompt=None), "system_prompt: expected a text, got nothing"),
        (lambda: raw.session(cwd="/no/such/folder"), "cwd is not a folder"),
        (lambda: raw.session(cwd=5), "cwd: expected a path, got 5"),
        (lambda: raw.session(cwd=""), "cwd: expected a path, got ''"),
        (lambda: raw.session(trace=5), "trace: expected a path, got 5"),
        (lambda: raw.session(trace="/dev/null/x/t.jsonl"), "cannot write the trace"),
        (lambda: raw.session(skills={"name": "a"}), "skills must be a list, got dict"),
        (lambda: raw.session(skills=[5]), "skills[0]: expected a mapping, got an integer"),
        (lambda: raw.session(skills=[{"nme": "a"}]), "skills[0].nme: unknown key 'nme'"),
        (lambda: raw.session(settings=[1]), "settings must be a dict, got list"),
        (lambda: raw.session(settings={"modle": "m"}), "did you mean 'model'"),
        (
            lambda: raw.session(settings={"retries": "2"}),
            "settings.retries: expected an integer, got a text",
        ),
        (lambda: raw.session(settings={5: 1}), "settings keys must be strings, got 5"),
        (lambda: raw.session(source=5), "int does not implement ModelSource"),
        (lambda: raw.session(source=Always), "type does not implement ModelSource"),
        (lambda: raw.session(mock_tool={}), "did you mean 'mock_tools'"),
        (lambda: raw.session("a.py"), "takes 0 positional arguments"),
        (lambda: raw.session(auto_assert="no"), "auto_assert: expected a bool, got 'no'"),
        (lambda: raw.session(propagate_errors=None), "propagate_errors: expected a bool"),
        (lambda: raw.session(mock_extension_tools=1), "mock_extension_tools: expected a bool"),
        (raw.drive, "missing 1 required positional argument: 'subject'"),
        (lambda: raw.drive(5, auto_assert=1), "auto_assert: expected a bool, got 1"),
        (lambda: raw.drive(Parrot(), lenint=["orphan_result"]), "did you mean 'lenient'"),
        (lambda: raw.drive(Parrot(), mock_tools={"a": "b"}), "has no option 'mock_tools'"),
        (lambda: raw.drive(print, lenint=["orphan_result"]), "did you mean 'lenient'"),
        (lambda: raw.drive(print, mock_tool={"a": "b"}), "did you mean 'mock_tools'"),
        (lambda: raw.drive(5), "cannot drive int"),
        (lambda: raw.drive(AgentSession), "cannot drive <class"),
    ],
)
def test_an_invalid_option_is_rejected(build: Callable[[], object], message: str):
    with pytest.raises(OffbookError) as caught:
        build()
    assert message in str(caught.value)
    gc.collect()


@pytest.mark.parametrize(
    "script, message",
    [
        ([], "the script has no turn"),
        (["Hello"], "run() expected turns and roles, got str"),
        ([[HELLO]], "run() expected turns and roles, got list"),
        ([say("x")], "run() expected turns and roles, got Say"),
        ([offbook.role("a", [say("x")], system="s")], "the script has no turn"),
        ([when("x", [])], "a turn with no actions"),
        ([when("/nope", [])], "a turn with no actions"),
    ],
)
def test_an_invalid_script_is_rejected_with_a_hint_and_the_next_one_runs(
    script: list[Any], message: str
):
    with session() as t:
        with pytest.raises(PlaybookError) as caught:
            t.run(*script)
        assert message in str(caught.value)
        assert caught.value.hint
        assert t.run(HELLO).output == "Hi!"


def test_an_invalid_option_has_a_hint():
    with pytest.raises(UsageError) as caught:
        raw.session(extensions="a.py")
    assert caught.value.hint == "write extensions=[…]"


async def test_concurrent_sessions_are_isolated():
    async def play(name: str) -> list[str]:
        async with session(mock_tools={"bash": name}) as t:
            await t.run(when(name, [call("bash", {"command": "ls"}), say(name)]))
            return [m.text for m in t.events.messages if m.role != "tool"]

    texts = await asyncio.gather(*(play(f"agent {n}") for n in range(5)))
    assert texts == [[f"agent {n}", "", f"agent {n}"] for n in range(5)]
