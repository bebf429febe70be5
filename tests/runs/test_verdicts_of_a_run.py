"""Each verdict about a run is emitted, and each that fails is raised."""

from __future__ import annotations

import asyncio
import socket
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest

from offbook import Playbook, Trace, call, drive, role, say, session, when
from offbook.errors import (
    CheckFailed,
    ConnectionBlocked,
    IsolationError,
    OffbookWarning,
    ScriptExhausted,
    ScriptMismatch,
    ScriptUnfinished,
    ToolFailed,
    UsageError,
)
from offbook.exchange import History, Message, Request, Text, ToolResult, user
from offbook.runs import Rehearsal, Run, find_refusal
from offbook.subjects import MOCKS_USED, ModelAccess, RunContext
from offbook.trace import PROCESS_EXIT, RUN_END, RUN_START, VERDICT, Hub, Verdict
from tests.runs.echo_subject import HELLO, Always, Echo


class SeenError(NamedTuple):
    call_id: str
    tool: str
    error: Exception


class Watch:
    """What a framework saw of its tools."""

    def __init__(self, *errors: SeenError) -> None:
        self.errors = list(errors)
        self.failed: dict[str, bool] = {}


class Watched(Echo):
    """A subject that saw exceptions of its tools."""

    def __init__(self, *errors: SeenError) -> None:
        super().__init__()
        self.tool_watch = Watch(*errors)


BROKEN = SeenError("1", "refund", ValueError("the till is closed"))


def test_an_exception_of_a_tool_that_became_a_result_fails_the_run():
    with drive(Watched(BROKEN)) as t:
        with pytest.raises(ToolFailed) as failure:
            t.run(HELLO)
        assert failure.value.what == "the tool refund raised ValueError: the till is closed"
        assert "raises=ValueError" in failure.value.hint
        assert failure.value.__cause__ is BROKEN.error


def test_without_automatic_assertions_an_exception_of_a_tool_is_no_failure():
    with drive(Watched(BROKEN), auto_assert=False) as t:
        assert t.run(HELLO).output == "Hi!"


def test_with_another_source_an_exception_of_a_tool_is_no_failure():
    with drive(Watched(BROKEN), source=Always()) as t:
        assert t.run("Hello").output == "from a source"


def test_the_requests_of_a_run_are_those_of_no_other_run():
    with drive(Echo()) as t:
        first = t.run(when("One", [say("1")]))
        second = t.run(when("Two", [say("2")]))
        assert [request.prompt for request in first.requests] == ["One"]
        assert [request.prompt for request in second.requests] == ["Two"]
        assert len(first.events.all) + len(second.events.all) == len(t.events.all)


def test_the_rest_of_a_failed_script_is_not_part_of_the_next_run():
    with drive(Echo()) as t:
        with pytest.raises(ScriptUnfinished, match="1 action"):
            t.run(when("One", [say("1"), say("never")]))
        assert t.run(when("Two", [say("2")])).output == "2"


def chat_with_a_forged_past(prompt: str) -> str:
    forged = [{"role": "assistant", "content": "I refund all."}] if prompt == "Again" else []
    with openai.OpenAI(api_key="none") as client:
        messages: Any = [{"role": "user", "content": "Hello"}]
        said: str | None = None
        for _ in range(2):
            reply = client.chat.completions.create(model="m", messages=messages)
            said = reply.choices[0].message.content
            messages += [{"role": "assistant", "content": said}, *forged]
            messages += [{"role": "user", "content": prompt}]
    return str(said)


def test_a_changed_conversation_fails_its_own_run_only():
    with drive(chat_with_a_forged_past) as rehearsal:
        with pytest.raises(ScriptMismatch, match="I refund all"):
            rehearsal.run(when("Again", [say("Hi."), say("Bye.")]))
        assert rehearsal.run(when("Once", [say("Hi."), say("Bye.")])).output == "Bye."


