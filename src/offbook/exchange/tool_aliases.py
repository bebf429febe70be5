"""The same tool under two names: the script's, and the agent's own.

A script that says `call("shell", {"command": "ls"})` fits every agent that has a shell, whatever it
calls it. What goes to the agent has its own names; what is told, and what the source is asked, has
those of the script.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import UsageError
from offbook.exchange.messages import AnyBlock, History, Message, ToolCall, ToolResult
from offbook.exchange.model import Reply, Request, Tool

if TYPE_CHECKING:
    from offbook.exchange.model import ModelSource


class ToolAlias(msgspec.Struct, frozen=True):
    """What an agent calls a tool, and its parameters where they have other names there."""

    tool: str
    params: Mapping[str, str] = {}

    def spell(self, call: ToolCall) -> ToolCall:
        """The same call in the agent's words."""
        arguments = {self.params.get(key, key): value for key, value in call.arguments.items()}
        return msgspec.structs.replace(call, name=self.tool, arguments=arguments)


ToolAliases = Mapping[str, ToolAlias]

CLAUDE_CODE_ALIASES: ToolAliases = {  # what Claude Code has, also where an SDK runs it
    "shell": ToolAlias("Bash"),
    "bash": ToolAlias("Bash"),
    "read": ToolAlias("Read", {"path": "file_path"}),
    "write": ToolAlias("Write", {"path": "file_path"}),
    "edit": ToolAlias("Edit", {"path": "file_path", "old": "old_string", "new": "new_string"}),
}


def parse_tool_aliases(
    given: Mapping[str, str | ToolAlias] | None, known: ToolAliases
) -> dict[str, ToolAlias]:
    """The names that somebody gave; one that leads to a known word means what that word means."""
    found: dict[str, ToolAlias] = {}
    for word, name in (given or {}).items():
        if isinstance(cast("object", name), str) and name:
            found[word] = known.get(cast("str", name), ToolAlias(cast("str", name)))
        elif isinstance(name, ToolAlias):
            found[word] = name
        else:
            raise UsageError(
                f"tool_aliases[{word!r}]: expected a tool name or a ToolAlias, got {name!r}",
                hint=f'write tool_aliases={{{word!r}: "…"}}, or ToolAlias("…", {{…}})',
            )
    return found


class AliasedSource:
    """A source that speaks in the script's names to an agent that has its own.

    `given` names always hold; `known` ones, which the agent brings, only where the script has the
    word: otherwise its tools keep their own names. A word that the agent itself offers is its own.
    """

    def __init__(self, source: ModelSource, *, given: ToolAliases, known: ToolAliases) -> None:
        self._source = source
        self._given = given
        self._known = known
        self._names: dict[str, ToolAlias] = dict(given)
        self._plain: set[str] = set()
        self._meant: dict[str, ToolCall] = {}

    @property
    def words(self) -> set[str]:
        """All words that can be called besides the agent's own."""
        return {*self._given, *self._known}

    def expect(self, called: Iterable[str]) -> None:
        """Learn which words the script has."""
        for word in called:
            if word in self._known:
                self._names.setdefault(word, self._known[word])
            elif word not in self._names:
                self._plain.add(word)

    def told(self, call: ToolCall) -> ToolCall:
        """A call of the agent as the script had it."""
        return self._meant.get(call.id, call)

    async def reply(self, request: Request, /) -> Reply:
        """The source's reply in the agent's words."""
        if not self._names:
            return await self._source.reply(request)
        offered = request.offered
        reply = await self._source.reply(self._understand(request))
        blocks = tuple(self._spell(block, offered) for block in reply.blocks)
        return msgspec.structs.replace(reply, blocks=blocks)

    def _spell(self, block: AnyBlock, offered: tuple[str, ...]) -> AnyBlock:
        if not isinstance(block, ToolCall) or block.name in offered:
            return block
        name = self._names.get(block.name)
        if name is None:
            return block
        self._meant[block.id] = block
        return name.spell(block)

    def _understand(self, request: Request) -> Request:
        """The request in the script's words."""
        tools = tuple(told for tool in request.tools for told in self._tell(tool, request.offered))
        messages = request.messages
        if self._meant:
            messages = History(self._restore(message) for message in messages)
        return msgspec.structs.replace(request, tools=tools, messages=messages)

    def _tell(self, tool: Tool, offered: tuple[str, ...]) -> list[Tool]:
        words = [word for word, name in self._names.items() if name.tool == tool.name]
        told = [msgspec.structs.replace(tool, name=word) for word in words if word not in offered]
        return [tool, *told] if not told or tool.name in self._plain else told

    def _restore(self, message: Message) -> Message:
        if not message.calls and not message.results:
            return message
        return Message(message.role, tuple(map(self._mean, message.blocks)))

    def _mean(self, block: AnyBlock) -> AnyBlock:
        if isinstance(block, ToolCall):
            return self._meant.get(block.id, block)
        if isinstance(block, ToolResult) and block.call_id in self._meant:
            name: Any = self._meant[block.call_id].name
            return msgspec.structs.replace(block, name=name if block.name else "")
        return block
