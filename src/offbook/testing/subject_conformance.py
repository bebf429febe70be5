"""The rules for every subject, as a test suite."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from offbook.errors import OffbookError
from offbook.runs.rehearsal import Rehearsal
from offbook.sources.playbook.actions import call, fail, say, when
from offbook.sources.playbook.playbook import Playbook
from offbook.subjects.subject import ModelAccess, RunContext, Subject
from offbook.testing.expectations import expect, no_leftovers, no_task_leaks, skip
from offbook.trace.events import ERROR, REQUEST, TOOL_CALL, TOOL_RESULT, Verdict
from offbook.trace.hub import Hub

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from offbook.exchange.messages import ToolResult

FIRST_PROMPT = "Hello, this is the first prompt"
SECOND_PROMPT = "And this is the second one"


class SubjectConformance:
    """Subclass it in a test file and implement `subject` and `call`.

    Set `remembers = False` for an agent that keeps no conversation between prompts, and
    `parallel = False` for one that calls only one tool at a time.
    """

    remembers = True
    parallel = True

    def subject(self) -> Subject:
        """Return a new subject that is not opened yet."""
        raise NotImplementedError("implement subject(): return the subject to test")

    def call(self) -> tuple[str, dict[str, Any]]:
        """Return a tool of the subject, with harmless parameters."""
        raise NotImplementedError("implement call(): return a tool and its parameters")

    def test_it_is_a_subject(self) -> None:
        subject = self.subject()
        expect(isinstance(subject, Subject), "a subject must implement the protocol", subject)
        name, access = subject.name, subject.model_access
        expect(isinstance(name, str) and name, "name must be a text", name)
        expect(access in get_args(ModelAccess), "model_access must be a known one", access)
        emits = subject.emits_tool_calls
        expect(isinstance(emits, bool), "emits_tool_calls must be a bool", emits)

    def test_a_prompt_reaches_the_model(self) -> None:
        with Rehearsal(self.subject(), allow_unused_mocks=True) as rehearsal:
            rehearsal.run(when(FIRST_PROMPT, [say("Hello.")]))
            messages = rehearsal.events.messages
            texts = [message.text for message in messages if message.role == "user"]
        reached = any(FIRST_PROMPT in text for text in texts)
        expect(reached, "the request must contain the prompt", texts)

    def test_a_prompt_returns_the_answer_of_the_agent(self) -> None:
        with Rehearsal(self.subject(), allow_unused_mocks=True) as rehearsal:
            run = rehearsal.run(when(FIRST_PROMPT, [say("Hello.")]))
        expect(run.output is not None, "prompt() must return the agent's answer", run.output)

    def test_a_tool_call_is_recorded_with_its_result(self) -> None:
        tool, params = self.call()
        with Rehearsal(self.subject(), allow_unused_mocks=True) as rehearsal:
            rehearsal.run(when(FIRST_PROMPT, [call(tool, params), say("Done.")]))
            events = [e for e in rehearsal.events.all if e.event in {TOOL_CALL, TOOL_RESULT}]
        names = [event.event for event in events]
        expect(names == [TOOL_CALL, TOOL_RESULT], "a call must have one result", names)
        called, result = (event.data for event in events)
        expect(called["tool"] == tool, "the call must have its tool", called["tool"])
        expect(called["input"] == params, "the call must have its parameters", called["input"])
        expect(called["step"] == 1, "the call must have the step of the script", called["step"])
        same_id = called["call_id"] == result["call_id"]
        expect(same_id, "the result must have the id of its call", result["call_id"])
        expect(not result["is_error"], "the tool must succeed", result["content"])

    def test_a_tool_result_is_sent_to_the_model(self) -> None:
        tool, params = self.call()
        sent: list[ToolResult] = []
        with Rehearsal(self.subject(), allow_unused_mocks=True) as rehearsal:
            steps = [call(tool, params).then(sent.append), say("Done.")]
            rehearsal.run(when(FIRST_PROMPT, steps))
            recorded = [result.text for result in rehearsal.events.tool_results_for(tool)]
        same = [result.text for result in sent] == recorded
        expect(same, "the model must receive the result that is recorded", recorded)

    def test_parallel_calls_are_all_answered(self) -> None:
        if not self.parallel:
            skip("this subject calls one tool at a time")
        tool, params = self.call()
        answered: list[str] = []
        calls = [call(tool, params).then(lambda r: answered.append(r.call_id)) for _ in range(3)]
        with Rehearsal(self.subject(), allow_unused_mocks=True) as rehearsal:
            rehearsal.run(when(FIRST_PROMPT, [calls, say("Done.")]))
            made = [record.tool_call_id for record in rehearsal.events.tool_calls]
            messages = rehearsal.events.messages
            # Other clients may send the results in the order in which the tools finish.
            ordered = rehearsal.subject.emits_tool_calls
        expect(sorted(answered) == sorted(made), "every call must get its result", answered)
        sent = [result.call_id for message in messages for result in message.results]
        expect(sent == made or not ordered, "results must be in the order of the calls", sent)

    def test_the_second_prompt_continues_the_conversation(self) -> None:
        if not self.remembers:
            skip("this subject keeps no conversation")
        with Rehearsal(self.subject(), allow_unused_mocks=True) as rehearsal:
            rehearsal.run(when(FIRST_PROMPT, [say("Hello.")]))
            run = rehearsal.run(when(SECOND_PROMPT, [say("Still here.")]))
            counts = [event.data["count"] for event in run.events.named(REQUEST)]
        continued = max(counts, default=0) > 1
        expect(continued, "the request must contain the earlier messages", counts)

    def test_a_provider_error_is_recorded(self) -> None:
        # Without automatic assertions: an agent may retry, or stop.
        with Rehearsal(self.subject(), auto_assert=False, allow_unused_mocks=True) as rehearsal:
            with suppress(OffbookError):  # an agent may raise it
                rehearsal.run(when(FIRST_PROMPT, [fail("not today", status=400)]))
            expect(rehearsal.events.named(ERROR), "the error must be in the trace")

    def test_tools_commands_and_verdicts_are_valid(self) -> None:
        tool, _ = self.call()
        with Rehearsal(self.subject(), auto_assert=False, allow_unused_mocks=True) as rehearsal:
            subject = rehearsal.subject
            tools, commands = subject.tools(), subject.commands()
            expect(tools is None or _are_names(tools), "tools() must return names or None", tools)
            expect(tools is None or tool in tools, "tools() must have the tool of call()", tools)
            expect(_are_names(commands), "commands() must return names", commands)
            slashed = [name for name in commands if name.startswith("/")]
            expect(not slashed, "commands() must return names without a slash", slashed)
        verdicts = list(subject.verdicts())
        are_verdicts = all(isinstance(verdict, Verdict) for verdict in verdicts)
        expect(are_verdicts, "verdicts() must return verdicts", verdicts)

    def test_close_is_idempotent(self) -> None:
        async def close_twice(subject: Subject, context: RunContext) -> None:
            await subject.open(context)
            await subject.close()
            await subject.close()

        self._with_context(close_twice)

    def test_it_can_be_closed_without_open(self) -> None:
        async def close_only(subject: Subject, _: RunContext) -> None:
            await subject.close()

        self._with_context(close_only)

    def test_two_subjects_are_independent(self) -> None:
        async def run_both() -> list[list[str]]:
            async with (
                Rehearsal(self.subject(), allow_unused_mocks=True) as first,
                Rehearsal(self.subject(), allow_unused_mocks=True) as second,
            ):
                await asyncio.gather(
                    first.run(when(FIRST_PROMPT, [say("Hello.")])),
                    second.run(when(SECOND_PROMPT, [say("Hello.")])),
                )
                return [
                    [message.text for message in rehearsal.events.messages]
                    for rehearsal in (first, second)
                ]

        rule = "a request must contain the prompts of its own subject only"
        first, second = asyncio.run(run_both())
        expect(not any(SECOND_PROMPT in text for text in first), rule, first)
        expect(not any(FIRST_PROMPT in text for text in second), rule, second)

    def test_nothing_is_left_behind(self) -> None:
        tool, params = self.call()

        async def rehearse() -> None:
            with no_task_leaks():
                async with Rehearsal(self.subject(), allow_unused_mocks=True) as rehearsal:
                    await rehearsal.run(when(FIRST_PROMPT, [call(tool, params), say("Done.")]))

        with no_leftovers():
            asyncio.run(rehearse())

    def _with_context(self, use: Callable[[Subject, RunContext], Awaitable[None]]) -> None:
        async def run(folder: Path) -> None:
            await use(self.subject(), RunContext(Playbook(), Hub(), folder))

        with tempfile.TemporaryDirectory(prefix="offbook-testing-") as folder:
            asyncio.run(run(Path(folder)))


def _are_names(names: object) -> bool:
    return (
        isinstance(names, Collection)
        and not isinstance(names, str)
        and all(isinstance(name, str) and name for name in names)  # pyright: ignore[reportUnknownVariableType] - any collection
    )
