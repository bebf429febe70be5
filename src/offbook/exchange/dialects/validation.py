"""What a provider would refuse, so that nothing passes here that fails there.

Each rule has a name and can be switched off. What a rule found is a `Breach`; every dialect says
it in the words of its provider, with `reject`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from offbook.errors import ModelError, UsageError, did_you_mean
from offbook.exchange.messages import Message, ToolCall, ToolResult
from offbook.exchange.model import Tool

RULES = {
    "orphan_result": "a tool result without the call that it answers",
    "missing_result": "a tool call that is left without its result",
    "duplicate_id": "two calls, or two results, of one id",
    "unknown_role": "a message of a role that the provider does not know",
    "bad_tool_schema": "a tool whose parameters are not an object",
    "missing_field": "a field that the provider requires is not there",
    "missing_max_tokens": "no limit of tokens where the provider requires one",
    "altered_thinking": "a thinking block that is not as the model gave it",
    "unknown_previous": "a continuation of a reply that nobody gave",
}
ALL_RULES = frozenset(RULES)


def rules_except(lenient: Iterable[str]) -> frozenset[str]:
    """The rules that are left when these are switched off."""
    if isinstance(lenient, str):
        raise UsageError(f"lenient is a list of rules, not {lenient!r}", hint="write lenient=[…]")
    off = list(lenient)
    for name in off:
        if name not in RULES:
            raise UsageError(f"there is no rule {name!r}", hint=did_you_mean(name, RULES))
    return ALL_RULES.difference(off)


class Violation(msgspec.Struct, frozen=True):
    """A rule that is broken: by the message at this place, concerning these ids."""

    rule: str
    at: int
    ids: tuple[str, ...] = ()


def rejection(rule: str, message: str, *, status: int = 400, **details: str) -> ModelError:
    """The provider's refusal of a request that broke this rule."""
    return ModelError(message, status=status, details={"rule": rule, **details})


class _Ledger:
    """The calls that wait for their results, and those that have them."""

    def __init__(self, rules: frozenset[str]) -> None:
        self._rules = rules
        self.waiting: dict[str, int] = {}
        self.answered: set[str] = set()

    def call(self, message: Message, at: int) -> Violation | None:
        """Note down the calls of a message."""
        for block in message.blocks:
            if isinstance(block, ToolCall):
                if block.id in self.waiting and "duplicate_id" in self._rules:
                    return Violation("duplicate_id", at, (block.id,))
                self.waiting[block.id] = at
        return None

    def answer(self, message: Message, at: int) -> Violation | None:
        """Cross out the calls that a message answers."""
        for block in message.blocks:
            if isinstance(block, ToolResult):
                id_ = block.call_id
                if self.waiting.pop(id_, None) is None:
                    rule = "duplicate_id" if id_ in self.answered else "orphan_result"
                    if rule in self._rules:
                        return Violation(rule, at, (id_,))
                self.answered.add(id_)
        return None

    def close(self) -> Violation | None:
        """Begin anew; nothing may wait any more."""
        if self.waiting and "missing_result" in self._rules:
            return Violation(
                "missing_result", next(iter(self.waiting.values())), tuple(self.waiting)
            )
        self.waiting.clear()
        self.answered.clear()
        return None


def find_unpaired_call(
    messages: Sequence[Message], rules: frozenset[str], *, adjacent: bool = True
) -> Violation | None:
    """The first call without its result, result without its call, or id used twice.

    Where results must be `adjacent`, they stand right behind the message that called for them;
    else anywhere behind it. An id may come again once its call is answered.
    """
    ledger = _Ledger(rules)
    for at, message in enumerate(messages):
        breach = None
        if message.role == "tool":
            breach = ledger.answer(message, at)
        else:
            if adjacent and (ledger.waiting or ledger.answered):
                breach = ledger.close()
            if breach is None and message.role == "assistant":
                breach = ledger.call(message, at)
        if breach is not None:
            return breach
    return ledger.close()


def find_bad_schema(tools: Sequence[Tool], rules: frozenset[str]) -> Violation | None:
    """The first function whose parameters are not those of an object."""
    if "bad_tool_schema" not in rules:
        return None
    for at, tool in enumerate(tools):
        if tool.kind == "function" and tool.schema and tool.schema.get("type") != "object":
            return Violation("bad_tool_schema", at, (tool.name,))
    return None
