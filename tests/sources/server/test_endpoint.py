"""One run on the server: replies and exceptions of its source, and the trace."""

import asyncio
import gzip
import threading
import zlib
from collections.abc import AsyncIterator
from contextvars import ContextVar

import msgspec
import pytest

from offbook.determinism import FaultInjector, Faults
from offbook.errors import ModelError, ScriptMismatch
from offbook.exchange import Message, Reply, Request, Text, ToolResult, user
from offbook.exchange.dialects import ConversationStore, HttpRequest, HttpResponse
from offbook.sources.mocks import Mocks
from offbook.sources.playbook import Playbook, call, fail, say, when
from offbook.sources.server import Endpoint, Pacing, Server
from offbook.sources.server.connection import BODY_LIMIT
from offbook.trace import Event, Hub
from tests.sources.server.plain_dialect import Plain, body, detect_plain
from tests.sources.server.raw_http import Reader, ask, connect, post


class Scripted:
    """Replies with its lines, and raises those that are exceptions."""

    def __init__(self, *lines: str | Exception) -> None:
        self.lines = list(lines)

    async def reply(self, request: Request) -> Reply:  # noqa: ARG002 - the protocol
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return Reply((Text(line),))


def ask_reply(url: str, *messages: Message, tools: list[str] | None = None) -> Reply:
    status, _, text = ask(f"{url}/v1/plain", body(*messages, tools=tools))
    assert status == 200, text
    return msgspec.json.decode(text, type=Reply)


@pytest.mark.parametrize("path", ["/v1/plain", "/plain"])
def test_paths_work_with_and_without_the_version(server: Server, path: str):
    endpoint = server.mount(Scripted("yes"))
    assert ask(endpoint.url + path, body(user("hi")))[0] == 200


def test_a_provider_error_does_not_fail_the_run(server: Server):
    endpoint = server.mount(Scripted(ModelError("slow down", status=429), "there"))
    status, headers, answer = ask(f"{endpoint.openai}/plain", body(user("hi")))
    assert (status, b"slow down" in answer) == (429, True)
    assert "x-should-retry" not in headers
    assert endpoint.failure is None
    assert ask_reply(endpoint.url, user("hi")).text == "there"


COMPRESSED = {"gzip": gzip.compress, "GZIP": gzip.compress, "deflate": zlib.compress}


@pytest.mark.parametrize("encoding", COMPRESSED)
def test_a_compressed_request_is_read(server: Server, encoding: str):
    endpoint = server.mount(Scripted("yes"))
    sent = COMPRESSED[encoding](body(user("hi")))
    assert ask(f"{endpoint.openai}/plain", sent, f"content-encoding: {encoding}")[0] == 200


UNREADABLE = {
    "another encoding": ("br", b"x", 415, "unsupported content-encoding 'br'"),
    "not compressed": ("gzip", b"{}", 400, "the body is not gzip"),
    "incomplete": ("gzip", gzip.compress(b"{}")[:-9], 400, "it is incomplete"),
    "too large": ("gzip", gzip.compress(bytes(BODY_LIMIT + 1)), 413, "exceeds"),
}


@pytest.mark.parametrize("encoding, sent, status, reason", UNREADABLE.values(), ids=UNREADABLE)
def test_a_compressed_request_that_cannot_be_read_is_the_reason_of_the_failure(
    server: Server, encoding: str, sent: bytes, status: int, reason: str
):
    endpoint = server.mount(Scripted("yes"))
    assert ask(f"{endpoint.openai}/plain", sent, f"content-encoding: {encoding}")[0] == status
    assert endpoint.received == 1
    assert reason in str(endpoint.refusal)


@pytest.mark.parametrize("error", [ScriptMismatch("not in the script"), KeyError("bug")])
def test_another_exception_fails_the_run_and_every_later_request(server: Server, error: Exception):
    endpoint = server.mount(Scripted(error, "too late"))
    for _ in range(2):
        status, headers, answer = ask(f"{endpoint.openai}/plain", body(user("hi")))
        assert (status, headers["x-should-retry"]) == (400, "false")
        assert str(error).encode() in answer
    assert endpoint.failure is error


