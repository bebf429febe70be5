"""The rules for every model source, as a test suite."""

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

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ECHO = Tool("echo", "Return the same text.", SCHEMA)


class SourceConformance:
    """Subclass it in a test file and implement `source`.

    Implement `errors` as well to test provider errors; that rule is skipped otherwise. Set
    `deterministic = False` for a source whose replies vary.
    """

    deterministic = True

    def source(self) -> ModelSource:
        """Return a new source that answers `requests` in their order."""
        raise NotImplementedError("implement source(): return the source to test")

    def requests(self) -> Sequence[Request]:
        """Return the requests: one prompt each, with a tool `echo`."""
        prompts = ["Say hello", "Use the tool", "Say goodbye"]
        return [Request(History([user(text)]), "You help.", (ECHO,), "model") for text in prompts]

    def errors(self) -> tuple[ModelSource, Request] | None:
        """Return a source, and a request that it answers with a provider error."""
        return None

    def test_it_is_a_model_source(self) -> None:
        source = self.source()
        expect(isinstance(source, ModelSource), "a source must have a method `reply`", source)
        expect(self.requests(), "requests() must return at least one request")

        async def reply() -> None:
            result = source.reply(self.requests()[0])
            expect(isawaitable(result), "`reply` must be an `async def`", result)
            await result

        asyncio.run(reply())

    def test_it_returns_replies(self) -> None:
        for reply in self._replies():
            expect(isinstance(reply, Reply), "`reply` must return a Reply", reply)
            known_stop = reply.stop in get_args(StopReason)
            expect(known_stop, "the stop reason must be a known one", reply.stop)
            results = [block for block in reply.blocks if isinstance(block, ToolResult)]
            expect(not results, "a reply must not contain tool results", results)
            counts = msgspec.structs.astuple(reply.usage)
            expect(min(counts) >= 0, "token counts must not be negative", reply.usage)

    def test_the_stop_reason_matches_the_calls(self) -> None:
        for reply in self._replies():
            expect(
                (reply.stop == "tool_use") == bool(reply.calls),
                "the stop reason must be `tool_use` exactly if the reply has tool calls",
                (reply.stop, [call.name for call in reply.calls]),
            )

    def test_calls_have_a_tool_and_a_unique_id(self) -> None:
        ids: list[str] = []
        for request, reply in zip(self.requests(), self._replies(), strict=True):
            for call in reply.calls:
                expect(call.id and call.name, "a call must have an id and a tool", call)
                arguments = call.arguments
                expect(isinstance(arguments, dict), "arguments must be a dict", arguments)
                known = not request.tools or call.name in request.tool_names
                expect(known, "a called tool must be in the request", call.name)
                ids.append(call.id)
        expect(len(set(ids)) == len(ids), "call ids must be unique", ids)

    def test_steps_are_numbered_from_1(self) -> None:
        steps = [reply.step for reply in self._replies()]
        numbered = [step for step in steps if step]
        expect(not numbered or numbered == steps, "all replies must have a step, or none", steps)
        expect(sorted(set(numbered)) == numbered, "steps must increase", steps)
        expect(not numbered or numbered[0] == 1, "steps must begin with 1", steps)

    def test_a_reply_can_be_serialized(self) -> None:
        for reply in self._replies():
            decoded = msgspec.json.decode(msgspec.json.encode(reply), type=Reply)
            expect(decoded == reply, "a reply must be equal after JSON", decoded)

    def test_requests_are_not_changed(self) -> None:
        requests = list(self.requests())
        before = [_serialize(request) for request in requests]
        asyncio.run(self._reply_to_all(self.source(), requests))
        after = [_serialize(request) for request in requests]
        expect(before == after, "a source must not change its requests")

    def test_concurrent_requests_are_answered(self) -> None:
        requests = self.requests()

        async def reply_at_once() -> list[Reply]:
            source = self.source()
            # One source for all: this is how an agent with parallel subagents uses it.
            return await asyncio.gather(*(source.reply(request) for request in requests))

        replies = asyncio.run(reply_at_once())
        all_replies = all(isinstance(reply, Reply) for reply in replies)
        expect(all_replies, "each concurrent request must get a Reply", replies)
        steps = [reply.step for reply in replies if reply.step]
        expect(len(set(steps)) == len(steps), "a step must answer one request only", steps)
        ids = [call.id for reply in replies for call in reply.calls]
        expect(len(set(ids)) == len(ids), "call ids must be unique", ids)

    def test_two_new_sources_reply_the_same(self) -> None:
        if not self.deterministic:
            skip("this source is not deterministic")
        first, second = self._replies(), self._replies()
        expect(first == second, "two new sources must give the same replies", second)

    def test_a_provider_error_is_a_model_error(self) -> None:
        failing = self.errors()
        if failing is None:
            skip("errors() is not implemented")
        error = asyncio.run(_raised_error(*failing))
        expect(error.status in range(400, 600), "an error must have an HTTP status", error.status)
        expect(error.category, "an error must have a category")
        wait = error.retry_after
        expect(wait is None or wait >= 0, "retry_after must not be negative", wait)

    def test_nothing_is_left_behind(self) -> None:
        async def reply() -> None:
            with no_task_leaks():
                await self._reply_to_all(self.source(), self.requests())

        with no_leftovers():
            asyncio.run(reply())

    def _replies(self) -> list[Reply]:
        return asyncio.run(self._reply_to_all(self.source(), self.requests()))

    async def _reply_to_all(self, source: ModelSource, requests: Sequence[Request]) -> list[Reply]:
        return [await source.reply(request) for request in requests]


async def _raised_error(source: ModelSource, request: Request) -> ModelError:
    try:
        reply = await source.reply(request)
    except ModelError as error:
        return error
    except Exception as error:
        expect(ok=False, rule="a provider error must be a ModelError", got=error)
        raise
    expect(ok=False, rule="a provider error must be raised", got=reply)
    raise AssertionError  # for type checkers: the line above has raised


def _serialize(request: Request) -> bytes:
    fields: dict[str, Any] = {**msgspec.structs.asdict(request), "messages": [*request.messages]}
    return msgspec.json.encode(fields, enc_hook=repr)
