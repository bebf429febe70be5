"""OpenAI's responses: a conversation is a list of items, and the provider may keep its beginning.

The items that the model gave one after the other are one message of the assistant. What came as
instructions, and as system or developer messages at the start, is the one `system`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.determinism.clock import stable_id
from offbook.errors import ModelError
from offbook.exchange.dialects import openai, validation
from offbook.exchange.dialects.conversations import CachedPrefix, PrefixCache
from offbook.exchange.dialects.decoding import RawBody
from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
from offbook.exchange.dialects.responses import responses_wire
from offbook.exchange.dialects.responses.responses_client import (
    gather_reply,
    read_reply,
    write_items,
)
from offbook.exchange.dialects.responses.responses_messages import (
    ItemReader,
    describe,
    find_conversation,
    find_input,
    introduce_asker,
    read_instructions,
    read_tools,
    require,
    say_breach,
    write_tools,
)
from offbook.exchange.dialects.responses.responses_stream import ResponseBuilder
from offbook.exchange.messages import JSON, to_json
from offbook.exchange.model import Reply, Request, Tool

if TYPE_CHECKING:
    from offbook.exchange.dialects.conversations import ConversationStore

KEPT = "/conversations/"


class Responses:
    """The dialect of `/v1/responses`, over HTTP and over a WebSocket."""

    name = responses_wire.NAME

    def __init__(self, refused: frozenset[str] = validation.ALL_RULES) -> None:
        self._rules = refused
        self._offer = lru_cache(maxsize=64)(self._read_offer)
        self._memory: PrefixCache[responses_wire.ResponsesState] = PrefixCache(find_input)
        self._echo: tuple[tuple[Tool, ...], msgspec.Raw] = ((), msgspec.Raw(b"[]"))

    def claims(self, wire: HttpRequest) -> bool:
        """Whether this is a response asked for, or one asked for again."""
        path = f"{wire.path}/"
        return "/responses/" in path or KEPT in path

    def side_response(self, wire: HttpRequest, threads: ConversationStore) -> HttpResponse | None:
        """An earlier response or conversation, or a count of tokens; None for a new response."""
        if KEPT in f"{wire.path}/":
            return self._converse(wire, threads)
        id_ = wire.path.rpartition("/responses")[2].strip("/")
        if not id_:
            return None
        if wire.method == "POST" and id_ == "input_tokens":
            count = len(wire.body) // 4 + 1
            return _answer(to_json({"object": "response.input_tokens", "input_tokens": count}))
        found = threads.recall(id_) if wire.method == "GET" else None
        if found is None:
            return self.refuse(
                ModelError(f"Response with id '{id_}' not found.", status=404, details={"code": ""})
            )
        request, reply = found
        return self.encode(reply, msgspec.structs.replace(request, stream=False))

    def _converse(self, wire: HttpRequest, threads: ConversationStore) -> HttpResponse:
        """A conversation that the provider keeps: begun, or looked at."""
        id_ = f"{wire.path}/".rpartition(KEPT)[2].strip("/")
        try:
            if wire.method == "POST" and not id_:
                return _answer(to_json(describe(self._begin(wire, threads))))
        except ModelError as error:
            return self.refuse(error)
        if threads.recall(id_) is not None and wire.method in {"DELETE", "GET"}:
            return _answer(to_json(describe(id_, deleted=wire.method == "DELETE")))
        what = f"Conversation with id '{id_}' not found, or its items are asked for, which are"
        return self.refuse(ModelError(f"{what} not told here.", status=404))

    def _begin(self, wire: HttpRequest, threads: ConversationStore) -> str:
        begun = openai.read_body(responses_wire.beginning, wire.body or b"{}")
        seen = RawBody(wire.body, responses_wire.NAME)
        said = ItemReader(self._rules, threads, responses_wire.NOTHING, seen)
        said.read(begun.items or (), "items")
        id_ = stable_id("conv_", wire.body.decode("utf-8", "replace"), str(threads.count))
        threads.remember(id_, Request(said.finish().history), Reply())
        return id_

    # ------------------------------------------------------------------ what the agent sent

    def decode(self, wire: HttpRequest, threads: ConversationStore) -> Request:
        """The neutral request, with everything that came before it in the conversation.

        The body may be that of a POST or a `response.create` event of a WebSocket. One that asks
        for no reply has `generate: False` in its metadata.
        """
        found = self._memory.recall(wire.body)
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
        known: CachedPrefix[responses_wire.ResponsesState] | None = None,
    ) -> Request:
        body, rest = openai.read_body(responses_wire.body, text)
        kept = find_conversation(cast("Any", body).conversation)
        if known is not None and (body.previous_response_id or kept):  # its beginning is another
            return self._decode(wire, wire.body, threads)
        if "missing_field" in self._rules:
            require(body)
        seen = RawBody(text, responses_wire.NAME)
        said = ItemReader(
            self._rules, threads, known.state if known else responses_wire.NOTHING, seen
        )
        if body.previous_response_id:
            self._go_on(said, body.previous_response_id, threads)
        elif kept and (found := threads.recall(kept)) is not None:
            said.go_on(*found)
        wired = body.input
        items = (
            [responses_wire.ResponsesItem(role="user", content=wired)]
            if isinstance(wired, str)
            else wired or ()
        )
        said.read(items, "input")
        read = said.finish()
        messages = read.history
        if wired:
            breach = validation.find_unpaired_call(messages, self._rules, adjacent=False)
            if breach is not None:
                raise say_breach(breach, messages)
            if said.lasting:
                self._memory.keep(wire.body, text, read, known)
        instructions = read_instructions(body.instructions, seen)
        tools = self._offer(bytes(body.tools)) if body.tools else ()
        return Request(
            messages,
            "\n\n".join(filter(None, (instructions, *read.system))),
            (*tools, *self._check_tools(read.tools)) if read.tools else tools,
            body.model or "",
            responses_wire.options.pick(body) | rest,
            introduce_asker(wire, body, instructions, kept),
            body.stream is True,
        )

    def _go_on(self, said: ItemReader, id_: str, threads: ConversationStore) -> None:
        found = threads.recall(id_)
        if found is not None:
            said.go_on(*found)
        elif "unknown_previous" in self._rules:
            raise validation.rejection(
                "unknown_previous",
                f"Previous response with id '{id_}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )

    def _read_offer(self, raw: bytes) -> tuple[Tool, ...]:
        return self._check_tools(read_tools(openai.read_body(responses_wire.tools, raw) or ()))

    def _check_tools(self, tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
        return openai.check_tools(tools, self._rules)

    # ---------------------------------------------------------------- what the model answers

    def identify(self, reply: Reply, request: Request) -> str:
        """The id of the response: the reply's own, or one made of the whole conversation."""
        return openai.identify("resp_", reply, request)

    def encode(self, reply: Reply, request: Request) -> HttpResponse:
        """The response, whole or as a stream."""
        if reply.stop == "error" and not request.stream:
            return self.refuse(ModelError(openai.FAILURE, status=500))
        id_, made = self._make(reply, request)
        if request.stream:
            return HttpResponse(200, _headers(id_, openai.STREAM_TYPE), chunks=tuple(made.stream()))
        return _answer(made.closing, id_)

    def events(self, reply: Reply, request: Request) -> list[JSON]:
        """The events of a response; a WebSocket sends each of them as a frame."""
        return self._make(reply, request)[1].list_events()

    def _make(self, reply: Reply, request: Request) -> tuple[str, ResponseBuilder]:
        offered, written = self._echo
        if offered is not request.tools:  # an agent offers the same tools time and again
            written = msgspec.Raw(to_json(write_tools(request.tools)))
            self._echo = (request.tools, written)
        id_ = self.identify(reply, request)
        return id_, ResponseBuilder(id_, reply, request, written)

    def failure(self, error: ModelError) -> JSON:
        """The event by which a WebSocket is told an error."""
        return {"type": "error", "status": error.status, "error": openai.describe_error(error)}

    def refuse(self, error: ModelError, request: Request | None = None) -> HttpResponse:
        """The error, as OpenAI words it."""
        del request
        return openai.refuse(error)

    # ------------------------------------------------------------------- asking for ourselves

    def ask(self, request: Request, base_url: str, key: str) -> HttpRequest:
        """A request to a provider; its base URL ends as the client libraries take it: `…/v1`."""
        body: JSON = {"model": request.model, "input": write_items(request.messages)}
        if request.system:
            body["instructions"] = request.system
        if request.tools:
            body["tools"] = write_tools(request.tools)
        body.update(request.parameters)
        if request.stream:
            body["stream"] = True
        headers = {"authorization": f"Bearer {key}", "content-type": openai.JSON_TYPE}
        return HttpRequest("POST", f"{base_url.rstrip('/')}/responses", headers, to_json(body))

    def parse(self, answer: HttpResponse, request: Request) -> Reply:
        """The provider's reply."""
        if answer.status >= 400:  # noqa: PLR2004 - HTTP's own
            raise openai.read_refusal(answer)
        if openai.is_stream(answer):
            return gather_reply(openai.join_stream(answer), request)
        seen = RawBody(answer.body, responses_wire.NAME)
        response = openai.read_answer(responses_wire.response, answer.body)
        return read_reply(response, (), request, seen, "output")


def _headers(id_: str, content_type: str) -> dict[str, str]:
    return {"content-type": content_type, "x-request-id": f"req_{id_.removeprefix('resp_')}"}


def _answer(body: bytes, id_: str = "offbook") -> HttpResponse:
    return HttpResponse(200, _headers(id_, openai.JSON_TYPE), body)
