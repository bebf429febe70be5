"""The turns of a request become messages, and are held to the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offbook.exchange.messages import AnyBlock, Message, Text, Thinking, ToolCall, ToolResult
from offbook.exchange.rules import reject

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offbook.exchange.dialects.anthropic import forms
    from offbook.exchange.foreign import Verbatim
    from offbook.exchange.reply import Reply

from offbook.exchange.dialects.anthropic.decode import read_block, read_blocks, read_content
from offbook.exchange.dialects.anthropic.seals import unseal_thought


class Walk:
    """Goes through the turns of a request, makes messages of them and holds them to the rules.

    It begins behind what was read before, or behind the reply that a thread goes on from.
    """

    def __init__(
        self, rules: frozenset[str], before: forms.Read, reply: Reply | None, seen: Verbatim
    ) -> None:
        self.names: dict[str, str] = dict(before.names)
        self._rules = rules
        self._seen = seen
        self._messages: list[Message] = []
        self._waiting: dict[str, int] = {}
        self._role = before.history[-1].role if before.history else ""
        if reply is not None:
            self._expect(reply.calls, -1)

    def read(self, turns: list[forms.Turn]) -> list[Message]:
        for at, turn in enumerate(turns):
            role = turn.role
            if role == "assistant":
                self._hear_model(at, turn.content)
            elif role == "system":
                place = ("messages", at, "content")
                self._add("system", read_blocks(turn.content, self._seen, place))
            elif role == "user" or "unknown_role" not in self._rules:
                self._hear_user(at, turn.content)
            else:
                raise reject(
                    "unknown_role",
                    f'messages: Unexpected role "{role}". Allowed roles are "user" or "assistant"',
                )
        self._settle()
        return self._messages

    def _add(self, role: Any, blocks: Sequence[AnyBlock]) -> None:
        self._messages.append(Message(role, tuple(blocks)))
        self._role = role

    def _hear_user(self, at: int, content: str | list[forms.Part]) -> None:
        if isinstance(content, str):
            if self._waiting:
                self._settle()
            self._add("user", (Text(content),))
            return
        said: list[AnyBlock] = []
        answered = False
        for place, part in enumerate(content):
            if part.type == "tool_result":
                self._add("tool", (self._answer(part, at, place),))
                answered = True
                continue
            if self._waiting and "missing_result" in self._rules:  # results come first
                self._settle()
            said.append(self._read(part, at, place))
        if said or not answered:
            self._add("user", said)

    def _hear_model(self, at: int, content: str | list[forms.Part]) -> None:
        if self._waiting and self._role != "assistant":
            self._settle()
        if isinstance(content, str):
            self._add("assistant", (Text(content),))
            return
        blocks: list[AnyBlock] = []
        for place, part in enumerate(content):
            if part.type == "thinking":
                blocks.append(self._unseal(part, at, place))
                continue
            blocks.append(self._read(part, at, place))
        self._add("assistant", blocks)
        self._expect((block for block in blocks if isinstance(block, ToolCall)), at)

    def _read(self, part: forms.Part, at: int, place: int) -> AnyBlock:
        return read_block(part, self._seen, ("messages", at, "content", place))

    def _expect(self, calls: Iterable[ToolCall], at: int) -> None:
        for call in calls:
            if call.id in self.names and "duplicate_id" in self._rules:
                raise reject("duplicate_id", "messages: `tool_use` ids must be unique")
            self.names[call.id] = call.name
            self._waiting[call.id] = at

    def _answer(self, part: forms.Part, at: int, place: int) -> ToolResult:
        call_id = part.tool_use_id
        if self._waiting.pop(call_id, None) is None:
            self._object(call_id, at, place)
        return ToolResult(
            call_id,
            read_content(part.content, self._seen, ("messages", at, "content", place, "content")),
            part.is_error is True,
            self.names.get(call_id, ""),
        )

    def _object(self, call_id: str, at: int, place: int) -> None:
        twice = self._role == "tool"
        where = f"messages.{at}.content.{place}"
        if twice and "duplicate_id" in self._rules and call_id in self.names:
            raise reject(
                "duplicate_id",
                f"{where}: each tool_use must have a single result. Found multiple `tool_result`"
                f" blocks with id: {call_id}",
            )
        if "orphan_result" in self._rules:
            raise reject(
                "orphan_result",
                f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each"
                " `tool_result` block must have a corresponding `tool_use` block in the previous"
                " message.",
            )

    def _settle(self) -> None:
        """Nothing may go on before every call has its result."""
        if self._waiting and "missing_result" in self._rules:
            at = next(iter(self._waiting.values()))
            raise reject(
                "missing_result",
                f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately"
                f" after: {', '.join(self._waiting)}. Each `tool_use` block must have a"
                " corresponding `tool_result` block in the next message.",
            )
        self._waiting.clear()

    def _unseal(self, part: forms.Part, at: int, place: int) -> Thinking:
        thought = unseal_thought(part.thinking, part.signature or "")
        if "altered_thinking" in self._rules:
            where = f"messages.{at}.content.{place}"
            if part.signature is None:
                raise reject("altered_thinking", f"{where}.thinking.signature: Field required")
            if thought is None or not part.signature:
                raise reject(
                    "altered_thinking", f"{where}: Invalid `signature` in `thinking` block"
                )
        return thought or Thinking(part.thinking, part.signature or "")


def blame_turns(turns: list[forms.Turn]) -> str:
    """What became of the thoughts in the last of the model's turns."""
    at = max(at for at, turn in enumerate(turns) if turn.role == "assistant")
    content = turns[at].content
    first = "text" if isinstance(content, str) or not content else content[0].type
    if first not in {"thinking", "redacted_thinking"}:
        return (
            f"messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found"
            f" `{first}`. When `thinking` is enabled, a final `assistant` message must start with"
            " a thinking block (preceeding the lastmost set of `tool_use` and `tool_result`"
            " blocks)."
        )
    return (
        f"messages.{at}.content.0: `thinking` or `redacted_thinking` blocks in the latest"
        " assistant message cannot be modified. These blocks must remain as they were in the"
        " original response."
    )
