"""Calls that known clients make beside the conversation: titles, routers, probes, prewarms.

A script is about the agent's work, so these get an answer of their own, and the trace shows it:
the reply's role is `auxiliary (…)`. A role of the playbook that fits comes first.

Each entry is known by words that no other request of the client has. To add a client, add its
entries to `CALLS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from offbook.exchange.messages import Text
from offbook.exchange.model import Reply

if TYPE_CHECKING:
    from offbook.exchange.model import Request

TITLE = "A rehearsal"


class SideRequest(msgspec.Struct, frozen=True):
    """One kind of call: what must be in it, all of it, and what it is told.

    Such a call offers no tools. `prompt` is the whole of its only message, the others are
    contained; `agent` begins the client's user agent.
    """

    name: str
    answer: str
    agent: str = ""
    system: str = ""
    model: str = ""
    prompt: str = ""

    def made(self, request: Request) -> bool:
        """Whether this request is such a call."""
        return (
            self.system in request.system
            and self.model in request.model
            and str(request.metadata.get("user-agent", "")).startswith(self.agent)
            and (not self.prompt or (len(request.messages) == 1 and request.prompt == self.prompt))
        )


SIDE_REQUESTS = (
    SideRequest(
        "Gemini CLI router",
        '{"complexity_reasoning": "a rehearsal", "complexity_score": 50}',
        agent="GeminiCLI",
        system="specialized Task Routing AI",
    ),
    SideRequest(
        "Gemini CLI next speaker",
        '{"reasoning": "a rehearsal", "next_speaker": "user"}',
        agent="GeminiCLI",
        prompt="",
        system="who should logically speak next",
    ),
    SideRequest(
        "opencode title", TITLE, system="You are a title generator. You output ONLY a thread title"
    ),
    SideRequest("inspect probe", "hello, world", prompt="Please say 'hello, world'"),
    SideRequest("Claude Code quota", "ok", agent="claude-cli", prompt="quota"),
    SideRequest("Claude Code warm-up", "ok", agent="claude-cli", prompt="Warmup"),
    SideRequest(
        "Claude Code topic",
        '{"isNewTopic": false, "title": null}',
        agent="claude-cli",
        system="indicates a new conversation topic",
    ),
    SideRequest("Claude Code small model", TITLE, agent="claude-cli", model="haiku"),
)


def answer_prewarm(request: Request) -> Reply | None:
    """The empty answer to a call that wants none; None for anything else."""
    if request.metadata.get("generate") is not False:
        return None
    return Reply(model=request.model, role="auxiliary (prewarm)")


_USER_AGENTS = tuple({call.agent for call in SIDE_REQUESTS if call.agent})
_ANY_AGENT = tuple(call for call in SIDE_REQUESTS if not call.agent)


def answer_side_request(request: Request) -> Reply | None:
    """The answer to an auxiliary call, or None for anything else."""
    if (warmed := answer_prewarm(request)) is not None:
        return warmed
    if request.tools or not request.metadata:
        return None
    agent = str(request.metadata.get("user-agent", ""))
    for known in SIDE_REQUESTS if agent.startswith(_USER_AGENTS) else _ANY_AGENT:
        if known.made(request):
            blocks = (Text(known.answer),)
            return Reply(blocks, model=request.model, role=f"auxiliary ({known.name})")
    return None
