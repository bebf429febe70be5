"""Every dialect keeps what dialects promise, and the suite would tell if one did not."""

from typing import Any

import msgspec
import pytest

from offbook.errors import CheckFailed, ModelError
from offbook.exchange.dialects.anthropic import Anthropic
from offbook.exchange.dialects.bedrock import Bedrock
from offbook.exchange.dialects.chat import Chat
from offbook.exchange.dialects.conversations import ConversationStore
from offbook.exchange.dialects.dialect import Dialect, HttpRequest, HttpResponse
from offbook.exchange.dialects.gemini import Gemini
from offbook.exchange.dialects.responses import Responses
from offbook.exchange.dialects.validation import ALL_RULES
from offbook.exchange.model import Reply, Request, Usage
from offbook.testing import DialectConformance


class TestChat(DialectConformance):
    def dialect(self) -> Dialect:
        return Chat()


class TestResponses(DialectConformance):
    def dialect(self) -> Dialect:
        return Responses()


class TestAnthropic(DialectConformance):
    def dialect(self) -> Dialect:
        return Anthropic()


class TestGemini(DialectConformance):
    def dialect(self) -> Dialect:
        return Gemini()


class TestBedrock(DialectConformance):
    def dialect(self) -> Dialect:
        return Bedrock()


class Deaf(Bedrock):
    def claims(self, wire: HttpRequest) -> bool:
        return not wire.path


class Forgetful(Bedrock):
    def decode(self, wire: HttpRequest, threads: ConversationStore) -> Request:
        read = super().decode(wire, threads)
        return msgspec.structs.replace(read, system="", messages=read.messages[:1])  # pyright: ignore[reportArgumentType] - the wrong or looser type is meant


class Mute(Bedrock):
    def parse_response(self, answer: HttpResponse, request: Request) -> Reply:
        read = super().parse_response(answer, request)
        return msgspec.structs.replace(read, blocks=(), usage=Usage())


class Restless(Bedrock):
    count = 0

    def reply_id(self, reply: Reply, request: Request) -> str:
        Restless.count += 1
        return f"{super().reply_id(reply, request)}-{Restless.count}"


class Polite(Bedrock):
    def encode_error(self, error: ModelError, request: Request | None = None) -> HttpResponse:
        return msgspec.structs.replace(super().encode_error(error, request), status=400)


class Trusting(Bedrock):
    def decode(self, wire: HttpRequest, threads: ConversationStore) -> Request:
        try:
            return super().decode(wire, threads)
        except ModelError:
            return Request()


BROKEN: list[tuple[Any, str]] = [
    (Deaf, "it_claims_what_it_asks"),
    (Forgetful, "a_request_is_read_as_it_was_asked"),
    (Forgetful, "the_conversation_is_read_as_it_was_told"),
    (Mute, "a_reply_is_understood_whole_and_streamed"),
    (Mute, "tokens_are_told"),
    (Restless, "the_same_exchange_has_the_same_bytes"),
    (Polite, "a_refusal_is_the_providers"),
    (Trusting, "what_is_no_request_is_refused_in_words"),
    (Trusting, "a_result_without_its_call_is_refused"),
    (lambda: Bedrock(ALL_RULES - {"orphan_result"}), "a_result_without_its_call_is_refused"),
]


@pytest.mark.parametrize("make, promise", BROKEN)
def test_a_broken_promise_is_found(make: Any, promise: str):
    class Suite(DialectConformance):
        def dialect(self) -> Dialect:
            return make()

    with pytest.raises(CheckFailed):
        getattr(Suite(), f"test_{promise}")()


def test_every_promise_is_broken_once():
    promises = {name for name in vars(DialectConformance) if name.startswith("test_")}
    assert promises == {f"test_{promise}" for _, promise in BROKEN}
