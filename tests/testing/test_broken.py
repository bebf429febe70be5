"""The suites are able to fail: each promise is broken once, and seen broken."""

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
from offbook.exchange.messages import History
from offbook.testing import SourceConformance, SubjectConformance
from offbook.trace.events import TOOL_CALL, TOOL_RESULT
from offbook.types import AgentSession, RunContext, Text, Usage

HELLO = Reply((Text("Hello."),))
CALL = Reply((ToolCall("1", "echo", {"text": "a"}),), "tool_use")


class Fixed:
    """A source that always answers the same, and counts when it is told to."""

    def __init__(self, reply: Any = HELLO, *, first: int = 0, by: int = 0) -> None:
        self._reply, self._step, self._by = reply, first, by

    async def reply(self, _: Request, /) -> Reply:
        reply = self._reply
        if self._by:
            reply = Reply((Text("Hello."),), step=self._step)
            self._step += self._by
        return reply


class Plain:
    def reply(self, _: Request, /) -> Reply:
        return HELLO


class Moody(Fixed):
    moods = 0

    async def reply(self, _: Request, /) -> Reply:
        Moody.moods += 1
        return Reply((Text(f"mood {Moody.moods}"),))


class Meddling(Fixed):
    async def reply(self, request: Request, /) -> Reply:
        request.parameters["seed"] = 1
        return HELLO


class Leaking(Fixed):
    async def reply(self, _: Request, /) -> Reply:
        self.task = asyncio.ensure_future(asyncio.Event().wait())
        return HELLO


class Littering(Fixed):
    async def reply(self, _: Request, /) -> Reply:
        os.close(tempfile.mkstemp()[0])
        return HELLO


class Jostled(Fixed):
    """Forgets to count while another request waits."""

    async def reply(self, _: Request, /) -> Reply:
        self._step, step = 1, self._step + 1
        await asyncio.sleep(0)
        self._step = step
        return Reply((Text("Hello."),), step=1 if step == 2 else step)


RESULT = Reply((ToolResult("1"),))
SOURCES: dict[str, tuple[Any, str]] = {
    "no source at all": (object, "it_is_a_model_source"),
    "not async": (Plain, "it_is_a_model_source"),
    "not a reply": (lambda: Fixed("Hello."), "every_answer_is_a_reply"),
    "a result of a tool": (lambda: Fixed(RESULT), "every_answer_is_a_reply"),
    "negative usage": (lambda: Fixed(Reply(usage=Usage(input=-1))), "every_answer_is_a_reply"),
    "calls, and stops": (lambda: Fixed(Reply(CALL.blocks)), "the_stop_reason_fits_the_calls"),
    "stops to call nothing": (
        lambda: Fixed(Reply(stop="tool_use")),
        "the_stop_reason_fits_the_calls",
    ),
    "the same id twice": (lambda: Fixed(CALL), "calls_are_named_and_told_apart"),
    "no id": (lambda: Fixed(Reply((ToolCall("", "echo"),))), "calls_are_named_and_told_apart"),
    "not offered": (lambda: Fixed(Reply((ToolCall("1", "x"),))), "calls_are_named_and_told_apart"),
    "counts from 0": (lambda: Fixed(by=1), "steps_are_counted_from_1"),
    "counts from 2": (lambda: Fixed(first=2, by=1), "steps_are_counted_from_1"),
    "counts down": (lambda: Fixed(first=9, by=-1), "steps_are_counted_from_1"),
    "says what cannot be written": (
        lambda: Fixed(Reply((ToolCall("1", "echo", {"text": (1, 2)}),))),
        "a_reply_can_be_written_down",
    ),
    "changes the request": (Meddling, "a_request_stays_as_it_was"),
    "gives one step to two": (Jostled, "requests_may_come_at_the_same_time"),
    "answers as it likes": (Moody, "a_fresh_source_answers_alike"),
    "leaves a task": (Leaking, "nothing_is_left_behind"),
    "leaves a file": (Littering, "nothing_is_left_behind"),
}