def test_a_failed_run_does_not_affect_another(server: Server):
    broken, sound = server.mount(Scripted(KeyError("bug"))), server.mount(Scripted("fine"))
    assert ask(f"{broken.openai}/plain", body(user("hi")))[0] == 400
    assert ask_reply(sound.url, user("hi")).text == "fine"
    assert sound.failure is None


def test_a_closed_endpoint_responds_with_404(server: Server):
    endpoint = server.mount(Scripted("a", "b"))
    assert ask_reply(endpoint.url, user("hi")).text == "a"
    endpoint.close()
    endpoint.close()
    status, _, answer = ask(f"{endpoint.openai}/plain", body(user("hi")))
    assert (status, b"or it has ended" in answer) == (404, True)


def test_the_source_runs_in_the_context_of_the_caller_of_mount(server: Server):
    tenant: ContextVar[str] = ContextVar("tenant")
    tenant.set("acme")
    seen: list[tuple[str, str]] = []

    class ContextReader:
        async def reply(self, request: Request) -> Reply:  # noqa: ARG002 - the protocol
            seen.append((tenant.get(), threading.current_thread().name))
            return Reply((Text("ok"),))

    ask_reply(server.mount(ContextReader()).url, user("hi"))
    assert seen == [("acme", "offbook-server")]


def test_every_request_is_traced(server: Server):
    hub, events = Hub(), list[Event]()
    hub.subscribe(events.append)
    endpoint = server.mount(Scripted("yes", ModelError("no", status=500), KeyError("bug")), hub=hub)
    for path, sent in [
        ("/v1/plain", body(user("one"))),
        ("/v1/plain", body(user("two"))),
        ("/v1/plain", b"{not json"),
        ("/v1/nowhere", b""),
        ("/v1/plain", body(user("three"))),
        ("/v1/plain", body(user("four"))),
    ]:
        ask(endpoint.url + path, sent)
    ask(f"{endpoint.url}/api/hello", b"", method="HEAD")
    ask(f"{endpoint.url}/v1/models", b"", method="GET")
    seen = [(e.event, e.data.get("status"), e.data.get("exchange")) for e in events]
    assert seen == [
        ("model.request", None, "x1"),
        ("model.reply", None, "x1"),
        ("model.request", None, "x2"),
        ("model.error", 500, "x2"),
        ("model.error", 400, None),  # a request that cannot be read is no exchange
        ("model.aside", 404, None),
        ("model.request", None, "x3"),
        ("model.error", 400, "x3"),
        ("model.error", 400, None),  # after a failure, the source gets no request
        ("model.aside", 200, None),
        ("model.aside", 200, None),
    ]


def test_the_error_for_an_unknown_path_says_that_offbook_does_not_support_it(server: Server):
    endpoint = server.mount(Scripted())
    status, _, answer = ask(f"{endpoint.url}/v1/nowhere", b"{}")
    assert status == 404
    message = msgspec.json.decode(answer)["error"]["message"]
    assert message == "Offbook does not support POST /v1/nowhere"
    assert endpoint.failure is None


def test_an_undelivered_response_is_sent_again(server: Server, monkeypatch: pytest.MonkeyPatch):
    endpoint = server.mount(Scripted("a b c d e f", "next"), pacing=Pacing(tokens_per_second=200))
    noticed = threading.Event()
    mark_undelivered = endpoint.mark_undelivered

    def notice(response: HttpResponse) -> None:
        mark_undelivered(response)
        noticed.set()

    monkeypatch.setattr(endpoint, "mark_undelivered", notice)
    with connect(endpoint.url) as connection:
        connection.sendall(post(f"{endpoint.openai}/plain", body(user("hi"), stream=True)))
        Reader(connection).head()
    assert noticed.wait(300)
    again = ask(f"{endpoint.openai}/plain", body(user("hi"), stream=True))
    other = ask(f"{endpoint.openai}/plain", body(user("hi"), stream=True))
    assert again[2].endswith(b'data: "f"\n\n')
    assert other[2] == b'data: "next"\n\n'


