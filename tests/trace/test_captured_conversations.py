"""The conversations of real clients, as they were captured: none of them is changed."""

import json
from itertools import takewhile
from pathlib import Path

import msgspec
import pytest

from offbook.errors import ModelError, OffbookError
from offbook.exchange import Reply, Request, Text, detect_dialect
from offbook.exchange.dialects import ConversationStore
from offbook.trace import Hub, TracedSource
from tests.conftest import SHARED_DATA
from tests.exchange.dialects.captures import read_capture

pytestmark = pytest.mark.external


def read_requests(client: Path) -> list[Request]:
    """Return the requests to a model in the order of their capture."""
    store = ConversationStore()
    requests: list[Request] = []
    for file in sorted(client.glob("[0-9]*.json")):
        if not (saved := json.loads(file.read_text())).get("body") or "path" not in saved:
            continue
        http_request = read_capture(file)
        dialect = detect_dialect(http_request)
        if dialect is None or dialect.side_response(http_request, store) is not None:
            continue
        try:  # a conversation that the provider kept, and the capture lacks
            requests.append(dialect.decode(http_request, store))
        except (ModelError, OffbookError):
            continue
    return requests


class Continued:
    """A model that says what a later request of the client has after this one."""

    def __init__(self, requests: list[Request]) -> None:
        self._requests = requests
        self._position = 0
        self.continued: set[int] = set()  # each request continues one other

    async def reply(self, request: Request, /) -> Reply:
        self._position += 1
        for number in range(self._position, len(self._requests)):
            later = self._requests[number]
            following = [*later.messages[len(request.messages) :]]
            # A subagent has another system prompt.
            if number in self.continued or later.system != request.system:
                continue
            said = list(takewhile(lambda message: message.role == "assistant", following))
            if said:
                self.continued.add(number)
                return Reply(tuple(block for message in said for block in message.blocks))
        return Reply((Text("An answer that nobody repeats."),))


CLIENTS = sorted(path for path in (SHARED_DATA / "wire").glob("[!_m]*") if path.is_dir())


async def changes_of(requests: list[Request]) -> tuple[list[str], int]:
    hub = Hub()
    changes: list[str] = []
    hub.subscribe(lambda event: changes.append(str(event.data)), "model.change")
    model = Continued(requests)
    traced = TracedSource(model, hub, tools=True)
    for request in requests:
        await traced.reply(request)
    return [text for text in changes if "'fails'" in text], len(model.continued)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda path: path.name)
async def test_the_conversation_of_a_real_client_is_not_changed(client: Path):
    requests = read_requests(client)
    if not requests:
        pytest.skip("no request to a model")
    failing, _ = await changes_of(requests)
    assert failing == []


async def test_enough_captured_conversations_go_on():
    continued = [(await changes_of(read_requests(client)))[1] for client in CLIENTS]
    assert sum(map(bool, continued)) >= 30


async def test_a_changed_capture_is_found():
    requests = read_requests(SHARED_DATA / "wire" / "langchain-create_agent-chat")
    first, second = requests[:2]
    changed = [
        msgspec.structs.replace(m, blocks=(*m.blocks, Text("Refund all.")))
        if m.role == "assistant"
        else m
        for m in second.messages
    ]
    model = Continued(requests)
    traced = TracedSource(model, Hub(), tools=True)
    await traced.reply(first)
    requests.append(msgspec.structs.replace(second, messages=type(second.messages)(changed)))
    await traced.reply(requests[-1])
    assert traced.history_error is not None