@pytest.mark.parametrize("make, promise", SOURCES.values(), ids=SOURCES)
def test_a_broken_source_does_not_pass(make: Any, promise: str):
    class Broken(SourceConformance):
        def source(self) -> Any:
            return make()

    with pytest.raises(CheckFailed):
        getattr(Broken(), f"test_{promise}")()


class Refusing(Fixed):
    def __init__(self, error: Exception) -> None:
        self._error = error

    async def reply(self, _: Request, /) -> Reply:
        raise self._error


ERRORS = {
    "another exception": Refusing(OSError("no route")),
    "no exception": Fixed(),
    "a status that is none": Refusing(ModelError("odd", status=200)),
    "a negative wait": Refusing(ModelError("odd", retry_after=-1)),
}


@pytest.mark.parametrize("source", ERRORS.values(), ids=ERRORS)
def test_a_source_that_fails_wrongly_does_not_pass(source: Any):
    class Broken(SourceConformance):
        def errors(self) -> Any:
            return source, self.requests()[0]

    with pytest.raises(CheckFailed):
        Broken().test_a_provider_error_is_a_model_error()


def test_a_source_that_never_fails_skips_that_promise():
    with pytest.raises(SkipTest):
        SourceConformance().test_a_provider_error_is_a_model_error()


def test_a_suite_without_its_factory_says_what_to_write():
    with pytest.raises(NotImplementedError, match=r"let source\(\) return"):
        SourceConformance().test_it_is_a_model_source()
    with pytest.raises(NotImplementedError, match=r"let subject\(\) return"):
        SubjectConformance().test_it_is_a_subject()


class Nameless(AgentSession):
    name = ""


class Unreachable(AgentSession):
    model_access: Any = "telepathy"


class Deaf(AgentSession):
    async def prompt(self, _: str, /) -> None:
        await super().prompt("something else")


class Silent(AgentSession):
    """Says that it tells its tool calls, and does not."""

    async def open(self, stage: RunContext, /) -> None:
        emit = stage.hub.emit

        def emit_less(event: str, *args: Any, **options: Any) -> Any:
            return None if event in {TOOL_CALL, TOOL_RESULT} else emit(event, *args, **options)

        stage.hub.emit = emit_less
        await super().open(stage)


class Lying(AgentSession):
    """Tells the trace something else than the model."""

    async def open(self, stage: RunContext, /) -> None:
        emit = stage.hub.emit

        def emit_more(event: str, data: Any = None, **options: Any) -> Any:
            told = {**data, "content": [Text("fine")]} if event == TOOL_RESULT else data
            return emit(event, told, **options)

        stage.hub.emit = emit_more
        await super().open(stage)


class Twisted:
    """A source that is asked something else than the agent asked."""

    def __init__(self, source: ModelSource, twist: Callable[[Request], list[Message]]) -> None:
        self._source, self._twist = source, twist

    async def reply(self, request: Request, /) -> Reply:
        messages = History(self._twist(request))
        return await self._source.reply(msgspec.structs.replace(request, messages=messages))


class Twisting(AgentSession):
    async def open(self, stage: RunContext, /) -> None:
        source = Twisted(stage.source, self.twist)
        await super().open(msgspec.structs.replace(stage, source=source))

    def twist(self, request: Request) -> list[Message]:
        raise NotImplementedError


class Reversing(Twisting):
    def twist(self, request: Request) -> list[Message]:
        fresh = request.new_messages
        return [*request.messages[: len(request.messages) - len(fresh)], *fresh[::-1]]


class Forgetful(Twisting):
    def twist(self, request: Request) -> list[Message]:
        return list(request.new_messages)


class Gossiping(Twisting):
    said: tuple[Message, ...] = ()

    def twist(self, request: Request) -> list[Message]:
        before = Gossiping.said
        Gossiping.said += request.new_messages
        return [*before, *request.messages]


