"""Tool aliases: one script for agents that have different names for the same tool.

A script with `call("shell", {"command": "ls"})` runs against every agent that has a shell tool,
whatever its name. `AliasedSource` translates: replies to the agent use the agent's tool names;
requests to the source, and the trace, use the names of the script.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

import msgspec

from offbook.errors import UsageError
from offbook.exchange.messages import AnyBlock, History, Message, ToolCall, ToolResult
from offbook.exchange.model import Reply, Request, Tool

if TYPE_CHECKING:
    from offbook.exchange.model import ModelSource


class ToolAlias(msgspec.Struct, frozen=True):
    """The agent's name of a tool, and of its parameters if they differ.

    For example, Claude Code's `read`: `ToolAlias("Read", {"path": "file_path"})`.
    """

    tool: str
    params: Mapping[str, str] = {}

    def translate(self, call: ToolCall) -> ToolCall:
        """Return the call with the agent's names."""
        arguments = {self.params.get(key, key): value for key, value in call.arguments.items()}
        return msgspec.structs.replace(call, name=self.tool, arguments=arguments)


ToolAliases = Mapping[str, ToolAlias]

# The tools of Claude Code, as a command and in its SDK.
CLAUDE_CODE_ALIASES: ToolAliases = {
    "shell": ToolAlias("Bash"),
    "bash": ToolAlias("Bash"),
    "read": ToolAlias("Read", {"path": "file_path"}),
    "write": ToolAlias("Write", {"path": "file_path"}),
    "edit": ToolAlias("Edit", {"path": "file_path", "old": "old_string", "new": "new_string"}),
}


def parse_tool_aliases(
    names: Mapping[str, str | ToolAlias] | None, known: ToolAliases
) -> dict[str, ToolAlias]:
    """Return a user's aliases; a string that is a `known` alias has the meaning of that alias."""
    aliases: dict[str, ToolAlias] = {}
    for name, target in (names or {}).items():
        if isinstance(cast("object", target), str) and target:
            aliases[name] = known.get(cast("str", target), ToolAlias(cast("str", target)))
        elif isinstance(target, ToolAlias):
            aliases[name] = target
        else:
            raise UsageError(
                f"tool_aliases[{name!r}]: expected a tool name or a ToolAlias, got {target!r}",
                hint=f'write tool_aliases={{{name!r}: "…"}}, or ToolAlias("…", {{…}})',
            )
    return aliases


class AliasedSource:
    """A source whose script and agent use different names for the same tools.

    The `given` aliases of the user always apply. The `known` aliases of the agent apply only if
    the script uses them; otherwise the agent's tools keep their names. A name that the agent
    offers as a tool is never translated.
    """

    def __init__(self, source: ModelSource, *, given: ToolAliases, known: ToolAliases) -> None:
        self._source = source
        self._given = given
        self._known = known
        self._active: dict[str, ToolAlias] = dict(given)
        self._unaliased: set[str] = set()
        self._original_calls: dict[str, ToolCall] = {}

    @property
    def aliases(self) -> set[str]:
        """The names that a script can call in addition to the agent's tools."""
        return {*self._given, *self._known}

    def activate(self, called: Iterable[str]) -> None:
        """Activate the known aliases among the tool names that the script calls."""
        for name in called:
            if name in self._known:
                self._active.setdefault(name, self._known[name])
            elif name not in self._active:
                self._unaliased.add(name)

    def original_call(self, call: ToolCall) -> ToolCall:
        """Return a call of the agent with the names of the script."""
        return self._original_calls.get(call.id, call)

    async def reply(self, request: Request, /) -> Reply:
        """Return the source's reply with the agent's names."""
        # The usual case: the script uses the names of the agent.
        if not self._active:
            return await self._source.reply(request)
        offered = request.tool_names
        reply = await self._source.reply(self._with_script_names(request))
        blocks: list[AnyBlock] = []
        for block in reply.blocks:
            if isinstance(block, ToolCall) and block.name not in offered:
                alias = self._active.get(block.name)
                if alias is not None:
                    # The results of the call come back with its id, so the id is the key.
                    self._original_calls[block.id] = block
                    block = alias.translate(block)  # noqa: PLW2901 - the block of the reply
            blocks.append(block)
        return msgspec.structs.replace(reply, blocks=tuple(blocks))

    def _with_script_names(self, request: Request) -> Request:
        offered = request.tool_names
        tools: list[Tool] = []
        for tool in request.tools:
            aliased = [
                msgspec.structs.replace(tool, name=name)
                for name, alias in self._active.items()
                if alias.tool == tool.name and name not in offered
            ]
            # A script can use both: `call("shell")` and the agent's own `call("Bash")`.
            if not aliased or tool.name in self._unaliased:
                tools.append(tool)
            tools += aliased
        messages = request.messages
        if self._original_calls:
            messages = History(self._restore_names(message) for message in messages)
        return msgspec.structs.replace(request, tools=tuple(tools), messages=messages)

    def _restore_names(self, message: Message) -> Message:
        if not message.calls and not message.results:
            return message
        originals = self._original_calls
        blocks: list[AnyBlock] = []
        for block in message.blocks:
            if isinstance(block, ToolCall):
                blocks.append(originals.get(block.id, block))
            elif isinstance(block, ToolResult) and block.call_id in originals:
                # Dialects that send no tool name with a result leave it empty.
                name = originals[block.call_id].name if block.name else ""
                blocks.append(msgspec.structs.replace(block, name=name))
            else:
                blocks.append(block)
        return Message(message.role, tuple(blocks))
