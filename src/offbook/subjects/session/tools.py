"""The tools of a session: parameter validation, the registry, and the built-in tools.

A tool is a function `(params, ctx)`. Its parameters are validated against its JSON schema before
it runs, and its return value is converted to a `ToolOutcome`. `mock_tools` replaces the function
and keeps the schema, so the model cannot distinguish a mock from the real tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from inspect import isasyncgen, isawaitable, isgenerator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.determinism.run_context import current_host
from offbook.errors import ToolBlocked, UsageError, did_you_mean, require_known
from offbook.exchange.messages import Text
from offbook.exchange.model import Tool, compile_validator
from offbook.options import require_function
from offbook.subjects.mock_tools import (
    ToolMocks,
    ToolOutcome,
    error_outcome,
    to_tool_outcome,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from offbook.exchange.model import ModelSource
    from offbook.host.host_scope import HostScope
    from offbook.subjects.mock_tools import UI


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

    # Not a frozen struct: hooks change `input` in place, and set `result`.
    __slots__ = ("_result", "call_id", "input", "name", "prompt", "tool")

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
        self._result = result or ToolOutcome()

    @property
    def result(self) -> ToolOutcome:
        """The result of the tool. Whatever a tool may return can be set, such as a text."""
        return self._result

    @result.setter
    def result(self, value: object) -> None:
        self._result = to_tool_outcome(value, f"{self.name} hook for {self.tool!r}")


Hook = Callable[[HookEvent, Context], object]


async def call_function(function: Callable[..., object], *args: object) -> object:
    """Call a function of an extension, plain or async, and return its answer."""
    answer = function(*args)
    if answer is None:
        return None
    if isawaitable(answer):
        answer = await answer
    if isgenerator(answer) or isasyncgen(answer):
        name = getattr(function, "__qualname__", type(function).__qualname__)
        raise UsageError(
            f"{name}: a function with a `yield` does not run when it is called",
            hint="remove the `yield`, or make two functions of it",
        )
    return answer


class Hooks:
    """The hooks of a session, called in the order of their registration."""

    def __init__(self) -> None:
        self.by_event: dict[str, list[Hook]] = {name: [] for name in HOOK_EVENTS}

    def add(self, name: str, hook: Hook, where: str) -> None:
        """Register a hook for an event."""
        require_known("unknown hook event", name, HOOK_EVENTS, where=where)
        require_function(hook, f"{name} hook", where=where)
        self.by_event[name].append(hook)

    @property
    def names(self) -> list[str]:
        """The events that have hooks."""
        return [name for name, hooks in self.by_event.items() if hooks]

    async def notify(self, event: HookEvent, context: Context) -> None:
        """Call the hooks of an event. Their return values are ignored."""
        for hook in self.by_event[event.name]:
            await call_function(hook, event, context)

    async def before_call(self, event: HookEvent, context: Context) -> str | None:
        """Call the `tool_call` hooks and return the reason why the call is blocked, or None.

        Hooks may change `event.input`. The first one that blocks the call is the last one called.
        """
        for hook in self.by_event["tool_call"]:
            try:
                answer = await call_function(hook, event, context)
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
        for hook in self.by_event["tool_result"]:
            answer = await call_function(hook, event, context)
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
            event.result = answer  # converted by the setter
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
        if not problem and "reason" in decision and "block" not in decision:
            problem = "a 'reason' without 'block' does not block the call"
        if not problem:
            return decision
    raise UsageError(problem, where=f"tool_call hook for {tool!r}", hint=ANSWER_SHAPES)


# -------------------------------------------------------------------------------- tools

ToolFunction = Callable[..., object]
Validator = Callable[[dict[str, Any]], "str | None"]

ANY_OBJECT: dict[str, Any] = {"type": "object"}


def compile_schema(schema: dict[str, Any], where: str) -> Validator:
    """Return a function that validates parameters and returns the error message, or None."""
    find_errors = compile_validator(
        schema,
        where,
        kind="parameter schema",
        hint='expected a JSON schema: {"type": "object", "properties": {…}, "required": […]}',
    )

    def validate(params: dict[str, Any]) -> str | None:
        errors = find_errors(params)
        if not errors:
            return None
        return "; ".join(
            f"{'.'.join(map(str, error.path)) or 'parameters'}: {error.message}" for error in errors
        )

    return validate


class RegisteredTool(msgspec.Struct, frozen=True):
    """A tool that can run: its description for the model, its function, and its extension.

    `owner` is the name of the extension; it is empty for built-in tools and for mocks.
    """

    tool: Tool
    execute: ToolFunction
    owner: str
    validator: Validator
    mocked: bool = False


class ToolRegistry:
    """All tools of a session, by name. Some may be inactive, some may be mocked."""

    def __init__(self, mocks: Mapping[str, Any], *, mock_extensions: bool) -> None:
        self._tools: dict[str, RegisteredTool] = {}
        self._active: set[str] | None = None
        self._mocks = ToolMocks(mocks, mock_extensions=mock_extensions)
        # both until a tool changes
        self._resolved: dict[str, RegisteredTool | None] = {}
        self._offered: tuple[Tool, ...] | None = None

    def add(self, tool: Tool, execute: ToolFunction, owner: str) -> None:
        """Register a tool. An extension may replace a built-in tool of the same name."""
        registered = self._tools.get(tool.name)
        if registered is not None and "" not in {registered.owner, owner}:
            raise UsageError(
                f"tool {tool.name!r} is registered twice",
                where=owner,
                hint=f"already registered by {registered.owner}: rename one of them",
            )
        validator = compile_schema(tool.schema or ANY_OBJECT, f"{owner}: {tool.name}")
        self._tools[tool.name] = RegisteredTool(tool, execute, owner, validator)
        self._forget_resolved()

    def add_builtin(self) -> None:
        """Register the built-in tools, before those of extensions."""
        self._tools.update(_builtin_tools())
        self._forget_resolved()

    def _forget_resolved(self) -> None:
        self._offered = None
        self._resolved.clear()

    def find(self, name: str) -> RegisteredTool | None:
        """Return the tool to run or its mock, or None if it is unknown or inactive."""
        if name not in self._resolved:
            self._resolved[name] = self._resolve(name)
        registered = self._resolved[name]
        if registered is not None and registered.mocked:
            self._mocks.note_use(name)
        return registered

    def _resolve(self, name: str) -> RegisteredTool | None:
        if self._active is not None and name not in self._active:
            return None
        real = self._tools.get(name)
        mock = self._mocks.find(name, real.owner if real else "")
        if mock is None:
            return real
        if real is None:
            tool = Tool(name, "", ANY_OBJECT)
            return RegisteredTool(tool, mock.run, "", compile_schema(ANY_OBJECT, name), mocked=True)
        return RegisteredTool(real.tool, mock.run, real.owner, real.validator, mocked=True)

    def activate(self, names: Collection[str] | None) -> None:
        """Offer only these tools to the model; None offers all."""
        for name in names or ():
            require_known("set_active_tools: unknown tool", name, self.names())
        self._active = None if names is None else set(names)
        self._forget_resolved()

    def names(self) -> set[str]:
        """Return the names of all tools, active or not."""
        return self._tools.keys() | self._mocks.by_name.keys()

    def offered(self) -> tuple[Tool, ...]:
        """Return the tools that the next request offers to the model."""
        # The tuple is kept until a tool changes: requests that share it share its hash, too.
        if self._offered is None:
            active = (self._resolve(name) for name in sorted(self.names()))
            self._offered = tuple(registered.tool for registered in active if registered)
        return self._offered

    def unused_mocks(self) -> dict[str, str]:
        """Return the mocks of tools that were never called, with the extension that won."""
        return self._mocks.list_unused({name: tool.owner for name, tool in self._tools.items()})


# --- The built-in tools of every session: bash, read, write and edit. They work on real files.

TIMEOUT = 120.0
# A longer text would fill the context of a real model.
MAX_TEXT = 50_000


def _schema(*required: str, **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


# The descriptions are for the model only. The schemas refuse unknown parameters, so that a script
# with a misspelled one gets an error result instead of a default.
STRING: dict[str, Any] = {"type": "string"}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 1}

BASH = Tool(
    "bash",
    "Run a shell command in the working directory.",
    _schema("command", command=STRING, timeout={"type": "number", "exclusiveMinimum": 0}),
)
READ = Tool(
    "read",
    "Read a text file, whole or some of its lines.",
    _schema("path", path=STRING, offset=COUNT, limit=COUNT),
)
WRITE = Tool(
    "write",
    "Write a text file, making its folders.",
    _schema("path", "content", path=STRING, content=STRING),
)
EDIT = Tool(
    "edit",
    "Replace a text that occurs exactly once in a file.",
    _schema("path", "old", "new", path=STRING, old=STRING, new=STRING),
)


async def run_bash(params: dict[str, Any], ctx: Context) -> ToolOutcome:
    """Run a shell command; its background processes are killed when it ends."""
    from offbook.subjects.process import run_shell  # a session without shell calls starts faster

    if "\0" in params["command"]:  # the system cannot pass it to a process
        return error_outcome("invalid command: embedded null byte")
    timeout = params.get("timeout", TIMEOUT)
    try:
        result, dropped = await run_shell(params["command"], cwd=ctx.cwd, deadline=timeout)
    except FileNotFoundError:
        return error_outcome("bash is not installed")
    text = _shorten(result.stdout, dropped)
    if result.timed_out:
        text = f"{text}\n(timed out after {timeout:g} s)".lstrip("\n")
        return error_outcome(text, {"timeout": timeout})
    if result.code:
        text = f"{text}\n(exit code {result.code})".lstrip("\n")
    return ToolOutcome((Text(text),), {"exit_code": result.code}, bool(result.code))


async def run_read(params: dict[str, Any], ctx: Context) -> ToolOutcome:
    """Return the text of a file, or the requested lines of it."""
    path = ctx.cwd / params["path"]
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, ValueError) as error:
        return _file_error(error, params["path"], path)
    # Lines are counted from 1, as editors and models do.
    start = params.get("offset", 1) - 1
    stop = start + params["limit"] if "limit" in params else None
    details = {"path": str(path), "lines": len(lines)}
    return ToolOutcome((Text(_shorten("".join(lines[start:stop]))),), details)


async def run_write(params: dict[str, Any], ctx: Context) -> ToolOutcome:
    """Write a file and create its folders."""
    path = ctx.cwd / params["path"]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(params["content"], encoding="utf-8")
    except (OSError, ValueError) as error:
        return _file_error(error, params["path"], path)
    size = len(params["content"].encode())
    return ToolOutcome((Text(f"wrote {size} bytes to {params['path']}"),), {"path": str(path)})


async def run_edit(params: dict[str, Any], ctx: Context) -> ToolOutcome:
    """Replace a text in a file. It must occur exactly once, so that the right one is replaced."""
    path = ctx.cwd / params["path"]
    details = {"path": str(path)}
    try:
        text = path.read_bytes().decode()
        # `read` shows every line end as \n. The old text has those, and the file keeps its own.
        lines = re.split(r"\r?\n", params["old"])
        # An empty text occurs everywhere, so it counts as not found.
        found = re.finditer(r"\r?\n".join(map(re.escape, lines)), text) if params["old"] else ()
        places = [match.span() for match in found]
        if len(places) != 1:
            count = len(places)
            return error_outcome(f"the old text occurs {count} times in {params['path']}", details)
        ((start, end),) = places
        replaced = text[start:end]
        line_end = "\r\n" if "\r\n" in (replaced if "\n" in replaced else text) else "\n"
        new = re.sub(r"(?<!\r)\n", line_end, params["new"])
        path.write_bytes((text[:start] + new + text[end:]).encode())
    except (OSError, ValueError) as error:
        return _file_error(error, params["path"], path)
    return ToolOutcome((Text(f"edited {params['path']}"),), details)


def _file_error(error: OSError | ValueError, name: str, path: Path) -> ToolOutcome:
    if isinstance(error, OSError):
        reason = error.strerror
    elif isinstance(error, UnicodeError):
        reason = "not a UTF-8 text"
    else:
        reason = str(error)  # a NUL byte in the path
    return error_outcome(f"{name}: {reason}", {"path": str(path)})


def _shorten(text: str, dropped: int = 0) -> str:
    more = len(text) - MAX_TEXT + dropped
    if more <= 0:
        return text
    from offbook.secrets.masks import cut_text

    return f"{cut_text(text, MAX_TEXT)}\n({more} more characters)"


@cache  # every session has the same
def _builtin_tools() -> dict[str, RegisteredTool]:
    tools = ((BASH, run_bash), (READ, run_read), (WRITE, run_write), (EDIT, run_edit))
    return {
        tool.name: RegisteredTool(
            tool, execute, "", compile_schema(tool.schema, f"offbook: {tool.name}")
        )
        for tool, execute in tools
    }


BUILTIN_TOOLS = frozenset({BASH.name, READ.name, WRITE.name, EDIT.name})
