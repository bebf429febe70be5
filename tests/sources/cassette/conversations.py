"""Small conversations to record and replay, and a model that counts its requests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbook.exchange import (
    History,
    Message,
    Reply,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
    user,
)
from offbook.sources.cassette import Cassette, RecordedResponse, Recording

if TYPE_CHECKING:
    from collections.abc import Iterable

TOOLS = (Tool("find_order", "Finds an order.", {"type": "object"}),)
SEED = """\
# cassette: auth_flow.yaml
# recorded: 2024-01-13T10:00:00Z
# backend: claude
# iterations: 3

interactions:
  - request:
      hat: planner
      prompt_hash: sha256:abc123...
      prompt_preview: "## Task\\nImplement user auth..."
    response:
      output: |
        <event topic="build.task">
        ## Task
        Create authentication module
        </event>
      exit_code: 0
      tokens: 2500
      duration_ms: 3200

  - request:
      hat: builder
      prompt_hash: sha256:def456...
      prompt_preview: "## Build Task\\nCreate auth..."
    response:
      output: |
        <event topic="build.done">
        Implemented OAuth2 flow
        </event>
      exit_code: 0
      tokens: 4200
      duration_ms: 5100

metadata:
  total_tokens: 12500
  total_cost_dollars: 0.15
  termination_reason: CompletionPromise
"""


class Counting:
    """A model that counts its requests; without scripted replies it answers with the count."""

    def __init__(self, *replies: Reply | Exception) -> None:
        self.replies = list(replies)
        self.asked = 0

    async def reply(self, _request: Request, /) -> Reply:
        self.asked += 1
        if not self.replies:
            return Reply((Text(f"answer {self.asked}"),), usage=Usage(10, 2))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def ask(*texts: str, hat: str = "", **more: Any) -> Request:
    """Return a request whose messages are from the user and the model in turn."""
    roles = ("user", "assistant")
    messages = [Message(roles[i % 2], (Text(text),)) for i, text in enumerate(texts)]
    metadata = {"hat": hat} if hat else {}
    return Request(History(messages), model="gpt-5", metadata=metadata, **more)


def looking_up(call_id: str, *, found: str = "it is blue") -> list[Request]:
    """Return the three requests of a conversation with a tool call, as an agent sends them."""
    first = History([user("Refund order 7")])
    call = ToolCall(call_id, "find_order", {"id": 7})
    second = History(
        [
            *first,
            Message("assistant", (Text("let me look"), call)),
            Message("tool", (ToolResult(call_id, (Text(found),)),)),
        ]
    )
    third = History([*second, Message("assistant", (Text("answer 2"),)), user("thanks")])
    return [Request(h, "You help.", TOOLS, "gpt-5") for h in (first, second, third)]


LOOK = Reply(
    (Text("let me look"), ToolCall("toolu_01", "find_order", {"id": 7})),
    "tool_use",
    Usage(20, 9),
)


async def record(
    path: Path, requests: Iterable[Request], *replies: Reply | Exception, **options: Any
) -> Counting:
    """Record these requests to a counting model."""
    source = Counting(*replies)
    with Recording(source, path, **options) as recording:
        for request in requests:
            await answer(recording, request)
    return source


async def answer(source: Any, request: Request) -> str:
    """Return the text of a source's reply, or of the provider's error."""
    from offbook.errors import ModelError

    try:
        return (await source.reply(request)).text
    except ModelError as error:
        return str(error)


async def replay(path: Path, requests: Iterable[Request], **options: Any) -> list[str]:
    """Return the texts of the replies that a replay gives to these requests."""
    source = Cassette(path, **options)
    return [await answer(source, request) for request in requests]


def record_prompts(path: Path, prompts: Iterable[tuple[str, str]], **options: Any) -> None:
    """Record the outputs of a command for these pairs of hat and prompt."""
    with Recording(Counting(), path, **options) as recording:
        for number, (hat, prompt) in enumerate(prompts, 1):
            recording.record_output(
                prompt, RecordedResponse(output=f"output {number}\n", tokens=number), hat=hat
            )


def calling_in_sequence(count: int, prefix: str = "toolu") -> tuple[list[Request], list[Reply]]:
    """Return the requests and replies of a conversation with one tool call after another."""
    replies = [
        Reply((ToolCall(f"{prefix}_{n}", "find_order", {"id": n}),), "tool_use")
        for n in range(count)
    ]
    messages = [user("Refund all orders")]
    requests = [Request(History(messages), "You help.", TOOLS, "gpt-5")]
    for number, reply in enumerate(replies):
        result = ToolResult(f"{prefix}_{number}", (Text(f"order {number}"),))
        messages = [*messages, Message("assistant", reply.blocks), Message("tool", (result,))]
        requests.append(Request(History(messages), "You help.", TOOLS, "gpt-5"))
    return requests, [*replies, Reply((Text("done"),))]
