"""What every dialect promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects.conversations import ConversationStore
from offbook.exchange.dialects.dialect import HttpRequest
from offbook.exchange.messages import History, Message, Text, ToolCall, ToolResult, user
from offbook.exchange.model import Reply, Request, Tool, Usage
from offbook.testing.expectations import expect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offbook.exchange.dialects.dialect import Dialect, HttpResponse

NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
FIND = Tool("find_order", "Find an order.", NUMBER)
CALLS = (ToolCall("call_1", "find_order", {"number": 7}), ToolCall("call_2", "find_order", {}))
RESULTS = tuple(
    Message("tool", (ToolResult(call.id, (Text(f"for {call.id}"),), name=call.name),))
    for call in CALLS
)
ASKED = History((user("Find order 7"),))
ANSWERED = ASKED.plus(Message("assistant", (Text("Let me see."), *CALLS)), *RESULTS)
SAID = Reply((Text("It is one lamp, and two more words."),), usage=Usage(11, 7))
CALLED = Reply((Text("Let me see."), *CALLS), "tool_use", Usage(11, 7))
ODD = (b"", b"{", b"[]", b'"text"', b"null", b"\xff\xfe", b'{"messages": 7, "contents": 7}')
BASE = "http://127.0.0.1:1"


class DialectConformance:
    """Subclass it in a test file, and let `dialect` make the dialect.

    Requests are written with its own `ask` and read with its `decode`; answers are written with
    `encode` and `refuse`, and read with `parse`. So a dialect is held to its word both ways; that
    it is the provider's word, too, is for tests with the provider's own client.
    """

    def dialect(self) -> Dialect:
        """A fresh dialect, with all rules."""
        raise NotImplementedError("let dialect() return what is to be tested")

    def test_it_claims_what_it_asks(self) -> None:
        for stream in (False, True):
            wire = self._ask(ASKED, stream=stream)
            expect(self.dialect().claims(wire), "a dialect claims its own requests", wire.path)
            beside = self.dialect().side_response(wire, ConversationStore())
            expect(beside is None, "a model call is nothing beside", beside)

    def test_a_request_is_read_as_it_was_asked(self) -> None:
        for stream in (False, True):
            read = self._decode(self._ask(ANSWERED, stream=stream))
            expect(read.stream == stream, "a stream is asked for, or is not", read.stream)
            expect(read.model == "model-1", "the model is named", read.model)
            expect(read.system == "You are a shop.", "the system prompt is kept", read.system)
            expect(read.tool_names == ("find_order",), "the tools are offered", read.tools)
            expect(read.tools[0].schema == NUMBER, "a tool keeps its schema", read.tools[0].schema)

    def test_the_conversation_is_read_as_it_was_told(self) -> None:
        read = self._decode(self._ask(ANSWERED)).messages
        roles = [message.role for message in read if message.role != "system"]
        expect(roles[0] == "user", "a prompt is a user's message", roles)
        calls = [call for message in read for call in message.calls]
        expect(_bare(calls) == _bare(CALLS), "calls keep their tool and arguments", calls)
        results = [result for message in read for result in message.results]
        answered = [(result.call_id, result.text) for result in results]
        meant = [(call.id, f"for {before.id}") for call, before in zip(calls, CALLS, strict=True)]
        expect(answered == meant, "results stand by the calls that they answer", answered)

    def test_a_reply_is_understood_whole_and_streamed(self) -> None:
        for reply in (SAID, CALLED):
            for stream in (False, True):
                request, answer = self._answer(reply, stream=stream)
                way = "streamed" if stream else "whole"
                expect(answer.status == 200, f"a {way} reply is no error", answer.status)  # noqa: PLR2004 - all is well
                expect(bool(answer.chunks) == stream, f"a {way} reply is that", len(answer.chunks))
                read = self.dialect().parse_response(answer, request)
                expect(read.text == reply.text, f"a {way} reply keeps its text", read.text)
                expect(_bare(read.calls) == _bare(reply.calls), f"a {way} reply its calls", read)
                expect(read.stop == reply.stop, f"a {way} reply its stop reason", read.stop)

    def test_tokens_are_told(self) -> None:
        request, answer = self._answer(SAID, stream=False)
        read = self.dialect().parse_response(answer, request).usage
        expect((read.input, read.output) == (11, 7), "usage is told", read)

    def test_the_same_exchange_has_the_same_bytes(self) -> None:
        for stream in (False, True):
            answers = [self._answer(CALLED, stream=stream)[1] for _ in range(2)]
            expect(answers[0] == answers[1], "ids and times are made of what was asked")

    def test_a_refusal_is_the_providers(self) -> None:
        for status in (400, 403, 429, 500, 503):
            answer = self.dialect().encode_error(ModelError("so it is", status=status), None)
            expect(answer.status == status, "an error keeps its status", answer.status)
            try:
                self.dialect().parse_response(answer, Request(model="model-1"))
            except ModelError as error:
                expect(error.status == status, "a refusal is read with its status", error.status)
                expect("so it is" in error.message, "and with its words", error.message)
            else:
                expect(kept=False, promise="a refusal is no reply")

    def test_what_is_no_request_is_refused_in_words(self) -> None:
        wire = self._ask(ASKED)
        for body in ODD:
            try:
                self._decode(msgspec.structs.replace(wire, body=body))
            except ModelError as error:
                expect(400 <= error.status < 500, "what is no request is the asker's fault", error)  # noqa: PLR2004 - as it says
                expect(error.message, "an error has words", error)
            else:
                expect(kept=False, promise="what is no request is refused", came=body)

    def test_a_result_without_its_call_is_refused(self) -> None:
        orphaned = ASKED.plus(RESULTS[0])
        try:
            self._decode(self._ask(orphaned))
        except ModelError as error:
            rule = error.details.get("rule")
            expect(rule == "orphan_result", "a refusal names the rule that was broken", rule)
        else:
            expect(kept=False, promise="a result without its call is refused")

    def _ask(self, messages: History, *, stream: bool = False) -> HttpRequest:
        request = Request(messages, "You are a shop.", (FIND,), "model-1", stream=stream)
        asked = self.dialect().build_request(request, BASE, "key")
        path, _, query = asked.path.removeprefix(BASE).partition("?")
        return msgspec.structs.replace(asked, path=path, query=query or asked.query)

    def _decode(self, wire: HttpRequest) -> Request:
        return self.dialect().decode(wire, ConversationStore())

    def _answer(self, reply: Reply, *, stream: bool) -> tuple[Request, HttpResponse]:
        request = self._decode(self._ask(ASKED, stream=stream))
        return request, self.dialect().encode(reply, request)


def _bare(calls: Sequence[ToolCall]) -> list[tuple[str, object]]:
    """What of calls every dialect keeps: some have no ids."""
    return [(call.name, call.arguments) for call in calls]
