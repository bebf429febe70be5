"""OpenAI's chat completions, with the list of models and the embeddings beside them.

What this dialect cannot say is made uniform on the way: the system messages at the start become
the one `system`; a reply's texts become one, its thoughts come first and its calls last; whether a
tool's result is an error is not told.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from offbook.errors import ModelError
from offbook.exchange.dialects import openai, validation
from offbook.exchange.dialects.chat import chat_wire
from offbook.exchange.dialects.chat.chat_client import (
    gather_reply,
    read_reply,
    write_messages,
    write_tools,
)
from offbook.exchange.dialects.chat.chat_messages import (
    find_messages,
    read_functions,
    read_messages,
    read_tools,
    require,
    say_breach,
)
from offbook.exchange.dialects.chat.chat_side_requests import (
    MODELS,
    answer_aside,
    answer_vectors,
    describe_model,
    embedding,
)
from offbook.exchange.dialects.chat.chat_stream import (
    count_choices,
    draft_completion,
    draft_events,
    repeat_choice,
    repeat_events,
)
from offbook.exchange.dialects.conversations import MIN_BODY_SIZE, CachedPrefix, PrefixCache
from offbook.exchange.dialects.decoding import RawBody
from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse, request_metadata
from offbook.exchange.dialects.streaming import PLACEHOLDER, FilledTemplate
from offbook.exchange.messages import JSON, to_json
from offbook.exchange.model import Request, Tool

if TYPE_CHECKING:
    from offbook.exchange.dialects.conversations import ConversationStore
    from offbook.exchange.model import Reply

PREFIX = "chatcmpl-"


class Chat:
    """The dialect of `/v1/chat/completions`."""

    name = chat_wire.NAME

    def __init__(self, refused: frozenset[str] = validation.ALL_RULES) -> None:
        self._rules = refused
        self._offer = lru_cache(maxsize=64)(self._read_tools)
        self._memory: PrefixCache[chat_wire.ChatState] = PrefixCache(find_messages)

    def claims(self, wire: HttpRequest) -> bool:
        """Whether this is a completion, an embedding or a question for models."""
        path = wire.path
        if path.endswith(("/chat/completions", "/embeddings")):
            return True
        if path.endswith("/models") or "/models/" in path:
            headers = wire.headers
            return (
                wire.method == "GET"
                and "x-goog-api-key" not in headers
                and "anthropic-version" not in headers
            )
        return False

    def side_response(self, wire: HttpRequest, threads: ConversationStore) -> HttpResponse | None:
        """The models, or vectors for texts; None for a completion."""
        del threads
        path = wire.path
        if path.endswith("/chat/completions"):
            return None
        try:
            if path.endswith("/embeddings"):
                return answer_vectors(openai.read_body(embedding, wire.body))
        except ModelError as error:
            return self.refuse(error)
        if path.endswith("/models"):
            return answer_aside(
                {"object": "list", "data": [describe_model(name) for name in MODELS]}
            )
        return answer_aside(describe_model(path.rpartition("/models/")[2]))

    # ------------------------------------------------------------------ what the agent sent

    def decode(self, wire: HttpRequest, threads: ConversationStore) -> Request:
        """The neutral request."""
        found = self._memory.recall(wire.body) if len(wire.body) >= MIN_BODY_SIZE else None
        if found is not None:
            try:
                return self._decode(wire, found[1], threads, found[0])
            except ModelError:  # read it whole, so that the error names the right place
                pass
        return self._decode(wire, wire.body, threads)

    def _decode(
        self,
        wire: HttpRequest,
        text: bytes,
        threads: ConversationStore,
        known: CachedPrefix[chat_wire.ChatState] | None = None,
    ) -> Request:
        body, rest = openai.read_body(chat_wire.body, text)
        seen = RawBody(text, chat_wire.NAME)
        if body.model is None:
            body.model = openai.find_deployment(wire.path)
        if "missing_field" in self._rules:
            require(body, known)
        read = known.state if known else chat_wire.NOTHING
        if body.messages:
            read = read_messages(body.messages, read, self._rules, seen, threads)
            breach = (
                validation.find_unpaired_call(read.history, self._rules) if read.tooled else None
            )
            if breach is not None:
                raise say_breach(breach, len(read.system))
            if len(wire.body) >= MIN_BODY_SIZE and _is_lasting(text):
                self._memory.keep(wire.body, text, read, known)
        tools = self._offer(bytes(body.tools)) if body.tools else ()
        if body.functions:
            offered = read_functions(body.functions)
            tools += openai.check_tools(offered, self._rules, "parameters")
        return Request(
            read.history,
            "\n\n".join(read.system),
            tools,
            body.model or "",
            chat_wire.options.pick(body) | rest if rest else chat_wire.options.pick(body),
            request_metadata(wire, chat_wire.NAME),
            body.stream is True,
        )

    def _read_tools(self, raw: bytes) -> tuple[Tool, ...]:
        return openai.check_tools(read_tools(raw), self._rules, "function.parameters")

    # ---------------------------------------------------------------- what the model answers

    def identify(self, reply: Reply, request: Request) -> str:
        """The id of the completion: the reply's own, or one made of the whole conversation."""
        return openai.identify(PREFIX, reply, request)

    def encode(self, reply: Reply, request: Request) -> HttpResponse:
        """The completion, whole or as a stream."""
        id_ = reply.id if reply.id.startswith(PREFIX) else self.identify(reply, request)
        count = count_choices(request.parameters) if request.parameters else 1
        headers = {"content-type": openai.JSON_TYPE, "x-request-id": f"req_{id_[9:]}"}
        if request.stream:
            headers["content-type"] = openai.STREAM_TYPE
            events = FilledTemplate(draft_events(reply, request), to_json(id_))
            if count > 1:
                return HttpResponse(200, headers, b"", tuple(repeat_events(events, count)))
            return HttpResponse(200, headers, b"", events)
        if reply.stop == "error":
            return self.refuse(ModelError(openai.FAILURE, status=500))
        (body,) = draft_completion(reply, request).pieces
        body = body.replace(PLACEHOLDER, to_json(id_))
        return HttpResponse(200, headers, repeat_choice(body, count) if count > 1 else body)

    def refuse(self, error: ModelError, request: Request | None = None) -> HttpResponse:
        """The error, as OpenAI words it."""
        del request
        return openai.refuse(error)

    # ------------------------------------------------------------------- asking for ourselves

    def ask(self, request: Request, base_url: str, key: str) -> HttpRequest:
        """A request to a provider; its base URL ends as the client libraries take it: `…/v1`."""
        body: JSON = {"model": request.model, "messages": write_messages(request)}
        if request.tools:
            body.update(write_tools(request.tools))
        body.update(request.parameters)
        if request.stream:
            body["stream"] = True  # and with the usage, which would not come else
            body["stream_options"] = {"include_usage": True, **body.get("stream_options", {})}
        headers = {"authorization": f"Bearer {key}", "content-type": openai.JSON_TYPE}
        url = f"{base_url.rstrip('/')}/chat/completions"
        return HttpRequest("POST", url, headers, to_json(body))

    def parse(self, answer: HttpResponse, request: Request) -> Reply:
        """The provider's reply."""
        if answer.status >= 400:  # noqa: PLR2004 - HTTP's own
            raise openai.read_refusal(answer)
        if openai.is_stream(answer):
            return gather_reply(openai.join_stream(answer), request)
        whole = openai.read_answer(chat_wire.completion, answer.body)
        choice = whole.choices[0] if whole.choices else chat_wire.ChatChoice()
        seen = RawBody(answer.body, chat_wire.NAME)
        return read_reply(whole, choice.message, choice.finish_reason, request, seen)


def _is_lasting(body: bytes) -> bool:
    """Whether it will always mean the same: the ids of functions' calls are those of one run."""
    return b'"function_call"' not in body