def test_a_client_that_announces_a_retry_gets_the_same_reply(server: Server):
    endpoint = server.mount(Scripted("first", "second"))
    url, retry = f"{endpoint.openai}/plain", "x-stainless-retry-count: 1"
    sent = body(user("hi"))
    assert [ask(url, sent)[2], ask(url, sent, retry)[2], ask(url, sent)[2]] == [
        rendered("first"),
        rendered("first"),
        rendered("second"),
    ]


def rendered(text: str) -> bytes:
    """Return the plain dialect's response for a text."""
    return msgspec.json.encode(Reply((Text(text),), id="reply-0"))


def test_a_retry_after_a_scripted_error_takes_the_next_step(server: Server):
    playbook = Playbook()
    playbook.load(when("hi", [fail(status=529), say("now")]))
    url, sent = f"{server.mount(playbook).openai}/plain", body(user("hi"))
    assert ask(url, sent)[0] == 529
    status, _, answer = ask(url, sent, "x-stainless-retry-count: 1")
    assert (status, b"now" in answer) == (200, True)
    assert playbook.unfinished() is None


def test_then_and_late_binding_work_over_the_wire(server: Server):
    found: dict[str, str] = {}
    playbook = Playbook()
    playbook.load(
        when(
            "Refund order 7",
            [
                call("find", {"id": 7}).then(lambda result: found.update(name=result.text)),
                call("refund", lambda: {"to": found["name"]}),
                say("Done."),
            ],
        )
    )
    hub, events = Hub(), list[Event]()
    hub.subscribe(events.append)
    url = server.mount(playbook, hub=hub).url
    messages = [user("Please: Refund order 7")]
    for answer in ("Ada", "refunded"):
        reply = ask_reply(url, *messages, tools=["find", "refund"])
        result = ToolResult(reply.calls[0].id, (Text(answer),))
        messages += [reply.message, Message("tool", (result,))]
    assert ask_reply(url, *messages).text == "Done."
    assert playbook.unfinished() is None
    calls = [event.data["input"] for event in events if event.event == "tool.call"]
    results = [event.data["tool"] for event in events if event.event == "tool.result"]
    assert calls == [{"id": 7}, {"to": "Ada"}]
    assert results == ["find", "refund"]


def test_an_exception_in_a_callback_keeps_its_traceback(server: Server):
    def check(result: ToolResult) -> None:
        assert result.text == "42"

    playbook = Playbook()
    playbook.load(when("go", [call("look").then(check), say("Done.")]))
    endpoint = server.mount(playbook)
    reply = ask_reply(endpoint.url, user("go"), tools=["look"])
    wrong = Message("tool", (ToolResult(reply.calls[0].id, (Text("41"),)),))
    status, headers, _ = ask(f"{endpoint.openai}/plain", body(user("go"), reply.message, wrong))
    assert (status, headers["x-should-retry"]) == (400, "false")
    assert isinstance(endpoint.failure, AssertionError)
    last = endpoint.failure.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    assert last is not None
    assert last.tb_frame.f_code.co_name == "check"


class WaitingMocks(Mocks):
    async def reply(self, request: Request, /) -> Reply:
        await asyncio.sleep(0)
        return await super().reply(request)


def test_the_reply_of_a_subclass_of_mocks_may_wait(server: Server):
    endpoint = server.mount(WaitingMocks([{"text": "one"}, {"text": "two"}]))
    assert [ask_reply(endpoint.url, user("Hi")).text for _ in range(2)] == ["one", "two"]


