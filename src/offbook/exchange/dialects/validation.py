"""Validation of requests: what a provider rejects is rejected here, too.

Each rule has a name and can be switched off (`lenient`). The checks return a `Violation`; each
dialect turns it into an error with the provider's own message by `rejection`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from offbook.errors import ModelError, UsageError, did_you_mean
from offbook.exchange.messages import Message, ToolCall, ToolResult
from offbook.exchange.model import Tool

RULES = {
    "orphan_result": "a tool result without the call that it answers",
    "missing_result": "a tool call without its result",
    "duplicate_id": "two calls, or two results, with one id",
    "unknown_role": "a message with a role that the provider does not know",
    "bad_tool_schema": "a tool whose parameters are not an object",
    "missing_field": "a missing field that the provider requires",
    "missing_max_tokens": "a missing token limit where the provider requires one",
    "altered_thinking": "a thinking block that differs from the one the model sent",
    "unknown_previous": "a continuation of an unknown reply",
}
ALL_RULES = frozenset(RULES)


def rules_except(lenient: Iterable[str]) -> frozenset[str]:
    """Return all rules except these."""
    if isinstance(lenient, str):
        raise UsageError(
            f"lenient: expected a list of rules, got {lenient!r}", hint="write lenient=[…]"
        )
    disabled = list(lenient)
    for name in disabled:
        if name not in RULES:
            raise UsageError(f"unknown rule {name!r}", hint=did_you_mean(name, RULES))
    return ALL_RULES.difference(disabled)


class Violation(msgspec.Struct, frozen=True):
    """A violated rule, the index of the message or tool, and the ids or names concerned."""

    rule: str
    index: int
    ids: tuple[str, ...] = ()


def rejection(rule: str, message: str, *, status: int = 400, **details: str) -> ModelError:
    """Return the provider's error for a request that violates this rule."""
    return ModelError(message, status=status, details={"rule": rule, **details})


class CallPairing:
    """Matches tool calls with their results, in the order of a conversation.

    `names` has the tool name of every call by its id, and `pending` the index of the message with
    each call that has no result yet.
    """

    __slots__ = ("_rules", "answered", "names", "pending")

    def __init__(self, rules: frozenset[str], names: Mapping[str, str] = {}) -> None:
        self._rules = rules
        self.names = dict(names)
        self.pending: dict[str, int] = {}
        self.answered: set[str] = set()

    def add_call(self, call_id: str, name: str, index: int) -> Violation | None:
        """Add a call. An id may be used again after its result."""
        if call_id in self.pending and "duplicate_id" in self._rules:
            return Violation("duplicate_id", index, (call_id,))
        self.names[call_id] = name
        self.pending[call_id] = index
        return None

    def add_result(self, call_id: str, index: int) -> Violation | None:
        """Match a result with its call."""
        if self.pending.pop(call_id, None) is not None:
            self.answered.add(call_id)
            return None
        rule = "duplicate_id" if call_id in self.answered else "orphan_result"
        return Violation(rule, index, (call_id,)) if rule in self._rules else None

    def close(self) -> Violation | None:
        """End a step of the conversation: every call must have its result by now."""
        if self.pending and "missing_result" in self._rules:
            index = next(iter(self.pending.values()))
            return Violation("missing_result", index, tuple(self.pending))
        self.pending.clear()
        self.answered.clear()
        return None


def find_unpaired_call(
    messages: Sequence[Message], rules: frozenset[str], *, adjacent: bool = True
) -> Violation | None:
    """Return the first call without result, result without call, or duplicate id.

    `adjacent` results must follow directly after the message with their calls; otherwise they may
    be anywhere after it.
    """
    pairing = CallPairing(rules)
    violation = None
    for index, message in enumerate(messages):
        if message.role == "tool":
            for block in message.blocks:
                if isinstance(block, ToolResult) and violation is None:
                    violation = pairing.add_result(block.call_id, index)
        else:
            # Any other message ends the step in which results are allowed.
            if adjacent and (pairing.pending or pairing.answered):
                violation = pairing.close()
            if message.role == "assistant":
                for block in message.blocks:
                    if isinstance(block, ToolCall) and violation is None:
                        violation = pairing.add_call(block.id, block.name, index)
        if violation is not None:
            return violation
    return pairing.close()


def find_bad_schema(tools: Sequence[Tool], rules: frozenset[str]) -> Violation | None:
    """Return the first function whose parameters are not an object."""
    if "bad_tool_schema" not in rules:
        return None
    for index, tool in enumerate(tools):
        # Only functions have a schema of parameters; other tools keep options there.
        if tool.kind == "function" and tool.schema and tool.schema.get("type") != "object":
            return Violation("bad_tool_schema", index, (tool.name,))
    return None
