"""What every source of replies promises."""

from __future__ import annotations

import asyncio
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from offbook.errors import ModelError
from offbook.exchange.messages import History, ToolResult, user
from offbook.exchange.model import ModelSource, Reply, Request, StopReason, Tool
from offbook.testing.expectations import expect, no_leftovers, no_task_leaks, skip

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ECHO = Tool("echo", "Say the same.", TEXT)


class SourceConformance:
    """Subclass it in a test file, and let `source` make a fresh source that answers `requests`.

    `errors` makes one that answers with a provider's error; without it that promise is skipped.
    A source whose answers differ from time to time says `deterministic = False`.
    """

    deterministic = True

    def source(self) -> ModelSource:
        """A fresh source, ready to answer `requests` in their order."""
        raise NotImplementedError("let source() return what is to be tested")

    def requests(self) -> Sequence[Request]:
        """What the source is asked: one prompt each, with a tool `echo` on offer."""
        prompts = ["Say hello", "Use the tool", "Say goodbye"]
        return [Request(History([user(text)]), "You help.", (ECHO,), "model") for text in prompts]

    def errors(self) -> tuple[ModelSource, Request] | None:
        """A source, and a request that it answers with a provider's error."""
        return None

    def test_it_is_a_model_source(self) -> None:
        source = self.source()
        expect(isinstance(source, ModelSource), "a source has a method `reply`", source)
        expect(self.requests(), "there is something to ask")

        async def ask() -> None:
            answer = source.reply(self.requests()[0])
            expect(isawaitable(answer), "`reply` is an `async def`", answer)
            await answer

        asyncio.run(ask())

    def test_every_answer_is_a_reply(self) -> None:
        for reply in self._replies():
            expect(isinstance(reply, Reply), "`reply` gives a Reply", reply)
            expect(
                reply.stop in get_args(StopReason),
                "the stop reason is one of those known",
                reply.stop,
            )
            strange = [block for block in reply.blocks if isinstance(block, ToolResult)]
            expect(not strange, "a model calls tools, it does not answer for them", strange)
            counts = msgspec.structs.astuple(reply.usage)
            expect(min(counts) >= 0, "usage counts tokens", reply.usage)

    def test_the_stop_reason_fits_the_calls(self) -> None:
        for reply in self._replies():
            expect(
                (reply.stop == "tool_use") == bool(reply.calls),
                "a reply stops for `tool_use` exactly when it calls tools",
                (reply.stop, [call.name for call in reply.calls]),
            )

    def test_calls_are_named_and_told_apart(self) -> None:
        seen: list[str] = []
        for request, reply in zip(self.requests(), self._replies(), strict=True):
            for call in reply.calls:
                expect(call.id and call.name, "a call has an id and a tool", call)
                expect(isinstance(call.arguments, dict), "arguments are a dict", call.arguments)
                offered = not request.tools or call.name in request.tool_names
                expect(offered, "a model calls what it is offered", call.name)
                seen.append(call.id)
        expect(len(set(seen)) == len(seen), "no two calls share an id", seen)

    def test_steps_are_counted_from_1(self) -> None:
        steps = [reply.step for reply in self._replies()]
        counted = [step for step in steps if step]
        expect(not counted or counted == steps, "either all replies have a step or none", steps)
        expect(sorted(set(counted)) == counted, "steps go up", steps)
        expect(not counted or counted[0] == 1, "steps are counted from 1", steps)

    def test_a_reply_can_be_written_down(self) -> None:
        for reply in self._replies():
            read = msgspec.json.decode(msgspec.json.encode(reply), type=Reply)
            expect(read == reply, "a reply is the same after it was JSON", read)

    def test_a_request_stays_as_it_was(self) -> None:
        requests = list(self.requests())
        before = [_spell(request) for request in requests]
        asyncio.run(self._ask_all(self.source(), requests))
        after = [_spell(request) for request in requests]
        expect(before == after, "a source does not change what it is asked")

    def test_requests_may_come_at_the_same_time(self) -> None:
        requests = self.requests()

        async def ask() -> list[Reply]:
            source = self.source()
            return await asyncio.gather(*(source.reply(request) for request in requests))

        replies = asyncio.run(ask())
        expect(all(isinstance(reply, Reply) for reply in replies), "each request is answered")
        steps = [reply.step for reply in replies if reply.step]
        expect(len(set(steps)) == len(steps), "no step answers two requests", steps)
        ids = [call.id for reply in replies for call in reply.calls]
        expect(len(set(ids)) == len(ids), "no two calls share an id", ids)

    def test_a_fresh_source_answers_alike(self) -> None:
        if not self.deterministic:
            skip("this source is not deterministic")
        first, second = self._replies(), self._replies()
        expect(first == second, "two fresh sources answer alike", second)

    def test_a_provider_error_is_a_model_error(self) -> None:
        given = self.errors()
        if given is None:
            skip("errors() gives no source that fails")
        source, request = given
        error = asyncio.run(_fail(source, request))
        expect(error.status in range(400, 600), "a provider's error has its status", error.status)
        expect(error.category, "a provider's error has a category")
        wait = error.retry_after
        expect(wait is None or wait >= 0, "retry_after is a time to wait", wait)

    def test_nothing_is_left_behind(self) -> None:
        async def ask() -> None:
            with no_task_leaks():
                await self._ask_all(self.source(), self.requests())

        with no_leftovers():
            asyncio.run(ask())

    def _replies(self) -> list[Reply]:
        return asyncio.run(self._ask_all(self.source(), self.requests()))

    async def _ask_all(self, source: ModelSource, requests: Sequence[Request]) -> list[Reply]:
        return [await source.reply(request) for request in requests]


async def _fail(source: ModelSource, request: Request) -> ModelError:
    try:
        reply = await source.reply(request)
    except ModelError as error:
        return error
    except Exception as error:
        expect(kept=False, promise="a provider's error is a ModelError", came=error)
        raise
    expect(kept=False, promise="a provider's error is raised", came=reply)
    raise AssertionError


def _spell(request: Request) -> bytes:
    fields: dict[str, Any] = {**msgspec.structs.asdict(request), "messages": [*request.messages]}
    return msgspec.json.encode(fields, enc_hook=repr)
