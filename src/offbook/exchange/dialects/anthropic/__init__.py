"""The wire format of Anthropic's Messages API.

Thoughts that were scripted have no seal of the provider; on the wire they get one of ours, which
holds the thought itself. So an altered thought is found out, one that the client left out can be
restored, and to everybody else the seal does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from offbook.determinism.clock import stable_id
from offbook.errors import ModelError
from offbook.exchange.dialects.conversations import CachedPrefix, PrefixCache
from offbook.exchange.dialects.decoding import RawBody
from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse, make_reply_id
from offbook.exchange.dialects.validation import ALL_RULES, rejection
from offbook.exchange.messages import JSON, History, Message, ToolCall
from offbook.exchange.model import Request

if TYPE_CHECKING:
    from offbook.exchange.dialects.conversations import ConversationStore
    from offbook.exchange.model import Reply
from offbook.exchange.dialects.anthropic import anthropic_wire
from offbook.exchange.dialects.anthropic.anthropic_client import (
    gather_reply,
    read_error,
    read_reply,
    write_turns,
)
from offbook.exchange.dialects.anthropic.anthropic_messages import (
    VERTEX,
    AnthropicMessageReader,
    blame_turns,
    find_messages,
    find_model,
    find_thoughts,
    introduce_asker,
    read_body,
    read_system,
    read_tools,
    write_tool,
)
from offbook.exchange.dialects.anthropic.anthropic_side_requests import answer_aside, look_up
from offbook.exchange.dialects.anthropic.anthropic_stream import (
    REFUSED,
    STOPS,
    find_sequence,
    hides_thoughts,
    write_block,
    write_error,
    write_events,
    write_usage,
)
from offbook.exchange.messages import to_json

VERSION = "2023-06-01"

MAX_TOKENS = 4096

RETRIED = frozenset({408, 409, 429})

PARAMETERS = (  # what a neutral request may ask of any provider
    "max_tokens",
    "temperature",
    "top_p",
)


class Anthropic:
    """Anthropic's Messages API, holding requests to these rules."""

    name = anthropic_wire.NAME

    def __init__(self, rules: frozenset[str] = ALL_RULES) -> None:
        self._rules = rules
        self._memory: PrefixCache[anthropic_wire.AnthropicState] = PrefixCache(find_messages)

    def claims(self, wire: HttpRequest) -> bool:
        """Whether this request is one for Anthropic."""
        path = wire.path
        return (
            path.endswith(("/messages", "/messages/count_tokens", "/api/hello", *VERTEX))
            or "anthropic-version" in wire.headers
        )

    def side_response(self, wire: HttpRequest, threads: ConversationStore) -> HttpResponse | None:  # noqa: ARG002 - the protocol's
        """Models, counted tokens, and whether anybody is there."""
        if wire.method == "POST" and (wire.path.endswith("/messages") or find_model(wire.path)):
            return None
        try:
            return answer_aside(look_up(wire))
        except ModelError as error:
            return self.refuse(error)

    def decode(self, wire: HttpRequest, threads: ConversationStore) -> Request:
        """The neutral request; a `ModelError` where Anthropic would refuse it."""
        found = self._memory.recall(wire.body)
        if found is not None:
            try:
                return self._decode(wire, threads, found[1], found[0])
            except ModelError:  # read it whole, so that the error names the right place
                pass
        return self._decode(wire, threads, wire.body)

    def _decode(
        self,
        wire: HttpRequest,
        threads: ConversationStore,
        text: bytes,
        known: CachedPrefix[anthropic_wire.AnthropicState] | None = None,
    ) -> Request:
        body, rest = read_body(text)
        seen = RawBody(text, anthropic_wire.NAME)
        read = known.state if known else anthropic_wire.NOTHING
        self._require(body, read, wire.path)
        before, reply = self._resume(body.thread, threads)
        tools, wrong = read_tools(bytes(body.tools))
        if wrong and "bad_tool_schema" in self._rules:
            raise rejection("bad_tool_schema", wrong)
        walk = AnthropicMessageReader(self._rules, read, reply, seen)
        fresh = walk.read(body.messages)
        if body.thinking and body.thinking.get("type") != "disabled":
            self._check_thoughts(body, fresh, threads)
        if before is None or reply is None:
            history = read.history.plus(*fresh) if known else History(fresh)
            if fresh:
                self._memory.keep(
                    wire.body, text, anthropic_wire.AnthropicState(history, walk.names), known
                )
        else:
            history = before.messages.plus(reply.message, *read.history, *fresh)
        return Request(
            history,
            read_system(body.system) or (before.system if before else ""),
            tools or (before.tools if before else ()),
            body.model or find_model(wire.path),
            anthropic_wire.options.pick(body) | rest,
            introduce_asker(wire),
            body.stream is True,
        )

    def _require(
        self, body: anthropic_wire.AnthropicBody, read: anthropic_wire.AnthropicState, path: str
    ) -> None:
        if not body.model and not find_model(path) and "missing_field" in self._rules:
            raise rejection("missing_field", "model: Field required")
        if not body.messages and not read.history and "missing_field" in self._rules:
            raise rejection("missing_field", "messages: at least one message is required")
        if not body.max_tokens and "missing_max_tokens" in self._rules:
            given = body.max_tokens is not UNSET and body.max_tokens is not None
            wrong = "Input should be greater than or equal to 1" if given else "Field required"
            raise rejection("missing_max_tokens", f"max_tokens: {wrong}")

    def _resume(
        self, thread: anthropic_wire.AnthropicThread | None, threads: ConversationStore
    ) -> tuple[Request, Reply] | tuple[None, None]:
        """The exchange that a thread goes on from; an SDK resends all if it is not known."""
        if thread is None or thread.type != "continue":
            return None, None
        found = threads.recall(thread.previous_message_id)
        if found is None:
            raise rejection(
                "unknown_previous",
                f"thread.previous_message_id: no message {thread.previous_message_id!r} to go on"
                " from",
                error_code="thread_not_found",
            )
        request, reply = found
        return request, self._complete(reply, thread.previous_message_id)

    def _check_thoughts(
        self, body: anthropic_wire.AnthropicBody, fresh: list[Message], threads: ConversationStore
    ) -> None:
        """While tools are at work, the thoughts that led to them must stay as they were."""
        if "altered_thinking" not in self._rules:
            return
        last = next((m for m in reversed(fresh) if m.role == "assistant"), None)
        if last is None or not last.calls:
            return
        reply = threads.caller(last.calls[0].id)
        meant = find_thoughts(reply.blocks) if reply else ()
        if meant and meant != find_thoughts(last.blocks):
            raise rejection("altered_thinking", blame_turns(body.messages))

    def identify(self, reply: Reply, request: Request) -> str:
        """The id of the reply: its own, or one made of the exchange."""
        return make_reply_id("msg_", reply, request)

    def _complete(self, reply: Reply, name: str) -> Reply:
        """The reply with ids for the calls that have none, stopped by its calls if it has any."""
        calls = reply.calls
        if not calls:
            return reply
        if reply.stop == "stop":
            reply = msgspec.structs.replace(reply, stop="tool_use")
        if all(call.id for call in calls):
            return reply
        blocks = tuple(
            msgspec.structs.replace(block, id=stable_id("toolu_", name, str(at)))
            if isinstance(block, ToolCall) and not block.id
            else block
            for at, block in enumerate(reply.blocks)
        )
        return msgspec.structs.replace(reply, blocks=blocks)

    def encode(self, reply: Reply, request: Request) -> HttpResponse:
        """The message as JSON, or as the whole stream of its events."""
        name = self.identify(reply, request)
        reply = self._complete(reply, name)
        hide = hides_thoughts(request.parameters)
        if request.stream:
            headers = {
                "content-type": "text/event-stream; charset=utf-8",
                "cache-control": "no-cache",
                "request-id": f"req_{name[-24:]}",
            }
            return HttpResponse(
                200, headers, b"", tuple(write_events(reply, request, name, hide=hide))
            )
        if reply.stop == "error":
            return self.refuse(ModelError("Internal server error", status=500), request)
        blocks = [wire for block in reply.blocks if (wire := write_block(block, hide=hide))]
        stop = STOPS[reply.stop]
        whole: JSON = {
            "id": name,
            "type": "message",
            "role": "assistant",
            "model": reply.model or request.model,
            "content": blocks,
            "stop_reason": stop,
            "stop_sequence": find_sequence(reply, request),
            "usage": write_usage(reply.usage, reply.usage.output),
        }
        if stop == "refusal":
            whole["stop_details"] = REFUSED
        headers = {"content-type": "application/json", "request-id": f"req_{name[-24:]}"}
        return HttpResponse(200, headers, to_json(whole))

    def refuse(self, error: ModelError, request: Request | None = None) -> HttpResponse:  # noqa: ARG002 - the protocol's
        """An error as Anthropic tells it."""
        status = error.status
        request_id = stable_id("req_", str(status), error.message)
        headers = {"content-type": "application/json", "request-id": request_id}
        if error.retry_after is not None:
            headers["retry-after"] = f"{error.retry_after:g}"
        if status < 500 and status not in RETRIED:  # noqa: PLR2004 - the client's fault
            headers["x-should-retry"] = "false"
        details = dict(error.details)
        if rule := details.pop("rule", ""):
            headers["x-offbook-rule"] = rule
        return HttpResponse(status, headers, to_json(write_error(error, details, request_id)))

    def ask(self, request: Request, base_url: str, key: str) -> HttpRequest:
        """A request to Anthropic. Thoughts without its seal stay here: it would refuse them."""
        base = base_url.rstrip("/").removesuffix("/v1")
        headers = {
            "content-type": "application/json",
            "anthropic-version": VERSION,
            "x-api-key": key,
        }
        native = request.metadata.get("dialect", anthropic_wire.NAME) == anthropic_wire.NAME
        if beta := request.metadata.get("anthropic-beta"):
            headers["anthropic-beta"] = beta
        options = {
            name: given
            for name, given in request.parameters.items()
            if native or name in PARAMETERS
        }
        body: JSON = {"model": request.model, "max_tokens": MAX_TOKENS, **options}
        if request.system:
            body["system"] = request.system
        body["messages"] = list(write_turns(request.messages))
        if request.tools:
            body["tools"] = [write_tool(tool) for tool in request.tools]
        if request.stream:
            body["stream"] = True
        return HttpRequest("POST", f"{base}/v1/messages", headers, to_json(body))

    def parse(self, answer: HttpResponse, request: Request) -> Reply:
        """The reply in an answer of Anthropic's."""
        body = answer.body or b"".join(answer.chunks)
        if answer.status >= 400:  # noqa: PLR2004 - an error, in HTTP
            raise read_error(body, answer.status, answer.headers)
        try:
            if body[:1] == b"{":
                return read_reply(
                    anthropic_wire.message(body), request, RawBody(body, anthropic_wire.NAME)
                )
            return gather_reply(body, request)
        except msgspec.MsgspecError as error:
            what = f"the answer is not a message of Anthropic's: {error}"
            raise ModelError(what, status=502) from error