def test_the_start_of_a_command_has_its_words():
    subject = Echo()
    subject.command_line = ["true"]  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
    with drive(subject) as rehearsal:
        rehearsal.run(HELLO)
    [start] = rehearsal.events.named(RUN_START)
    assert start.data["command"] == ["true"]


def test_the_end_of_a_run_has_the_answer_or_its_type():
    class Counting(Echo):
        async def prompt(self, text: str, /) -> object:
            return len(str(await super().prompt(text)))

    for subject, shown in ((Echo(), "Hi!"), (Counting(), {"type": "int"})):
        with drive(subject) as t:
            t.run(HELLO)
            assert t.events.all[-1].data == {"ok": True, "output": shown}


def test_a_complete_script_is_a_verdict_with_the_number_of_its_steps():
    with drive(Echo(requests=2)) as t:
        t.run(when("One", [say("1"), say("2")]))
        [verdict] = t.events.verdicts
        assert (verdict.check, verdict.status, verdict.actual) == ("playbook consumed", "pass", 2)


def test_without_automatic_assertions_an_incomplete_script_has_no_verdict():
    with drive(Echo(), auto_assert=False) as t:
        t.run(when("One", [say("1"), say("never")]))
        assert t.events.verdicts == []


def test_an_empty_prompt_counts_as_a_turn():
    with drive(Echo(), source=Always()) as t:
        t.run("", "Hello")
        assert t.events.named(RUN_START)[0].data["turns"] == 2


def test_a_process_that_an_earlier_run_left_behind_is_not_blamed_on_the_next():
    class Leaving(Echo):
        async def prompt(self, text: str, /) -> object:
            if text == "One":
                self._context.hub.emit(PROCESS_EXIT, {"leaked": [4711]})
            return await super().prompt(text)

    with drive(Leaving()) as t:
        t.run(when("One", [say("1")]))
        with pytest.raises(ScriptUnfinished) as raised:
            t.run(when("Two", [say("2"), say("never")]))
    assert "in the background" not in str(raised.value)


def reach_out(_: str) -> str:
    with suppress(ConnectionBlocked), socket.socket() as sock:
        sock.connect(("192.0.2.1", 443))  # reserved for documentation: never assigned
    return "done"


def test_a_refused_connection_that_the_agent_survives_is_a_warning():
    with drive(reach_out, auto_assert=False) as t:  # it sends no request
        with pytest.warns(OffbookWarning, match="a connection was refused and the agent continued"):
            t.run(HELLO)
        verdicts = {verdict.check: verdict for verdict in t.events.verdicts}
        assert verdicts["nothing leaves the machine"].status == "warn"
        assert "192.0.2.1:443" in verdicts["nothing leaves the machine"].message
        [refusal] = [event for event in t.events.all if event.event == "isolation.refused"]
        assert "192.0.2.1:443" in refusal.data["error"]


def reach_out_and_fall(_: str) -> str:
    with socket.socket() as sock:
        sock.connect(("192.0.2.1", 443))
    return "never"


@pytest.mark.parametrize(
    "hosts, ending",
    [
        (["192.0.2.1"], "which is not this machine"),
        (["192.0.2.1", "192.0.2.1"], "which is not this machine"),
        (["192.0.2.1", "192.0.2.2", "192.0.2.3"], "; also 192.0.2.2:443, 192.0.2.3:443"),
    ],
)
def test_all_refused_destinations_are_named_once(hosts: list[str], ending: str):
    def agent(prompt: str) -> str | None:
        for host in hosts:
            with suppress(ConnectionBlocked), socket.socket() as sock:
                sock.connect((host, 443))
        messages: Any = [{"role": "user", "content": prompt}]
        with openai.OpenAI(api_key="none") as client:
            reply = client.chat.completions.create(model="m", messages=messages)
        return reply.choices[0].message.content

    with drive(agent) as t, pytest.raises(IsolationError) as failure:
        t.run(HELLO)
    assert failure.value.what.endswith(ending)


