"""The suites can fail: each rule is violated by at least one implementation."""

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import SkipTest

import msgspec
import pytest

from offbook import Message, ModelSource, Reply, Request, ToolCall, ToolResult
from offbook.errors import CheckFailed, ModelError
from offbook.exchange import History
from offbook.testing import SourceConformance, SubjectConformance, conformance_suites
from offbook.testing.conformance_suites import no_task_leaks
from offbook.trace import TOOL_CALL, TOOL_RESULT
from offbook.trace.events import EventData, ToolResultData, Verdict
from offbook.types import AgentSession, RunContext, Text, Usage

HELLO = Reply((Text("Hello."),))
CALL = Reply((ToolCall("1", "echo", {"text": "a"}),), "tool_use")


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a wrong implementation leaves running never ends: it is waited for in vain."""
    monkeypatch.setattr(conformance_suites, "ENDING_SECONDS", 0.2)


class Fixed:
    """A source that always gives the same reply, optionally with a step number."""

    def __init__(self, reply: Any = HELLO, *, first: int = 0, by: int = 0) -> None:
        self._reply, self._step, self._by = reply, first, by

    async def reply(self, _: Request, /) -> Reply:
        reply = self._reply
        if self._by:
            reply = Reply((Text("Hello."),), step=self._step)
            self._step += self._by
        return reply


class NotAsync:
    def reply(self, _: Request, /) -> Reply:
        return HELLO


class Varying(Fixed):
    count = 0

    async def reply(self, _: Request, /) -> Reply:
        Varying.count += 1
        return Reply((Text(f"reply {Varying.count}"),))


class ChangingRequests(Fixed):
    async def reply(self, request: Request, /) -> Reply:
        request.parameters["seed"] = 1
        return HELLO


class LeavingTask(Fixed):
    async def reply(self, _: Request, /) -> Reply:
        self.task = asyncio.ensure_future(asyncio.Event().wait())
        return HELLO


class LeavingFile(Fixed):
    async def reply(self, _: Request, /) -> Reply:
        os.close(tempfile.mkstemp()[0])
        return HELLO


class SharingSteps(Fixed):
    """A source that gives one step to two concurrent requests."""

    async def reply(self, _: Request, /) -> Reply:
        self._step, step = 1, self._step + 1
        await asyncio.sleep(0)
        self._step = step
        return Reply((Text("Hello."),), step=1 if step == 2 else step)


RESULT = Reply((ToolResult("1"),))
SOURCES: dict[str, tuple[Any, str]] = {
    "not a source": (object, "it_is_a_model_source"),
    "not async": (NotAsync, "it_is_a_model_source"),
    "not a reply": (lambda: Fixed("Hello."), "it_returns_replies"),
    "a tool result": (lambda: Fixed(RESULT), "it_returns_replies"),
    "negative usage": (lambda: Fixed(Reply(usage=Usage(input=-1))), "it_returns_replies"),
    "a call without tool_use": (
        lambda: Fixed(Reply(CALL.blocks)),
        "the_stop_reason_matches_the_calls",
    ),
    "tool_use without a call": (
        lambda: Fixed(Reply(stop="tool_use")),
        "the_stop_reason_matches_the_calls",
    ),
    "the same id twice": (lambda: Fixed(CALL), "calls_have_a_tool_and_a_unique_id"),
    "no id": (lambda: Fixed(Reply((ToolCall("", "echo"),))), "calls_have_a_tool_and_a_unique_id"),
    "an unknown tool": (
        lambda: Fixed(Reply((ToolCall("1", "x"),))),
        "calls_have_a_tool_and_a_unique_id",
    ),
    "counts from 0": (lambda: Fixed(by=1), "steps_are_numbered_from_1"),
    "counts from 2": (lambda: Fixed(first=2, by=1), "steps_are_numbered_from_1"),
    "counts down": (lambda: Fixed(first=9, by=-1), "steps_are_numbered_from_1"),
    "arguments that are not JSON": (
        lambda: Fixed(Reply((ToolCall("1", "echo", {"text": (1, 2)}),))),
        "a_reply_can_be_serialized",
    ),
    "changes the request": (ChangingRequests, "requests_are_not_changed"),
    "one step for two requests": (SharingSteps, "concurrent_requests_are_answered"),
    "replies that vary": (Varying, "two_new_sources_reply_the_same"),
    "leaves a task": (LeavingTask, "nothing_is_left_behind"),
    "leaves a file": (LeavingFile, "nothing_is_left_behind"),
}


@pytest.mark.parametrize("make, rule", SOURCES.values(), ids=SOURCES)
def test_a_wrong_source_fails(make: Any, rule: str):
    class Broken(SourceConformance):
        def source(self) -> Any:
            return make()

    with pytest.raises(CheckFailed):
        getattr(Broken(), f"test_{rule}")()


class Failing(Fixed):
    def __init__(self, error: Exception) -> None:
        self._error = error

    async def reply(self, _: Request, /) -> Reply:
        raise self._error


ERRORS = {
    "another exception": Failing(OSError("no route")),
    "no exception": Fixed(),
    "an invalid status": Failing(ModelError("odd", status=200)),
    "a negative wait": Failing(ModelError("odd", retry_after=-1)),
}


@pytest.mark.parametrize("source", ERRORS.values(), ids=ERRORS)
def test_a_wrong_provider_error_fails(source: Any):
    class Broken(SourceConformance):
        def errors(self) -> Any:
            return source, self.requests()[0]

    with pytest.raises(CheckFailed):
        Broken().test_a_provider_error_is_a_model_error()


def test_the_rule_for_errors_is_skipped_without_errors():
    with pytest.raises(SkipTest):
        SourceConformance().test_a_provider_error_is_a_model_error()


def test_a_suite_without_its_factory_has_a_helpful_error():
    with pytest.raises(NotImplementedError, match=r"implement source\(\)"):
        SourceConformance().test_it_is_a_model_source()
    with pytest.raises(NotImplementedError, match=r"implement subject\(\)"):
        SubjectConformance().test_it_is_a_subject()


class Nameless(AgentSession):
    name = ""


class Unreachable(AgentSession):
    model_access: Any = "telepathy"


class OtherPrompt(AgentSession):
    async def prompt(self, _: str, /) -> None:
        await super().prompt("something else")


class Answerless(AgentSession):
    async def prompt(self, text: str, /) -> None:
        await super().prompt(text)


class NotEmittingCalls(AgentSession):
    """A session that emits no tool calls although it should."""

    async def open(self, context: RunContext, /) -> None:
        emit = context.hub.emit_data

        def emit_less(data: EventData | Verdict) -> None:
            if data.event_name not in {TOOL_CALL, TOOL_RESULT}:
                emit(data)

        context.hub.emit_data = emit_less
        await super().open(context)


class FakingResults(AgentSession):
    """A session that records another result than it sends to the model."""

    async def open(self, context: RunContext, /) -> None:
        emit = context.hub.emit_data

        def emit_changed(data: EventData | Verdict) -> None:
            if isinstance(data, ToolResultData):
                data = msgspec.structs.replace(data, content=[Text("fine")])
            emit(data)

        context.hub.emit_data = emit_changed
        await super().open(context)


class ChangedMessages:
    """A source that receives other messages than the agent sent."""

    def __init__(self, source: ModelSource, change: Callable[[Request], list[Message]]) -> None:
        self._source, self._change = source, change

    async def reply(self, request: Request, /) -> Reply:
        messages = History(self._change(request))
        return await self._source.reply(msgspec.structs.replace(request, messages=messages))


class ChangingMessages(AgentSession):
    async def open(self, context: RunContext, /) -> None:
        source = ChangedMessages(context.source, self.change)
        await super().open(msgspec.structs.replace(context, source=source))

    def change(self, request: Request) -> list[Message]:
        raise NotImplementedError


class ReversingMessages(ChangingMessages):
    def change(self, request: Request) -> list[Message]:
        fresh = request.new_messages
        return [*request.messages[: len(request.messages) - len(fresh)], *fresh[::-1]]


class Forgetful(ChangingMessages):
    def change(self, request: Request) -> list[Message]:
        return list(request.new_messages)


class SharingMessages(ChangingMessages):
    sent: tuple[Message, ...] = ()

    def change(self, request: Request) -> list[Message]:
        before = SharingMessages.sent
        SharingMessages.sent += request.new_messages
        return [*before, *request.messages]


class SlashCommands(AgentSession):
    def commands(self) -> Any:
        return {"/greet"}


class WithoutTools(AgentSession):
    def tools(self) -> Any:
        return set[str]()


class TextVerdicts(AgentSession):
    def verdicts(self) -> Any:
        return ["all is well"]


class CloseOnce(AgentSession):
    closed = False

    async def close(self) -> None:
        if self.closed:
            raise CheckFailed("closed already")
        self.closed = True


class CloseAfterOpen(AgentSession):
    opened = False

    async def open(self, _: RunContext, /) -> None:
        self.opened = True

    async def close(self) -> None:
        if not self.opened:
            raise CheckFailed("never opened")


class LeavingSessionTask(AgentSession):
    async def close(self) -> None:
        self.task = asyncio.ensure_future(asyncio.Event().wait())


class LeavingSessionFile(AgentSession):
    async def close(self) -> None:
        os.close(tempfile.mkstemp()[0])


class LeavingPath(AgentSession):
    async def close(self) -> None:
        sys.path.insert(0, "elsewhere")


class LeavingThread(AgentSession):
    async def close(self) -> None:
        threading.Thread(target=STOP.wait, name="left").start()


class LeavingProcess(AgentSession):
    async def close(self) -> None:
        SPAWNED.append(subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL))  # noqa: S607, ASYNC220 - left on purpose


STOP = threading.Event()
SPAWNED: list[subprocess.Popen[bytes]] = []

SUBJECTS: dict[str, tuple[Any, str]] = {
    "not a subject": (object, "it_is_a_subject"),
    "no name": (Nameless, "it_is_a_subject"),
    "an unknown model_access": (Unreachable, "it_is_a_subject"),
    "another prompt": (OtherPrompt, "a_prompt_reaches_the_model"),
    "no answer": (Answerless, "a_prompt_returns_the_answer_of_the_agent"),
    "calls not emitted": (NotEmittingCalls, "a_tool_call_is_recorded_with_its_result"),
    "fake results": (FakingResults, "a_tool_result_is_sent_to_the_model"),
    "results in another order": (ReversingMessages, "parallel_calls_are_all_answered"),
    "no conversation": (Forgetful, "the_second_prompt_continues_the_conversation"),
    "commands with a slash": (
        SlashCommands,
        "tools_commands_and_verdicts_are_valid",
    ),
    "no tools": (WithoutTools, "tools_commands_and_verdicts_are_valid"),
    "verdicts of another type": (
        TextVerdicts,
        "tools_commands_and_verdicts_are_valid",
    ),
    "cannot be closed twice": (CloseOnce, "close_is_idempotent"),
    "cannot be closed unopened": (CloseAfterOpen, "it_can_be_closed_without_open"),
    "shared messages": (SharingMessages, "two_subjects_are_independent"),
    "leaves a task": (LeavingSessionTask, "nothing_is_left_behind"),
    "leaves a file": (LeavingSessionFile, "nothing_is_left_behind"),
    "leaves sys.path": (LeavingPath, "nothing_is_left_behind"),
    "leaves a thread": (LeavingThread, "nothing_is_left_behind"),
    "leaves a process": (LeavingProcess, "nothing_is_left_behind"),
}


@pytest.fixture
def cleaned_up(monkeypatch: pytest.MonkeyPatch):
    """End the threads and processes that the wrong subjects leave."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    STOP.clear()
    yield
    STOP.set()
    for process in SPAWNED:
        process.kill()
        process.wait()
    SPAWNED.clear()


@pytest.mark.usefixtures("cleaned_up")
@pytest.mark.parametrize("make, rule", SUBJECTS.values(), ids=SUBJECTS)
def test_a_wrong_subject_fails(make: Any, rule: str):
    if make is LeavingProcess and not Path("/proc/self/task").exists():
        pytest.skip("this system does not list the children of a process")

    class Broken(SubjectConformance):
        def subject(self) -> Any:
            return make()

        def call(self) -> tuple[str, dict[str, Any]]:
            return "bash", {"command": "echo hi"}

    with pytest.raises(CheckFailed):
        getattr(Broken(), f"test_{rule}")()


def test_a_task_that_ends_by_itself_is_no_leak():
    class Client:
        def __del__(self) -> None:
            asyncio.get_running_loop().create_task(asyncio.sleep(0))

    async def collect() -> None:
        async with no_task_leaks():
            Client()

    asyncio.run(collect())
