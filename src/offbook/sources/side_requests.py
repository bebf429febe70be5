"""Side requests of known clients: titles, routers, quota probes, prewarms.

A script describes the agent's work, so these requests take no step of it. They get a fixed reply,
which the trace marks with the role `auxiliary (…)`. A matching role of the playbook wins over it.

Each entry matches on words that no other request of its client contains. To support another
client, add its entries to `SIDE_REQUESTS`.
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
    """One kind of side request: its reply, and the conditions that must all hold.

    A side request offers no tools. `agent` is a prefix of the user agent, `prompt` the whole text
    of the only message; `system` and `model` are contained in the request's.
    """

    name: str
    answer: str
    agent: str = ""
    system: str = ""
    model: str = ""
    prompt: str = ""

    def matches(self, request: Request) -> bool:
        """Return whether the request is of this kind."""
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
_USER_AGENTS = tuple({entry.agent for entry in SIDE_REQUESTS if entry.agent})
_ANY_AGENT = tuple(entry for entry in SIDE_REQUESTS if not entry.agent)


def answer_prewarm(request: Request) -> Reply | None:
    """Return an empty reply if the client only warms up (`generate: false`), else None."""
    if request.metadata.get("generate") is not False:
        return None
    return Reply(model=request.model, role="auxiliary (prewarm)")


def answer_side_request(request: Request) -> Reply | None:
    """Return the fixed reply to a side request, or None for a request of the agent's work."""
    if (prewarm := answer_prewarm(request)) is not None:
        return prewarm
    # Every reply passes here, so rule out most requests without a look at the entries.
    if request.tools or not request.metadata:
        return None
    user_agent = str(request.metadata.get("user-agent", ""))
    for entry in SIDE_REQUESTS if user_agent.startswith(_USER_AGENTS) else _ANY_AGENT:
        if entry.matches(request):
            blocks = (Text(entry.answer),)
            return Reply(blocks, model=request.model, role=f"auxiliary ({entry.name})")
    return None