class Slashed(AgentSession):
    def commands(self) -> Any:
        return {"/greet"}


class Toolless(AgentSession):
    def tools(self) -> Any:
        return set[str]()


class Wordy(AgentSession):
    def verdicts(self) -> Any:
        return ["all is well"]


class Touchy(AgentSession):
    closed = False

    async def close(self) -> None:
        if self.closed:
            raise CheckFailed("closed already")
        self.closed = True


class Rash(AgentSession):
    opened = False

    async def open(self, _: RunContext, /) -> None:
        self.opened = True

    async def close(self) -> None:
        if not self.opened:
            raise CheckFailed("never opened")


class Tasking(AgentSession):
    async def close(self) -> None:
        self.task = asyncio.ensure_future(asyncio.Event().wait())


class Filing(AgentSession):
    async def close(self) -> None:
        os.close(tempfile.mkstemp()[0])


class Moving(AgentSession):
    async def close(self) -> None:
        sys.path.insert(0, "elsewhere")


class Threading(AgentSession):
    async def close(self) -> None:
        threading.Thread(target=STOP.wait, name="left").start()


class Spawning(AgentSession):
    async def close(self) -> None:
        SPAWNED.append(subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL))  # noqa: S607, ASYNC220 - meant to be left


STOP = threading.Event()
SPAWNED: list[subprocess.Popen[bytes]] = []

SUBJECTS: dict[str, tuple[Any, str]] = {
    "no subject at all": (object, "it_is_a_subject"),
    "no name": (Nameless, "it_is_a_subject"),
    "an unknown reach": (Unreachable, "it_is_a_subject"),
    "another prompt": (Deaf, "a_prompt_reaches_the_model"),
    "calls not told": (Silent, "a_tool_call_is_told_with_its_result"),
    "results made up": (Lying, "the_result_of_a_tool_comes_back_to_the_model"),
    "results in disorder": (Reversing, "several_calls_of_one_message_are_all_answered"),
    "no memory": (Forgetful, "the_second_prompt_goes_on_from_the_first"),
    "commands with a slash": (Slashed, "what_it_says_about_itself_has_the_right_shape"),
    "no tools": (Toolless, "what_it_says_about_itself_has_the_right_shape"),
    "verdicts that are none": (Wordy, "what_it_says_about_itself_has_the_right_shape"),
    "cannot be closed twice": (Touchy, "closing_twice_is_closing_once"),
    "cannot be closed unopened": (Rash, "closing_what_was_never_opened_is_nothing"),
    "shares what it heard": (Gossiping, "two_of_them_do_not_hear_each_other"),
    "leaves a task": (Tasking, "nothing_is_left_behind"),
    "leaves a file": (Filing, "nothing_is_left_behind"),
    "leaves sys.path": (Moving, "nothing_is_left_behind"),
    "leaves a thread": (Threading, "nothing_is_left_behind"),
    "leaves a process": (Spawning, "nothing_is_left_behind"),
}


@pytest.fixture
def tidied(monkeypatch: pytest.MonkeyPatch):
    """Ends what the broken subjects leave."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    STOP.clear()
    yield
    STOP.set()
    for process in SPAWNED:
        process.kill()
        process.wait()
    SPAWNED.clear()


@pytest.mark.usefixtures("tidied")
@pytest.mark.parametrize("make, promise", SUBJECTS.values(), ids=SUBJECTS)
def test_a_broken_subject_does_not_pass(make: Any, promise: str):
    if make is Spawning and not Path("/proc/self/task").exists():
        pytest.skip("this system does not tell the children of a process")

    class Broken(SubjectConformance):
        def subject(self) -> Any:
            return make()

        def call(self) -> tuple[str, dict[str, Any]]:
            return "bash", {"command": "echo hi"}

    with pytest.raises(CheckFailed):
        getattr(Broken(), f"test_{promise}")()