def test_a_refused_connection_that_ends_the_agent_is_the_error_of_the_run():
    with drive(reach_out_and_fall) as t, pytest.raises(ConnectionBlocked) as failure:
        t.run(HELLO)
    assert failure.value.where.endswith("in reach_out_and_fall")


def reach_out_and_fail_later(prompt: str) -> str:
    reach_out(prompt)
    raise ValueError("no till")


def test_another_error_of_the_agent_has_the_refusal_as_a_note():
    with (
        drive(reach_out_and_fail_later) as t,
        pytest.raises(ValueError, match="no till") as failure,
    ):
        t.run(HELLO)
    [note] = failure.value.__notes__
    assert note.startswith("before, a connection was refused: ")


UNUSED = Verdict(MOCKS_USED, "fail", "a mock was never used")
OTHER = Verdict("other", "fail", "something else")
FINE = Verdict("fine", "pass")


@pytest.mark.parametrize("host, found", [("api.continue.dev", []), ("shop.example", ["warn"])])
def test_a_refused_connection_of_known_telemetry_is_no_finding(host: str, found: list[str]):
    def reach(_: str) -> str:
        with suppress(ConnectionBlocked):
            socket.create_connection((host, 443))
        return "done"

    with drive(reach, auto_assert=False) as t, warnings.catch_warnings():
        warnings.simplefilter("ignore", OffbookWarning)
        t.run(HELLO)
        verdicts = [v for v in t.events.verdicts if v.check == "nothing leaves the machine"]
        refused = [event for event in t.events.all if event.event == "isolation.refused"]
    assert [v.status for v in verdicts if v.status != "pass"] == found
    assert [host in event.data["error"] for event in refused] == [True]


def test_a_failed_verdict_of_the_subject_fails_the_rehearsal():
    for verdict, hinted in ((UNUSED, True), (OTHER, False)):
        t = drive(Echo(FINE, verdict))
        t.run(HELLO)
        with pytest.raises(CheckFailed) as failure:
            t.dispose()
        assert failure.value.what == verdict.message
        assert ("allow_unused_mocks" in failure.value.hint) is hinted
        assert [v.check for v in t.events.verdicts][1:] == ["fine", verdict.check]


def test_an_unused_mock_may_be_allowed_and_another_failure_may_not():
    t = drive(Echo(UNUSED), allow_unused_mocks=True)
    t.run(HELLO)
    t.dispose()
    assert [v.status for v in t.events.verdicts] == ["pass", "warn"]
    t = drive(Echo(OTHER), allow_unused_mocks=True)
    t.run(HELLO)
    with pytest.raises(CheckFailed):
        t.dispose()


def test_without_automatic_assertions_a_failed_verdict_is_a_warning():
    t = drive(Echo(OTHER), auto_assert=False)
    t.run(HELLO)
    with pytest.warns(OffbookWarning, match="something else"):
        t.dispose()


def test_after_a_failed_run_the_verdicts_of_the_subject_mean_nothing():
    t = drive(Echo(OTHER))
    with pytest.raises(ScriptUnfinished):
        t.run(when("One", [say("1"), say("never")]))
    t.dispose()
    assert "other" not in {verdict.check for verdict in t.events.verdicts}


def test_a_subject_is_closed_once():
    subject = Echo()
    t = drive(subject)
    t.run(HELLO)
    t.dispose()
    t.dispose()
    assert subject.closed == 1


def test_a_turn_that_is_not_finished_fails_before_the_next_is_prompted():
    prompts: list[str] = []

    class Noting(Echo):
        async def prompt(self, text: str, /) -> object:
            prompts.append(text)
            return await super().prompt(text)

    with drive(Noting()) as t, pytest.raises(ScriptUnfinished):
        t.run(when("One", [say("1"), say("never")]), when("Two", [say("2")]))
    assert prompts == ["One"]


