"""Every dialect passes the suite, and the suite detects wrong dialects."""

from typing import Any

import msgspec
import pytest

from offbook.errors import CheckFailed, ModelError
from offbook.exchange import Reply, Request, Usage
from offbook.exchange.dialects import (
    ALL_RULES,
    ConversationStore,
    Dialect,
    HttpRequest,
    HttpResponse,
)
from offbook.exchange.dialects.anthropic.anthropic_dialect import Anthropic
from offbook.exchange.dialects.bedrock.bedrock_dialect import Bedrock
from offbook.exchange.dialects.chat.chat_dialect import Chat
from offbook.exchange.dialects.cohere.cohere_dialect import Cohere
from offbook.exchange.dialects.gemini.gemini_dialect import Gemini
from offbook.exchange.dialects.mistral.mistral_dialect import Mistral
from offbook.exchange.dialects.ollama.ollama_dialect import Ollama
from offbook.exchange.dialects.responses.responses_dialect import Responses
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


class TestOllama(DialectConformance):
    def dialect(self) -> Dialect:
        return Ollama()


class TestCohere(DialectConformance):
    def dialect(self) -> Dialect:
        return Cohere()


class TestMistral(DialectConformance):
    def dialect(self) -> Dialect:
        return Mistral()


class ClaimingNothing(Bedrock):
    def claims(self, http_request: HttpRequest) -> bool:
        return not http_request.path


class DroppingMessages(Bedrock):
    def decode(self, http_request: HttpRequest, conversations: ConversationStore) -> Request:
        read = super().decode(http_request, conversations)
        return msgspec.structs.replace(read, system="", messages=read.messages[:1])  # pyright: ignore[reportArgumentType] - the wrong or looser type is meant


class DroppingBlocks(Bedrock):
    def parse_response(self, response: HttpResponse, request: Request) -> Reply:
        read = super().parse_response(response, request)
        return msgspec.structs.replace(read, blocks=(), usage=Usage())


class ChangingIds(Bedrock):
    count = 0

    def reply_id(self, reply: Reply, request: Request) -> str:
        ChangingIds.count += 1
        return f"{super().reply_id(reply, request)}-{ChangingIds.count}"


class OneStatus(Bedrock):
    def encode_error(self, error: ModelError, request: Request | None = None) -> HttpResponse:
        return msgspec.structs.replace(super().encode_error(error, request), status=400)


class NotValidating(Bedrock):
    def decode(self, http_request: HttpRequest, conversations: ConversationStore) -> Request:
        try:
            return super().decode(http_request, conversations)
        except ModelError:
            return Request()


BROKEN: list[tuple[Any, str]] = [
    (ClaimingNothing, "it_claims_its_own_requests"),
    (DroppingMessages, "a_request_is_decoded_as_it_was_built"),
    (DroppingMessages, "a_conversation_is_decoded_as_it_was_built"),
    (DroppingBlocks, "a_reply_is_parsed_as_it_was_encoded"),
    (DroppingBlocks, "usage_is_reported"),
    (ChangingIds, "the_same_reply_has_the_same_bytes"),
    (OneStatus, "an_error_keeps_its_status_and_message"),
    (NotValidating, "an_invalid_request_is_rejected_with_a_message"),
    (NotValidating, "a_result_without_its_call_is_rejected"),
    (lambda: Bedrock(ALL_RULES - {"orphan_result"}), "a_result_without_its_call_is_rejected"),
]


@pytest.mark.parametrize("make, rule", BROKEN)
def test_a_wrong_dialect_fails(make: Any, rule: str):
    class Suite(DialectConformance):
        def dialect(self) -> Dialect:
            return make()

    with pytest.raises(CheckFailed):
        getattr(Suite(), f"test_{rule}")()


def test_every_rule_is_violated_once():
    rules = {name for name in vars(DialectConformance) if name.startswith("test_")}
    assert rules == {f"test_{rule}" for _, rule in BROKEN}
