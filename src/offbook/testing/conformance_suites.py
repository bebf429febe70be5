"""The rules for every model source, subject and dialect, as test suites.

First the expectations that they share: rules with a message, and the search for what a test left.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
from collections.abc import Collection
from contextlib import asynccontextmanager, contextmanager, suppress
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args
from unittest import SkipTest

import msgspec

from offbook.determinism.environment import set_environment
from offbook.errors import CheckFailed, ModelError, OffbookError
from offbook.exchange.dialects.dialect import ConversationStore, HttpRequest
from offbook.exchange.messages import History, Message, Text, ToolCall, ToolResult, user
from offbook.exchange.model import ModelSource, Reply, Request, StopReason, Tool, Usage
from offbook.runs.rehearsal import Rehearsal
from offbook.sources.playbook.actions import call, fail, say, when
from offbook.sources.playbook.playbook import Playbook
from offbook.subjects.subject import ModelAccess, RunContext, Subject
from offbook.trace.events import ERROR, REQUEST, TOOL_CALL, TOOL_RESULT, Verdict
from offbook.trace.hub import Hub

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence

    from offbook.exchange.dialects.dialect import Dialect, HttpResponse


ENDING_SECONDS = 5.0


def expect(ok: object, rule: str, got: object = "") -> None:
    """Fail with the rule and the actual value, unless `ok` is true."""
    if not ok:
        raise CheckFailed(f"{rule}{f', got {got!r}' if got != '' else ''}")


def skip(reason: str) -> NoReturn:
    """Skip a rule that does not apply; pytest and unittest report it as skipped."""
    raise SkipTest(reason)


@contextmanager
def no_leftovers() -> Generator[None]:
    """Fail if threads, processes, files or changed settings of this process remain."""
    # An empty folder for temporary files: whatever is in it afterwards was left behind.
    with tempfile.TemporaryDirectory(prefix="offbook-testing-") as folder, _use_temp(folder):
        before = _settings()
        threads, children = _threads(), _children()
        yield
        # A worker that is about to end, such as AnyIO's, may need a moment for it.
        for thread in threading.enumerate():
            if thread.name not in threads and not thread.daemon:
                thread.join(ENDING_SECONDS)
        expect(_threads() <= threads, "no thread must be left running", _threads() - threads)
        expect(_children() <= children, "no process must be left running", _children() - children)
        files = sorted(str(file.relative_to(folder)) for file in Path(folder).rglob("*"))
        expect(not files, "no temporary file must be left", files)
        for name, value in _settings().items():
            expect(value == before[name], f"{name} must be restored", value)


@asynccontextmanager
async def no_task_leaks() -> AsyncGenerator[None]:
    """Fail if tasks that were started inside do not end."""
    before = asyncio.all_tasks()
    yield
    if running := asyncio.all_tasks() - before:
        # One that closes something needs a moment, such as that of a client which is collected.
        _, running = await asyncio.wait(running, timeout=ENDING_SECONDS)
    expect(not running, "no task must be left running", [str(task) for task in running])


@contextmanager
def _use_temp(folder: str) -> Generator[None]:
    """Create all temporary files here, in this process and its children."""
    previous, tempfile.tempdir = tempfile.tempdir, folder
    try:
        with set_environment({"TMPDIR": folder}):
            yield
    finally:
        tempfile.tempdir = previous


def _settings() -> dict[str, object]:
    return {
        "the working directory": Path.cwd(),
        "sys.path": list(sys.path),
        "the environment": dict(os.environ),
    }


def _threads() -> set[str]:
    # Daemon threads may belong to the interpreter or to a library; they end with the process.
    return {thread.name for thread in threading.enumerate() if not thread.daemon}


def _children() -> set[int]:
    # Linux only; on other systems leaked processes are not detected.
    files = Path("/proc/self/task").glob("*/children")
    return {int(pid) for file in files for pid in file.read_text().split()}


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
            for made in reply.calls:
                expect(made.id and made.name, "a call must have an id and a tool", made)
                arguments = made.arguments
                expect(isinstance(arguments, dict), "arguments must be a dict", arguments)
                known = not request.tools or made.name in request.tool_names
                expect(known, "a called tool must be in the request", made.name)
                ids.append(made.id)
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
            async with no_task_leaks():
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
            async with (
                no_task_leaks(),
                Rehearsal(self.subject(), allow_unused_mocks=True) as rehearsal,
            ):
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


ORDER_SCHEMA = {
    "type": "object",
    "properties": {"number": {"type": "integer"}},
    "required": ["number"],
}
TOOL = Tool("find_order", "Find an order.", ORDER_SCHEMA)
CALLS = (ToolCall("call_1", "find_order", {"number": 7}), ToolCall("call_2", "find_order", {}))
RESULTS = tuple(
    Message("tool", (ToolResult(call.id, (Text(f"for {call.id}"),), name=call.name),))
    for call in CALLS
)
PROMPT = History((user("Find order 7"),))
CONVERSATION = PROMPT.plus(Message("assistant", (Text("Let me see."), *CALLS)), *RESULTS)
TEXT_REPLY = Reply((Text("It is one lamp, and two more words."),), usage=Usage(11, 7))
CALL_REPLY = Reply((Text("Let me see."), *CALLS), "tool_use", Usage(11, 7))
INVALID_BODIES = (
    *(b"", b"{", b"[]", b'"text"', b"null", b"\xff\xfe"),
    b'{"messages": 7, "contents": 7}',
)
BASE_URL = "http://127.0.0.1:1"


class DialectConformance:
    """Subclass it in a test file and implement `dialect`.

    Requests are written with `build_request` and read with `decode`; responses are written with
    `encode` and `encode_error` and read with `parse_response`. So both sides of a dialect must
    agree; that they agree with the provider is tested with the provider's own client.
    """

    def dialect(self) -> Dialect:
        """Return a new dialect with all validation rules."""
        raise NotImplementedError("implement dialect(): return the dialect to test")

    def test_it_claims_its_own_requests(self) -> None:
        for stream in (False, True):
            http_request = self._build_request(PROMPT, stream=stream)
            expect(
                self.dialect().claims(http_request),
                "a dialect must claim its requests",
                http_request.path,
            )
            response = self.dialect().side_response(http_request, ConversationStore())
            expect(response is None, "a model call must not be a side request", response)

    def test_a_request_is_decoded_as_it_was_built(self) -> None:
        for stream in (False, True):
            request = self._decode(self._build_request(CONVERSATION, stream=stream))
            expect(request.stream == stream, "`stream` must be kept", request.stream)
            expect(request.model == "model-1", "the model must be kept", request.model)
            system = request.system
            expect(system == "You are a shop.", "the system prompt must be kept", system)
            names = request.tool_names
            expect(names == ("find_order",), "the tools must be kept", request.tools)
            schema = request.tools[0].schema
            expect(schema == ORDER_SCHEMA, "the schema of a tool must be kept", schema)

    def test_a_conversation_is_decoded_as_it_was_built(self) -> None:
        messages = self._decode(self._build_request(CONVERSATION)).messages
        roles = [message.role for message in messages if message.role != "system"]
        expect(roles[0] == "user", "a prompt must be a user message", roles)
        calls = [call for message in messages for call in message.calls]
        expect(_comparable(calls) == _comparable(CALLS), "calls must be kept", calls)
        results = [result for message in messages for result in message.results]
        actual = [(result.call_id, result.text) for result in results]
        # Some dialects have no ids of calls and create new ones.
        pairs = zip(calls, CALLS, strict=True)
        expected = [(call.id, f"for {original.id}") for call, original in pairs]
        expect(actual == expected, "each result must belong to its call", actual)

    def test_a_reply_is_parsed_as_it_was_encoded(self) -> None:
        for reply in (TEXT_REPLY, CALL_REPLY):
            for stream in (False, True):
                request, response = self._respond(reply, stream=stream)
                kind = "streamed" if stream else "whole"
                expect(response.status == 200, f"a {kind} reply must be ok", response.status)  # noqa: PLR2004 - HTTP
                chunks = len(response.chunks)
                expect(bool(chunks) == stream, f"a {kind} reply must be {kind}", chunks)
                parsed = self.dialect().parse_response(response, request)
                expect(parsed.text == reply.text, f"a {kind} text must be kept", parsed.text)
                same_calls = _comparable(parsed.calls) == _comparable(reply.calls)
                expect(same_calls, f"{kind} calls must be kept", parsed)
                expect(parsed.stop == reply.stop, "the stop reason must be kept", parsed.stop)

    def test_usage_is_reported(self) -> None:
        request, response = self._respond(TEXT_REPLY, stream=False)
        usage = self.dialect().parse_response(response, request).usage
        expect((usage.input, usage.output) == (11, 7), "usage must be kept", usage)

    def test_the_same_reply_has_the_same_bytes(self) -> None:
        for stream in (False, True):
            first, second = (self._respond(CALL_REPLY, stream=stream)[1] for _ in range(2))
            expect(first == second, "ids and times must be derived from the request")

    def test_an_error_keeps_its_status_and_message(self) -> None:
        for status in (400, 403, 429, 500, 503):
            error = ModelError("out of lamps", status=status)
            response = self.dialect().encode_error(error, None)
            expect(response.status == status, "an error must keep its status", response.status)
            try:
                self.dialect().parse_response(response, Request(model="model-1"))
            except ModelError as parsed:
                expect(parsed.status == status, "the status must be parsed", parsed.status)
                kept = "out of lamps" in parsed.message
                expect(kept, "the message must be parsed", parsed.message)
            else:
                expect(ok=False, rule="parsing an error must raise ModelError")

    def test_an_invalid_request_is_rejected_with_a_message(self) -> None:
        http_request = self._build_request(PROMPT)
        for body in INVALID_BODIES:
            try:
                self._decode(msgspec.structs.replace(http_request, body=body))
            except ModelError as error:
                client_error = 400 <= error.status < 500  # noqa: PLR2004 - HTTP
                expect(client_error, "an invalid request must be a client error", error)
                expect(error.message, "an error must have a message", error)
            else:
                expect(ok=False, rule="an invalid request must be rejected", got=body)

    def test_a_result_without_its_call_is_rejected(self) -> None:
        try:
            self._decode(self._build_request(PROMPT.plus(RESULTS[0])))
        except ModelError as error:
            rule = error.details.get("rule")
            expect(rule == "orphan_result", "the error must name its rule", rule)
        else:
            expect(ok=False, rule="a result without its call must be rejected")

    def _build_request(self, messages: History, *, stream: bool = False) -> HttpRequest:
        request = Request(messages, "You are a shop.", (TOOL,), "model-1", stream=stream)
        http_request = self.dialect().build_request(request, BASE_URL, "key")
        path, _, query = http_request.path.removeprefix(BASE_URL).partition("?")
        return msgspec.structs.replace(http_request, path=path, query=query or http_request.query)

    def _decode(self, http_request: HttpRequest) -> Request:
        return self.dialect().decode(http_request, ConversationStore())

    def _respond(self, reply: Reply, *, stream: bool) -> tuple[Request, HttpResponse]:
        request = self._decode(self._build_request(PROMPT, stream=stream))
        return request, self.dialect().encode(reply, request)


def _comparable(calls: Sequence[ToolCall]) -> list[tuple[str, object]]:
    return [(call.name, call.arguments) for call in calls]