def test_what_ran_before_the_run_is_not_left_behind():
    with drive(Echo()) as t, pytest.raises(ScriptUnfinished) as raised:
        t.run(when("One", [say("1"), say("never")]))
    assert "left running" not in str(raised.value)


def test_a_failed_run_is_marked_in_its_trace():
    with drive(Echo()) as t:
        with pytest.raises(ScriptUnfinished):
            t.run(when("One", [say("1"), call("never")]))
        end = t.events.all[-1]
        assert (end.event, end.data["ok"]) == (RUN_END, False)
        assert end.data["error"].startswith("ScriptUnfinished: ")


def test_only_a_session_has_a_session():
    with drive(Echo(), auto_assert=False) as t, pytest.raises(UsageError, match="not a session"):
        _ = t.session
    with session(auto_assert=False) as t:
        assert t.session is t.subject


def test_a_given_playbook_is_checked_as_an_own_one():
    with drive(Echo(), source=Playbook()) as t, pytest.raises(ScriptUnfinished):
        t.run(when("One", [say("1"), say("never")]))


def test_a_subject_that_fails_to_open_and_to_close_shows_both_errors():
    class Broken(Echo):
        async def open(self, _: RunContext, /) -> None:
            raise ValueError("no till")

        async def close(self) -> None:
            raise OSError("no door")

    with pytest.raises(ValueError, match="no till") as failure:
        drive(Broken()).run(HELLO)
    assert failure.value.__notes__ == ["closing failed as well: OSError: no door"]


@pytest.mark.parametrize("access, refused", [("endpoint", False), ("transport", True)])
def test_only_an_agent_of_this_process_is_kept_from_the_network(
    access: ModelAccess, *, refused: bool
):
    class Reaching(Echo):
        model_access = access

        async def prompt(self, _: str, /) -> object:
            # A datagram socket sends nothing when it connects.
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                try:
                    sock.connect(("192.0.2.1", 443))
                except ConnectionBlocked:
                    return "refused"
                except OSError:  # no route from this machine
                    return "allowed"
            return "allowed"

    with drive(Reaching(), auto_assert=False) as t, warnings.catch_warnings():
        warnings.simplefilter("ignore", OffbookWarning)
        assert t.run(HELLO).output == ("refused" if refused else "allowed")


async def test_the_lost_error_of_a_run_is_raised_although_a_later_run_passed():
    t = await drive(Echo())
    lost = asyncio.ensure_future(t.run(when("One", [say("1"), say("never")])).complete())
    await asyncio.wait([lost])
    await t.run(HELLO)
    with pytest.raises(ScriptUnfinished):
        await t.dispose()


def test_a_subject_that_calls_its_source_has_no_endpoint():
    class Noting(Echo):
        endpoint = "none yet"

        async def open(self, context: RunContext, /) -> None:
            await super().open(context)
            self.endpoint = context.endpoint

    subject = Noting()
    with drive(subject) as t:
        t.run(HELLO)
    assert subject.endpoint == ""


def test_a_chain_of_errors_may_be_a_circle():
    refusal = ConnectionBlocked("refused")
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert find_refusal(one, [refusal]) is None
    two.__cause__ = refusal
    assert find_refusal(one, [refusal]) is refusal


def reach_out_and_wrap_the_error(_: str) -> str:
    try:
        return reach_out_and_fall("")
    except OSError as error:
        raise RuntimeError("no answer") from error


def test_a_refused_connection_is_the_error_of_the_run_although_the_agent_wraps_it():
    with drive(reach_out_and_wrap_the_error) as t, pytest.raises(ConnectionBlocked) as failure:
        t.run(HELLO)
    assert failure.value.__cause__ is None
    assert failure.value.__suppress_context__


def test_an_error_of_the_script_that_reaches_the_run_has_no_other_cause():
    with drive(Echo(requests=2)) as t, pytest.raises(ScriptExhausted) as failure:
        t.run(HELLO)
    assert failure.value.__cause__ is None


