"""The correlation id of a run: in the context of its events, and in the agent's environment.

It is a trace id of OpenTelemetry, so that the agent's own spans join those of the run: the agent
gets it as `TRACEPARENT`, and as a header of each reply.
"""

from __future__ import annotations

import os
import re
import secrets
from hashlib import blake2b
from typing import Any

import msgspec

CORRELATION_ID = "correlation_id"  # in the context of events
PARENT_SPAN = "parent_span"  # in the context of events: the span that started offbook
VARIABLE = "OFFBOOK_CORRELATION_ID"
TRACEPARENT = "TRACEPARENT"
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?")
_ZEROS = re.compile(r"0+")


class Correlation(msgspec.Struct, frozen=True):
    """The id of a run, and the span from which it was started, if there is one."""

    id: str
    parent_span: str = ""

    @property
    def traceparent(self) -> str:
        """The context for the agent, in the format of W3C Trace Context."""
        return f"00-{self.id}-{run_span_id(self.id)}-01"

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables for the agent."""
        return {VARIABLE: self.id, TRACEPARENT: self.traceparent}

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a reply to the agent."""
        return {"x-correlation-id": self.id, "traceparent": self.traceparent}

    @property
    def context(self) -> dict[str, Any]:
        """The fields for the context of every event."""
        parent = {PARENT_SPAN: self.parent_span} if self.parent_span else {}
        return {CORRELATION_ID: self.id, **parent}


def new_correlation() -> Correlation:
    """Return a new id, or that of the trace in which this process was started."""
    outer = parse_traceparent(os.environ.get(TRACEPARENT, ""))
    return Correlation(*outer) if outer else Correlation(secrets.token_hex(16))


def parse_traceparent(text: str) -> tuple[str, str] | None:
    """Return the trace id and the span id of a `traceparent`, or None if it is invalid."""
    match = _TRACEPARENT.fullmatch(text.strip().lower())
    if match is None or text.startswith("ff") or any(map(_ZEROS.fullmatch, match.groups())):
        return None
    return match[1], match[2]


def run_span_id(trace_id: str) -> str:
    """Return the id of the span of the run, the parent of the agent's own spans."""
    return blake2b(f"{trace_id}:run".encode(), digest_size=8).hexdigest()
