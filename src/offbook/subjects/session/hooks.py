"""Hooks and the context that tools, hooks and commands receive.

An extension registers a hook with `api.on(event)`. A hook is a function `(event, ctx)`, plain or
async. Most events only notify; two of them can change what happens:

- `tool_call`, before a tool runs: return `{"block": True, "reason": "…"}` or raise `ToolBlocked`
  to block the call, return `{"input": {…}}` or edit `event.input` to change its parameters.
- `tool_result`, after a tool ran: return a tool result to replace it, or a dict with some of
  `content`, `details` and `is_error` to change those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.determinism.run_context import current_host
from offbook.errors import ToolBlocked, UsageError, did_you_mean
from offbook.subjects.mock_tools import ToolOutcome, to_tool_outcome

if TYPE_CHECKING:
    from pathlib import Path

    from offbook.exchange.model import ModelSource
    from offbook.host.host_scope import HostScope
    from offbook.subjects.mock_ui import UI

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
DEFAULT_REASON = "Tool execution was blocked"
ANSWER_KEYS = ("block", "reason", "input")
ANSWER_SHAPES = 'return {"block": True, "reason": "…"}, {"input": {…}}, or None'


class Host:
    """The host of a session, `ctx.host`: its own mocks, or those of the current scope."""

    def __init__(self, scope: HostScope | None = None) -> None:
        self._scope = scope

    def call(self, name: str, params: Mapping[str, Any] | None = None) -> Any:
        """Call an operation: `ctx.host.call("workspace.read_text", {"path": "a.txt"})`."""
        # Late: most sessions call no host.
        from offbook.host.host_scope import HostScope

        # A session is always under test, so without any scope every call is refused.
        scope = self._scope or current_host.get() or HostScope(where="ctx.host")
        return scope.call(name, params)


class Context(msgspec.Struct, frozen=True):
    """The session as an extension sees it, passed to every tool, hook and command as `ctx`.

        @api.tool("summarize")
        async def summarize(params, ctx):
            text = (ctx.cwd / params["path"]).read_text()
            if not await ctx.ui.confirm("Send the file to the model?"):
                return "cancelled"
            reply = await ctx.model.reply(Request(History([user(text)]), system="Summarize."))
            return reply.text

    `cwd` is the working directory, `ui` the mocked user interface, `settings` the session's
    settings. `model` is the scripted model, for requests outside the main loop such as those of
    a subagent: a `role(…)` of the playbook replies to them. `host` calls host capabilities:
    `ctx.host.call("workspace.read_text", {"path": "a.txt"})`.
    """

    cwd: Path
    ui: UI
    settings: Mapping[str, Any]
    model: ModelSource
    has_ui: bool = True
    host: Host = Host()


class HookEvent:
    """The event that a hook receives: its name, and the fields that apply to it.

    `prompt` is set for `agent_start`; `tool`, `call_id` and `input` for `tool_call` and
    `tool_result`; `result` for `tool_result`.
    """

    # Not a frozen struct: hooks change `input` and `result` in place.
    __slots__ = ("call_id", "input", "name", "prompt", "result", "tool")

    def __init__(
        self,
        name: str,
        *,
        prompt: str = "",
        tool: str = "",
        call_id: str = "",
        input: dict[str, Any] | None = None,  # noqa: A002 - the public name of the field
        result: ToolOutcome | None = None,
    ) -> None:
        self.name = name
        self.prompt = prompt
        self.tool = tool
        self.call_id = call_id
        self.input = {} if input is None else input
        self.result = result or ToolOutcome()


Hook = Callable[[HookEvent, Context], object]


class Hooks:
    """The hooks of a session, called in the order of their registration."""

    def __init__(self) -> None:
        self._hooks: dict[str, list[Hook]] = {name: [] for name in HOOK_EVENTS}

    def add(self, name: str, hook: Hook, where: str) -> None:
        """Register a hook for an event."""
        if name not in self._hooks:
            raise UsageError(
                f"unknown hook event {name!r}",
                where=where,
                hint=did_you_mean(str(name), HOOK_EVENTS),
            )
        if not callable(hook):
            kind = type(hook).__name__
            raise UsageError(f"expected a function as {name} hook, got {kind}", where=where)
        self._hooks[name].append(hook)

    @property
    def names(self) -> list[str]:
        """The events that have hooks."""
        return [name for name, hooks in self._hooks.items() if hooks]

    def __contains__(self, name: str) -> bool:
        return bool(self._hooks[name])

    async def notify(self, event: HookEvent, context: Context) -> None:
        """Call the hooks of an event. Their return values are ignored."""
        for hook in self._hooks[event.name]:
            answer = hook(event, context)
            if isawaitable(answer):
                await answer

    async def before_call(self, event: HookEvent, context: Context) -> str | None:
        """Call the `tool_call` hooks and return the reason why the call is blocked, or None.

        Hooks may change `event.input`. The first one that blocks the call is the last one called.
        """
        for hook in self._hooks["tool_call"]:
            try:
                answer = hook(event, context)
                if isawaitable(answer):
                    answer = await answer
            except ToolBlocked as block:  # the exception may come from deep inside the hook
                return block.reason or DEFAULT_REASON
            if answer is None:  # the call is allowed
                continue
            decision = _validate_decision(answer, event.tool)
            if decision.get("block"):
                return str(decision.get("reason") or DEFAULT_REASON)
            if "input" in decision:
                event.input = dict(decision["input"])
        return None

    async def after_call(self, event: HookEvent, context: Context) -> ToolOutcome:
        """Call the `tool_result` hooks and return the result for the model.

        Each hook sees the result of the hook before it in `event.result`.
        """
        for hook in self._hooks["tool_result"]:
            answer = hook(event, context)
            if isawaitable(answer):
                answer = await answer
            if answer is None:
                continue
            if isinstance(answer, Mapping):
                # A dict changes only the fields that it names.
                changes = dict(cast("Mapping[str, Any]", answer))
                if "isError" in changes:
                    changes["is_error"] = changes.pop("isError")
                answer = {
                    "content": event.result.content,
                    "details": event.result.details,
                    "is_error": event.result.is_error,
                    **changes,
                }
            event.result = to_tool_outcome(answer, f"tool_result hook for {event.tool!r}")
        return event.result


def _validate_decision(answer: object, tool: str) -> Mapping[str, Any]:
    """Return the dict that a `tool_call` hook returned, or raise a UsageError."""
    problem = ""
    if not isinstance(answer, Mapping):
        problem = f"expected a dict or None, got {type(answer).__name__}"
    else:
        decision = cast("Mapping[str, Any]", answer)
        # An unknown key is an error: `{"blocked": True}` must not let the call through.
        for key in decision:
            if key not in ANSWER_KEYS:
                problem = f"unknown key {key!r}: {did_you_mean(str(key), ANSWER_KEYS)}"
        if not problem and not isinstance(decision.get("input", {}), Mapping):
            problem = f"expected a dict as 'input', got {type(decision['input']).__name__}"
        if not problem:
            return decision
    raise UsageError(problem, where=f"tool_call hook for {tool!r}", hint=ANSWER_SHAPES)