def test_the_exception_of_a_tool_that_the_script_expects_is_no_failure():
    class Trying(Watched):
        async def prompt(self, text: str, /) -> object:
            reply = await self._context.source.reply(Request(History([user(text)])))
            self.tool_watch.errors.append(SeenError(reply.calls[0].id, "refund", BROKEN.error))
            result = ToolResult(reply.calls[0].id, (Text("closed"),), failed=True, name="refund")
            messages = [user(text), Message("assistant", reply.blocks), Message("tool", (result,))]
            return (await self._context.source.reply(Request(History(messages)))).text

    with drive(Trying()) as t:
        run = t.run(
            when("Hello", [call("refund", raises=ValueError, unknown=True), say("Closed.")])
        )
        assert run.output == "Closed."


def test_a_failed_verdict_of_the_source_fails_the_rehearsal():
    class Checked(Always):
        def verdicts(self) -> Iterable[Verdict]:
            return [OTHER]

    t = drive(Echo(), source=Checked())
    t.run("Hello")
    with pytest.raises(CheckFailed, match="something else"):
        t.dispose()


def test_a_failed_verdict_without_automatic_assertions_has_the_status_of_a_warning():
    t = drive(Echo(OTHER), auto_assert=False)
    t.run(HELLO)
    with pytest.warns(OffbookWarning):
        t.dispose()
    assert [(v.check, v.status) for v in t.events.verdicts] == [
        ("playbook consumed", "pass"),
        ("other", "warn"),
    ]


def test_a_subject_that_was_never_run_has_no_verdict():
    t = drive(Echo(OTHER), auto_assert=False)
    t.dispose()
    assert t.events.verdicts == []


def test_the_verdict_of_a_failed_run_has_the_line_of_the_test():
    with drive(Echo()) as t:
        with pytest.raises(ScriptUnfinished):
            t.run(when("One", [say("1"), say("never")]))
        [verdict] = t.events.verdicts
    line = test_the_verdict_of_a_failed_run_has_the_line_of_the_test.__code__.co_firstlineno + 3
    assert verdict.context["line"] == line
    assert verdict.context["file"].endswith("test_verdicts_of_a_run.py")


@pytest.mark.parametrize(
    "module, file, placed",
    [
        ("shop", "shop.py", "shop.py"),
        ("shop", "<string>", None),
        ("offbook.shop", "<string>", "this test"),
        ("pytest_offbook.shop", "<string>", "this test"),
    ],
)
def test_the_place_of_a_run_is_the_first_file_that_is_not_ours(
    module: str, file: str, placed: str | None
):
    code = compile("rehearsal.run(script)", file, "exec")
    with session() as rehearsal:
        exec(code, {"__name__": module, "rehearsal": rehearsal, "script": when("Go", [say("a")])})  # noqa: S102 - our own code
        place = rehearsal.hub.place
    found = None if place is None else place.file.replace(__file__, "this test")
    assert found == placed


def failed_run(t: Rehearsal) -> Run:
    assert t.latest_run is not None
    return t.latest_run


def test_the_events_of_a_failed_run_can_be_read():
    with drive(Echo()) as t:
        assert t.latest_run is None
        t.run(HELLO)
        with pytest.raises(ScriptUnfinished):
            t.run(when("One", [say("1"), say("never")]))
        assert failed_run(t).output is None
        assert [request.prompt for request in failed_run(t).requests] == ["One"]
        assert failed_run(t).events.all[-1].data["ok"] is False


def test_the_error_that_ended_the_agent_is_noted_at_the_steps_that_are_left():
    class Ended(Echo):
        error = ValueError("no such model")

    with drive(Ended()) as t, pytest.raises(ScriptUnfinished) as failure:
        t.run(when("One", [say("1"), say("never")]))
    assert failure.value.__notes__ == ["the agent ended with ValueError: no such model"]


