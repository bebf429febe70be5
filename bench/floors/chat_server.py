"""A scripted chat server in bare Python: what a request to `offbook serve` costs without Offbook.

    python bench/floors/chat_server.py PATTERN TEXT PORT

It does what the work requires, with the same event loop, parser and JSON library, and nothing else:
typed messages, a reply that is chosen by the text of the conversation, the digest of each message
after those before it, and a completion, or the same chunks of a stream, with a new id and the
usage. It compares no conversation, checks no request, and knows one path.
"""

from __future__ import annotations

import asyncio
import sys
from hashlib import blake2b
from typing import Any, cast
from zlib import crc32

import httptools
import msgspec
import uvloop

PATTERN, TEXT, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])
EPOCH = 1_700_000_000
FOUND = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\nx-request-id: req_%b\r\n"
encode = msgspec.json.encode


class ToolCall(msgspec.Struct):
    """A tool call."""

    id: str = ""
    function: dict[str, str] = {}


class Message(msgspec.Struct, omit_defaults=True):
    """A message of a request, or the one of a reply."""

    role: str
    content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class Body(msgspec.Struct):
    """A request."""

    model: str
    messages: list[Message]
    tools: msgspec.Raw = msgspec.Raw()
    stream: bool = False


class Choice(msgspec.Struct):
    """The choice of a completion."""

    message: Message
    index: int = 0
    finish_reason: str = "stop"


class Completion(msgspec.Struct):
    """A completion."""

    id: str
    model: str
    choices: list[Choice]
    usage: dict[str, int]
    object: str = "chat.completion"
    created: int = EPOCH


REPLY = Message("assistant", TEXT)
decode = msgspec.json.Decoder(Body).decode
known: dict[str, Message] = {}  # the replies of the run, by the digest of what they answer


def split_stream(model: str) -> list[bytes]:
    """Return the chunks of the stream, framed and split at the id."""
    blank = "\0" * 41
    deltas: list[Any] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word} for word in TEXT.replace(" ", "\n ").split("\n")]
    chunks = [
        {"id": blank, "object": "chat.completion.chunk", "created": EPOCH, "model": model}
        | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    chunks.append({**chunks[0], "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    events = [b"data: %b\n\n" % encode(chunk) for chunk in chunks] + [b"data: [DONE]\n\n"]
    escaped = encode(blank)[1:-1]
    # The lengths are those with an id in place of the escaped blanks.
    more = len(escaped) - len(blank)
    sizes = [len(event) - more * (escaped in event) for event in events]
    framed = [b"%x\r\n%b\r\n" % pair for pair in zip(sizes, events, strict=True)]
    return b"".join([*framed, b"0\r\n\r\n"]).split(escaped)


streams: dict[str, list[bytes]] = {}


def answer(raw: bytes) -> bytes:
    """Return the response to a request."""
    body = decode(raw)
    texts: list[str] = []
    digest = ""
    for message in body.messages:
        texts += (message.content or "", message.role)
        digest = blake2b(digest.encode() + encode(message), digest_size=12).hexdigest()
    text = "\n".join(texts)
    if PATTERN not in text:
        return b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"
    known[digest] = REPLY
    if len(known) > 1024:
        del known[next(iter(known))]
    id_ = f"chatcmpl-{digest}{crc32(body.model.encode()):08x}"
    token = id_.encode()
    if body.stream:
        parts = streams.get(body.model)
        if parts is None:
            parts = streams[body.model] = split_stream(body.model)
        head = FOUND % (b"text/event-stream; charset=utf-8", token[9:])
        return head + b"transfer-encoding: chunked\r\n\r\n" + token.join(parts)
    size, words = len(text), len(TEXT) // 4
    usage = {"prompt_tokens": size, "completion_tokens": words, "total_tokens": size + words}
    completion = encode(Completion(id_, body.model, [Choice(REPLY)], usage))
    head = FOUND % (b"application/json", token[9:])
    return b"%bcontent-length: %d\r\n\r\n%b" % (head, len(completion), completion)


class Connection(asyncio.Protocol):
    """One client."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to read."""
        self.transport = cast("asyncio.Transport", transport)
        self.parser = httptools.HttpRequestParser(self)
        self.on_message_begin()

    def data_received(self, data: bytes) -> None:
        """Parse what arrived."""
        self.parser.feed_data(data)

    # The parser calls these.

    def on_message_begin(self) -> None:
        """Start a request."""
        self.url, self.body = b"", bytearray()
        self.headers: dict[bytes, bytes] = {}

    def on_url(self, url: bytes) -> None:
        """Keep the path."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        self.headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        self.body += body

    def on_message_complete(self) -> None:
        """Answer the request."""
        self.transport.write(answer(bytes(self.body)))


async def main() -> None:
    """Serve until the process is killed."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", PORT)
    await server.serve_forever()


uvloop.run(main())
