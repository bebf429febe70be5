"""The errors of a mock file: what they are called, and which status they have on the wire."""

from __future__ import annotations

import msgspec

from offbook.errors import ModelError, UsageError, nearest

STATUSES = {
    "timeout": 504,
    "auth": 401,
    "rate_limit": 429,
    "overloaded": 529,
    "server_error": 500,
    "transient_network": 503,
    "schema_validation": 422,
    "tool_error": 400,
    "tool_rejected": 400,
    "egress_blocked": 403,
    "cancelled": 499,
    "not_found": 404,
    "circuit_open": 503,
    "budget_exceeded": 402,
    "generic": 500,
    "invalid_request": 400,
}
BY_STATUS = {
    401: "auth",
    403: "auth",
    404: "not_found",
    408: "timeout",
    410: "not_found",
    429: "rate_limit",
    500: "server_error",
    502: "server_error",
    503: "overloaded",
    504: "timeout",
    522: "timeout",
    524: "timeout",
    529: "overloaded",
}
BY_REASON = {
    "rate_limit": "rate_limit",
    "timeout": "timeout",
    "network_error": "transient_network",
    "transient_network": "transient_network",
    "server_error": "server_error",
    "provider_error": "server_error",
    "provider_5xx": "server_error",
    "upstream_unavailable": "server_error",
    "auth_failure": "auth",
    "invalid_request": "invalid_request",
    "model_unavailable": "not_found",
}
KINDS = ("transient", "terminal")


class Refusal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the provider answers instead of a reply."""

    category: str | None = None
    message: str | None = None
    status: int | None = None
    kind: str | None = None
    reason: str | None = None
    retry_after_ms: int | None = None

    def check(self) -> None:
        """Refuse what could never be answered."""
        if self.category is not None and self.category not in STATUSES:
            raise UsageError(
                f"unknown error category {self.category!r}", hint=nearest(self.category, STATUSES)
            )
        if self.kind is not None and self.kind not in KINDS:
            raise UsageError(f"unknown error kind {self.kind!r}", hint=nearest(self.kind, KINDS))
        if self.status is not None and not 100 <= self.status <= 999:  # noqa: PLR2004 - three digits
            raise UsageError(f"error.status is an HTTP status code, not {self.status}")
        if self.retry_after_ms is not None and self.retry_after_ms < 0:
            raise UsageError("error.retry_after_ms is not negative")
        if not (self.category or self.status or self.kind or self.reason):
            raise UsageError(
                "an error needs a category, a status, a kind or a reason",
                hint='write {"error": {"category": "rate_limit"}}',
            )

    @property
    def named(self) -> str:
        """Its category: as written, or as its status, its reason or its kind suggest."""
        if self.category:
            return self.category
        if self.status in BY_STATUS:
            return BY_STATUS[self.status]
        if self.reason in BY_REASON:
            return BY_REASON[self.reason]
        return "server_error" if self.kind == "transient" else "generic"

    @property
    def text(self) -> str:
        """Its message, or one put together from the rest."""
        if self.message is not None:
            return self.message
        first = "mock LLM error" if self.status is None else f"HTTP {self.status} mock LLM error"
        why = "/".join(filter(None, (self.kind, self.reason)))
        return f"{first} ({why})" if why else first

    def error(self) -> ModelError:
        """The error to raise."""
        after = self.retry_after_ms
        return ModelError(
            self.text,
            status=self.status or STATUSES[self.named],
            category=self.named,
            retry_after=None if after is None else after / 1000,
            details={k: v for k, v in (("kind", self.kind), ("reason", self.reason)) if v},
        )
