"""The correlation id of a run: in the context of its events, and in the agent's environment.

It is a trace id of OpenTelemetry. The agent gets it as the variable `TRACEPARENT` and as a header
of each reply, so that its own spans join those of the run.
"""

from __future__ import annotations

import re
import secrets
from hashlib import blake2b
from typing import Any

import msgspec

CORRELATION_ID = "correlation_id"  # in the context of events
VARIABLE = "OFFBOOK_CORRELATION_ID"
HEADER = "x-offbook-correlation-id"
TRACEPARENT = "traceparent"
_TRACEPARENT = r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?"


class Correlation(msgspec.Struct, frozen=True):
    """The id of a run."""

    id: str

    @property
    def traceparent(self) -> str:
        """The context of the run's span, in the format of W3C Trace Context."""
        return f"00-{self.id}-{run_span_id(self.id)}-01"

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables for the agent."""
        return {VARIABLE: self.id, TRACEPARENT.upper(): self.traceparent}

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a reply to the agent."""
        return {HEADER: self.id, TRACEPARENT: self.traceparent}

    @property
    def context(self) -> dict[str, Any]:
        """The field for the context of every event."""
        return {CORRELATION_ID: self.id}


def new_correlation() -> Correlation:
    """Return a new id."""
    return Correlation(secrets.token_hex(16))


def parse_traceparent(text: str) -> tuple[str, str] | None:
    """Return the trace id and the span id of a `traceparent`, or None if it is invalid."""
    match = re.fullmatch(_TRACEPARENT, text.strip().lower())
    if match is None or not int(match[1], 16) or not int(match[2], 16):
        return None
    return match[1], match[2]


def run_span_id(trace_id: str) -> str:
    """Return the id of the span of a run, the parent of the agent's own spans."""
    return blake2b(f"{trace_id}:run".encode(), digest_size=8).hexdigest()