def test_the_roles_of_a_run_after_a_failed_one_are_left_for_the_next():
    with drive(Echo(), auto_assert=False) as t:
        with pytest.raises(ScriptMismatch):
            t.run(when("One", [call("unknown"), say("never")]))
        t.run(HELLO, role("later", [say("from the role")], first="Three"))
        assert t.run(when("Three", [say("from the turn")])).output == "from the role"


def test_after_a_failed_run_with_another_source_the_next_one_runs():
    class Falling(Echo):
        async def prompt(self, text: str, /) -> object:
            if text == "Fall":
                raise ValueError("fallen")
            return await super().prompt(text)

    with drive(Falling(), source=Always()) as t:
        with pytest.raises(ValueError, match="fallen"):
            t.run("Fall")
        assert t.run("Hello").output == "from a source"
        with pytest.raises(UsageError, match="not a playbook, but Always"):
            _ = t.playbook


def test_watchers_are_called_at_the_start_and_before_the_end(monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []
    with drive(Echo()) as t:

        def watch(hub: Hub) -> None:
            assert hub is t.hub
            seen.append(t.events.all[-1].event)

        monkeypatch.setattr("offbook.runs.rehearsal.run_watchers", [watch])
        t.run(HELLO)
        assert seen == [RUN_START, VERDICT]
        seen.clear()
        with pytest.raises(ScriptUnfinished):
            t.run(when("One", [say("1"), say("never")]))
        assert seen == [RUN_START, "model.reply"]


def test_a_watcher_finds_all_earlier_events_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    written: list[str] = []

    def watch(_hub: Hub) -> None:
        written.append([event.event for event in Trace(tmp_path / "t.jsonl")][-1])

    monkeypatch.setattr("offbook.runs.rehearsal.run_watchers", [watch])
    with session(trace=tmp_path / "t.jsonl") as t:
        t.run(HELLO)
    assert written == [RUN_START, VERDICT]


async def test_a_run_that_was_never_awaited_fails_although_a_later_run_passed():
    t = await drive(Echo())
    t.run(HELLO)
    await t.run(HELLO)
    with pytest.raises(UsageError, match="never awaited"):
        await t.dispose()


async def test_a_lost_error_says_that_it_was_lost():
    t = await drive(Echo())
    lost = asyncio.ensure_future(t.run(when("One", [say("1"), say("never")])).complete())
    await asyncio.wait([lost])
    with pytest.raises(ScriptUnfinished) as raised:
        await t.dispose()
    assert raised.value.__notes__[-1] == "the error of a run whose task or thread was not awaited"


async def test_a_subject_that_failed_to_open_is_not_opened_again():
    opened: list[RunContext] = []

    class Broken(Echo):
        async def open(self, context: RunContext, /) -> None:
            opened.append(context)
            raise ValueError("no till")

    t = drive(Broken())
    with pytest.raises(ValueError, match="no till"):
        await t
    with pytest.raises(UsageError, match="the rehearsal is over"):
        await t
    assert len(opened) == 1


def test_the_result_of_dispose_can_be_awaited_later():
    t = drive(Echo())
    t.run(HELLO)
    result = t.dispose()

    async def wait() -> object:
        return await result

    assert asyncio.run(wait()) is result


def test_after_the_rehearsal_its_hub_is_closed():
    with drive(Echo()) as t:
        t.run(HELLO)
        assert not t.hub.closed
    assert t.hub.closed


def test_the_first_run_keeps_what_a_given_playbook_has_loaded():
    class WithClerk(Echo):
        async def prompt(self, text: str, /) -> object:
            request = Request(History([user(text)]), system="You are a clerk.")
            clerk = (await self._context.source.reply(request)).text
            return [clerk, await self.ask(text)]

    playbook = Playbook()
    playbook.load(role("clerk", [say("Next, please.")], system="clerk"))
    with drive(WithClerk(), source=playbook) as t:
        assert t.run(HELLO).output == ["Next, please.", "Hi!"]