async def test_a_server_can_run_in_the_callers_loop():
    async with Server(detect_dialect=detect_plain) as server:
        endpoint = server.mount(Scripted("here"))
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(post(f"{endpoint.openai}/plain", body(user("hi"))))
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        await writer.wait_closed()


class BrokenDialect(Plain):
    def side_response(self, http_request: HttpRequest, conversations: ConversationStore) -> None:  # noqa: ARG002 - the protocol
        raise KeyError(http_request.path)


async def test_an_exception_of_a_dialect_fails_the_run():
    endpoint = Endpoint(Scripted("never"), url="", detect_dialect=lambda _: BrokenDialect())
    response = await endpoint.answer(HttpRequest("GET", "/v1/models"))
    assert response.status == 400
    assert isinstance(endpoint.failure, KeyError)


async def test_a_request_that_is_cancelled_does_not_fail_the_run():
    class Waiting:
        async def reply(self, request: Request) -> Reply:  # noqa: ARG002 - the protocol
            return await asyncio.Event().wait()  # pyright: ignore[reportReturnType] - it never comes

    endpoint = Endpoint(Waiting(), url="", detect_dialect=detect_plain)
    answer = endpoint.answer(HttpRequest("POST", "/v1/plain", body=body(user("hi"))))
    task = asyncio.ensure_future(answer)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert endpoint.failure is None


MESSAGE = msgspec.json.encode({"type": "response.create", "messages": [user("hi")]})


def inject(kind: str) -> FaultInjector:
    return FaultInjector(Faults((kind,), hold=0.001), lambda _: None)


async def converse(endpoint: Endpoint) -> AsyncIterator[bytes]:
    async for event in endpoint.converse(HttpRequest("GET", "/v1/responses"), MESSAGE):
        yield event


async def test_a_websocket_has_the_pacing_of_the_run(monkeypatch: pytest.MonkeyPatch):
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", wait)
    pacing = Pacing(first_token=5, tokens_per_second=1000)
    endpoint = Endpoint(Scripted("a b c"), url="", detect_dialect=detect_plain, pacing=pacing)
    assert [event async for event in converse(endpoint)] == [b'"a"', b'"b"', b'"c"']
    assert waited == [0.005, 0.001, 0.001]


@pytest.mark.parametrize("kind, sent", [("reset@1", [b'"a"', b'"b"']), ("timeout@1", [])])
async def test_a_fault_of_a_websocket_breaks_it_off(kind: str, sent: list[bytes]):
    source = Scripted("a b c d")
    endpoint = Endpoint(source, url="", detect_dialect=detect_plain, faults=inject(kind))
    events: list[bytes] = []

    async def receive() -> None:
        async for event in converse(endpoint):
            events.append(event)  # noqa: PERF401 - kept when it raises

    with pytest.raises(ConnectionError):
        await receive()
    assert events == sent


async def test_a_page_in_place_of_the_stream_is_an_error_event_of_a_websocket():
    faults = inject("content_type@1")
    endpoint = Endpoint(Scripted("a b"), url="", detect_dialect=detect_plain, faults=faults)
    (event,) = [event async for event in converse(endpoint)]
    assert msgspec.json.decode(event) == {"type": "error", "status": 200}


async def test_what_a_subject_sees_of_its_tools_needs_no_trace():
    endpoint = Endpoint(Scripted("yes"), url="", detect_dialect=detect_plain)
    endpoint.watch_tools({"1": True}, ["find"], {})
    request = HttpRequest("POST", "/v1/plain", body=body(user("hi")))
    assert (await endpoint.answer(request)).status == 200
    assert (endpoint.failed_calls, endpoint.watched_tools) == ({"1": True}, ["find"])


async def test_a_torn_event_is_a_torn_message_of_a_websocket():
    faults = inject("truncate@1")
    endpoint = Endpoint(Scripted("a b c"), url="", detect_dialect=detect_plain, faults=faults)
    assert [event async for event in converse(endpoint)] == [b'"a"', b'"b"', b""]
