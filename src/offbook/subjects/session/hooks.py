"""What tools, hooks and commands get to know of the session they run in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import ToolBlocked, UsageError, did_you_mean
from offbook.subjects.session.tools import ToolOutcome, to_tool_outcome

if TYPE_CHECKING:
    from pathlib import Path

    from offbook.exchange.model import ModelSource
    from offbook.subjects.session.ui import UI


# --- What tools, hooks and commands get to know of the session they run in.


class Context(msgspec.Struct, frozen=True):
    """The session, as an extension sees it.

    Whoever needs the model for itself, for a subagent say, asks `model`; in a playbook, a role
    answers.
    """

    cwd: Path
    ui: UI
    settings: Mapping[str, Any]
    model: ModelSource
    has_ui: bool = True


# --- The moments at which an extension may look in, and change what happens.

HOOK_EVENTS = (
    "session_start",
    "agent_start",
    "turn_start",
    "tool_call",
    "tool_result",
    "turn_end",
    "agent_end",
    "session_shutdown",
)
NO_REASON = "Tool execution was blocked"
ANSWERS = ("block", "reason", "input")
ALIASES = {"isError": "is_error"}


class HookEvent:
    """What a hook is told: its name, and whatever belongs to it."""

    __slots__ = ("call_id", "input", "name", "prompt", "result", "tool")

    def __init__(
        self,
        name: str,
        *,
        prompt: str = "",
        tool: str = "",
        call_id: str = "",
        input: dict[str, Any] | None = None,  # noqa: A002 - the word that hooks use
        result: ToolOutcome | None = None,
    ) -> None:
        self.name = name
        self.prompt = prompt
        self.tool = tool
        self.call_id = call_id
        self.input = {} if input is None else input
        self.result = result or ToolOutcome()


Hook = Callable[[HookEvent, "Context"], object]


class Hooks:
    """The hooks of a session, asked in the order in which they were added."""

    def __init__(self) -> None:
        self._hooks: dict[str, list[Hook]] = {name: [] for name in HOOK_EVENTS}

    def add(self, name: str, hook: Hook, where: str) -> None:
        """Ask this hook at these moments, too."""
        if name not in self._hooks:
            raise UsageError(
                f"there is no moment {name!r}", where=where, hint=did_you_mean(name, HOOK_EVENTS)
            )
        if not callable(hook):
            raise UsageError(
                f"the hook for {name!r} is a {type(hook).__name__}, not a function", where=where
            )
        self._hooks[name].append(hook)

    def __contains__(self, name: str) -> bool:
        return bool(self._hooks[name])

    async def tell(self, moment: HookEvent, context: Context) -> None:
        """Let everybody know; nobody can change anything here."""
        for hook in self._hooks[moment.name]:
            answer = hook(moment, context)
            if isawaitable(answer):
                await answer

    async def ask_call(self, moment: HookEvent, context: Context) -> str | None:
        """The reason why this call is blocked, or None; hooks may rewrite `moment.input`."""
        for hook in self._hooks["tool_call"]:
            try:
                answer = hook(moment, context)
                if isawaitable(answer):
                    answer = await answer
            except ToolBlocked as block:
                return block.reason or NO_REASON
            if answer is None:
                continue
            told = _read_answer(answer, moment.tool)
            if told.get("block"):
                return str(told.get("reason") or NO_REASON)
            if "input" in told:
                moment.input = dict(told["input"])
        return None

    async def ask_result(self, moment: HookEvent, context: Context) -> ToolOutcome:
        """What the model gets to see; each hook may put something else in its place."""
        for hook in self._hooks["tool_result"]:
            answer = hook(moment, context)
            if isawaitable(answer):
                answer = await answer
            if answer is None:
                continue
            if isinstance(answer, Mapping):
                told = cast("Mapping[str, Any]", answer)
                kept = {
                    "content": moment.result.content,
                    "details": moment.result.details,
                    "is_error": moment.result.is_error,
                }
                answer = {**kept, **{ALIASES.get(key, key): told[key] for key in told}}
            moment.result = to_tool_outcome(answer, f"the tool_result hook for {moment.tool!r}")
        return moment.result


def _read_answer(answer: object, tool: str) -> Mapping[str, Any]:
    """What a `tool_call` hook wants; a word that is not known must not let a call through."""
    where = f"a tool_call hook for {tool!r}"
    hint = 'return {"block": True, "reason": "…"}, {"input": {…}}, or nothing'
    if not isinstance(answer, Mapping):
        raise UsageError(f"it answered with a {type(answer).__name__}", where=where, hint=hint)
    told = cast("Mapping[str, Any]", answer)
    for key in told:
        if key not in ANSWERS:
            known = did_you_mean(str(key), ANSWERS)
            raise UsageError(f"it answered with {key!r}: {known}", where=where, hint=hint)
    if not isinstance(told.get("input", {}), Mapping):
        kind = type(told["input"]).__name__
        raise UsageError(f"its 'input' is a {kind}", where=where, hint=hint)
    return told
