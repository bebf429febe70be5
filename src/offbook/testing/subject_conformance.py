"""What every subject promises."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Collection
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from offbook.errors import OffbookError
from offbook.runs.rehearsal import Rehearsal
from offbook.sources.playbook import Playbook, call, fail, say, when
from offbook.subjects.subject import ModelAccess, RunContext, Subject
from offbook.testing.expectations import expect, no_leftovers, no_task_leaks, skip
from offbook.trace.events import ERROR, REQUEST, TOOL_CALL, TOOL_RESULT, Verdict
from offbook.trace.hub import Hub

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from offbook.exchange.messages import ToolResult

HELLO = "Hello, this is the first prompt"
AGAIN = "And this is the second one"


class SubjectConformance:
    """Subclass it in a test file; `subject` makes a fresh subject, `call` names a tool of it.

    An agent that forgets everything between prompts says `remembers = False`; one that can call
    only one tool at a time says `parallel = False`.
    """

    remembers = True
    parallel = True

    def subject(self) -> Subject:
        """A fresh subject, not opened yet."""
        raise NotImplementedError("let subject() return what is to be tested")

    def call(self) -> tuple[str, dict[str, Any]]:
        """A tool that the subject has, with parameters under which it does no harm."""
        raise NotImplementedError("let call() return a tool and its parameters")

    def test_it_is_a_subject(self) -> None:
        subject = self.subject()
        expect(isinstance(subject, Subject), "a subject has all that the protocol names", subject)
        expect(isinstance(subject.name, str) and subject.name, "it has a name", subject.name)
        expect(
            subject.model_access in get_args(ModelAccess),
            "model_access is one of call, transport, endpoint",
            subject.model_access,
        )
        expect(
            isinstance(subject.emits_tool_calls, bool),
            "emits_tool_calls is a bool",
            subject.emits_tool_calls,
        )

    def test_a_prompt_reaches_the_model(self) -> None:
        with self._rehearsed() as rehearsal:
            rehearsal.run(when(HELLO, [say("Hello.")]))
            said = [message.text for message in rehearsal.events.messages if message.role == "user"]
            expect(any(HELLO in text for text in said), "the model gets the prompt", said)

    def test_a_tool_call_is_told_with_its_result(self) -> None:
        tool, params = self.call()
        with self._rehearsed() as rehearsal:
            rehearsal.run(when(HELLO, [call(tool, params), say("Done.")]))
            told = [(event.event, event.data) for event in rehearsal.events.all]
        named = [(name, data) for name, data in told if name in {TOOL_CALL, TOOL_RESULT}]
        order = [name for name, _ in named]
        expect(order == [TOOL_CALL, TOOL_RESULT], "one call is told as a call and a result", order)
        (_, called), (_, answered) = named
        expect(called["tool"] == tool, "the call names its tool", called["tool"])
        expect(called["input"] == params, "the call has its parameters", called["input"])
        expect(called["step"] == 1, "the call has the step of the playbook", called["step"])
        same = called["call_id"] == answered["call_id"]
        expect(same, "the result has the id of its call", answered["call_id"])
        expect(not answered["is_error"], "the tool works", answered["content"])

    def test_the_result_of_a_tool_comes_back_to_the_model(self) -> None:
        tool, params = self.call()
        heard: list[ToolResult] = []
        with self._rehearsed() as rehearsal:
            rehearsal.run(when(HELLO, [call(tool, params).then(heard.append), say("Done.")]))
            told = [result.text for result in rehearsal.events.tool_results_for(tool)]
        expect([r.text for r in heard] == told, "the model is told what the trace is told", told)

    def test_several_calls_of_one_message_are_all_answered(self) -> None:
        if not self.parallel:
            skip("this subject calls one tool at a time")
        tool, params = self.call()
        heard: list[str] = []
        calls = [call(tool, params).then(lambda r: heard.append(r.call_id)) for _ in range(3)]
        with self._rehearsed() as rehearsal:
            rehearsal.run(when(HELLO, [calls, say("Done.")]))
            made = [record.tool_call_id for record in rehearsal.events.tool_calls]
            messages = rehearsal.events.messages
            ours = (
                rehearsal.subject.emits_tool_calls
            )  # a client of others may report whichever ended first
        expect(sorted(heard) == sorted(made), "every call gets its result", heard)
        told = [result.call_id for message in messages for result in message.results]
        expect(told == made or not ours, "results come back in the order of the calls", told)

    def test_the_second_prompt_goes_on_from_the_first(self) -> None:
        if not self.remembers:
            skip("this subject forgets")
        with self._rehearsed() as rehearsal:
            rehearsal.run(when(HELLO, [say("Hello.")]))
            run = rehearsal.run(when(AGAIN, [say("Still here.")]))
            counts = [e.data["count"] for e in run.events.named(REQUEST)]
        expect(max(counts, default=0) > 1, "the model is sent what was said before", counts)

    def test_an_error_of_the_provider_can_be_survived(self) -> None:
        with self._rehearsed(auto_assert=False) as rehearsal:
            with suppress(OffbookError):  # an agent may pass it on
                rehearsal.run(when(HELLO, [fail("not today", status=400)]))
            expect(rehearsal.events.named(ERROR), "the error is in the trace")

    def test_what_it_says_about_itself_has_the_right_shape(self) -> None:
        tool, _ = self.call()
        with self._rehearsed() as rehearsal:
            subject = rehearsal.subject
            tools, commands = subject.tools(), subject.commands()
            expect(tools is None or _are_names(tools), "tools() gives names, or None", tools)
            expect(tools is None or tool in tools, "tools() has the tool of call()", tools)
            expect(_are_names(commands), "commands() gives names", commands)
            slashed = [name for name in commands if name.startswith("/")]
            expect(not slashed, "commands() gives names without their slash", slashed)
        verdicts = list(subject.verdicts())
        expect(all(isinstance(v, Verdict) for v in verdicts), "verdicts() gives verdicts", verdicts)

    def test_closing_twice_is_closing_once(self) -> None:
        async def close_twice(subject: Subject, stage: RunContext) -> None:
            await subject.open(stage)
            await subject.close()
            await subject.close()

        self._staged(close_twice)

    def test_closing_what_was_never_opened_is_nothing(self) -> None:
        async def close_only(subject: Subject, _: RunContext) -> None:
            await subject.close()

        self._staged(close_only)

    def test_two_of_them_do_not_hear_each_other(self) -> None:
        async def run_both() -> list[list[str]]:
            async with Rehearsal(self.subject()) as one, Rehearsal(self.subject()) as other:
                await asyncio.gather(
                    one.run(when(HELLO, [say("Hello.")])).perform(),
                    other.run(when(AGAIN, [say("Hello.")])).perform(),
                )
                return [
                    [message.text for message in rehearsal.events.messages]
                    for rehearsal in (one, other)
                ]

        said, other = asyncio.run(run_both())
        expect(not any(AGAIN in text for text in said), "each gets its own prompt only", said)
        expect(not any(HELLO in text for text in other), "each gets its own prompt only", other)

    def test_nothing_is_left_behind(self) -> None:
        tool, params = self.call()

        async def rehearse() -> None:
            with no_task_leaks():
                async with Rehearsal(self.subject()) as rehearsal:
                    await rehearsal.run(when(HELLO, [call(tool, params), say("Done.")]))

        with no_leftovers():
            asyncio.run(rehearse())

    @contextmanager
    def _rehearsed(self, *, auto_assert: bool = True) -> Generator[Rehearsal]:
        with Rehearsal(self.subject(), auto_assert=auto_assert) as rehearsal:
            yield rehearsal

    def _staged(self, act: Callable[[Subject, RunContext], Awaitable[None]]) -> None:
        async def perform(folder: Path) -> None:
            await act(self.subject(), RunContext(Playbook(), Hub(), folder))

        with tempfile.TemporaryDirectory(prefix="offbook-testing-") as folder:
            asyncio.run(perform(Path(folder)))


def _are_names(names: object) -> bool:
    return (
        isinstance(names, Collection)
        and not isinstance(names, str)
        and all(isinstance(name, str) and name for name in names)  # pyright: ignore[reportUnknownVariableType] - any collection
    )
