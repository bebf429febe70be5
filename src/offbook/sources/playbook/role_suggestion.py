"""The `role(…)` line that a message shows for a request that the script did not expect.

Its conditions match this request and none of the requests before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from offbook.exchange.model import Request

LENGTH = 50  # of a text in a condition
MIN_LENGTH = 4  # shorter lines, such as a bracket, say nothing about a request


class RoleConditions(msgspec.Struct, frozen=True):
    """The parts of a request that a role has conditions for."""

    system: str
    first: str
    model: str
    tools: tuple[str, ...]


def read_head(request: Request) -> RoleConditions:
    """Return the parts of a request that a role has conditions for."""
    return RoleConditions(request.system, request.first_prompt, request.model, request.tool_names)


def suggest_role(request: Request, others: Iterable[RoleConditions]) -> str:
    """Return a role that matches this request and no other, or "" if it differs in nothing."""
    head = read_head(request)
    rivals = list(others)
    conditions: list[str] = []
    for name in ("system", "first", "model"):
        # The line that tells the request from most of the others.
        best, left = "", rivals
        for text in _excerpts(getattr(head, name)):
            matched = [rival for rival in rivals if text in getattr(rival, name)]
            if len(matched) < len(left) or (not best and not rivals):
                best, left = text, matched
        if best:
            conditions.append(f"{name}={best!r}")
            rivals = left
        if conditions and not rivals:
            return f'role("side request", [say("…")], {", ".join(conditions)})'
    for tool in head.tools:
        left = [rival for rival in rivals if tool in rival.tools]
        if len(left) < len(rivals):
            conditions.append(f"tools=[{tool!r}]")
            rivals = left
            break
    return "" if rivals else f'role("side request", [say("…")], {", ".join(conditions)})'


def _excerpts(text: str) -> Iterator[str]:
    """Yield the beginnings of the lines of a text."""
    for line in text.splitlines():
        if len(excerpt := line.strip()[:LENGTH].rstrip()) >= MIN_LENGTH:
            yield excerpt
