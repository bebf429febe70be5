"""The built-in tools of every session: bash, read, write and edit. They work on real files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbook.exchange.messages import Text
from offbook.exchange.model import Tool
from offbook.subjects.mock_tools import ToolOutcome, error_outcome

if TYPE_CHECKING:
    from offbook.subjects.session.hooks import Context
    from offbook.subjects.session.tools import ToolRegistry

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
        text = path.read_text(encoding="utf-8")
        # An empty text occurs everywhere, so it counts as not found.
        count = text.count(params["old"]) if params["old"] else 0
        if count != 1:
            return error_outcome(f"the old text occurs {count} times in {params['path']}", details)
        path.write_text(text.replace(params["old"], params["new"]), encoding="utf-8")
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
    return text if more <= 0 else f"{text[:MAX_TEXT]}\n({more} more characters)"


def install_builtin_tools(tools: ToolRegistry) -> None:
    """Register the built-in tools."""
    for tool, execute in ((BASH, run_bash), (READ, run_read), (WRITE, run_write), (EDIT, run_edit)):
        tools.add(tool, execute, "")
