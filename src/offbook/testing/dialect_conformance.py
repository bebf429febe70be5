"""The rules for every dialect, as a test suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects.dialect import ConversationStore, HttpRequest
from offbook.exchange.messages import History, Message, Text, ToolCall, ToolResult, user
from offbook.exchange.model import Reply, Request, Tool, Usage
from offbook.testing.expectations import expect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offbook.exchange.dialects.dialect import Dialect, HttpResponse

SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
TOOL = Tool("find_order", "Find an order.", SCHEMA)
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
            expect(schema == SCHEMA, "the schema of a tool must be kept", schema)

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
