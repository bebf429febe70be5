"""The tools that every session has: bash, read, write, edit. They work for real."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any

from offbook.exchange.messages import Text
from offbook.exchange.model import Tool
from offbook.subjects.session.tools import ToolOutcome

if TYPE_CHECKING:
    from offbook.subjects.session.hooks import Context
    from offbook.subjects.session.tools import ToolRegistry

TIMEOUT = 120.0
LONGEST = 50_000


def _schema(*required: str, **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


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
    """Run a command in its own process group, and end the whole group with it."""
    timeout = params.get("timeout", TIMEOUT)
    with TemporaryFile() as output:  # a pipe would wait for whoever else holds it, too
        process = await _start(params["command"], ctx.cwd, output)
        try:
            await asyncio.wait_for(process.wait(), timeout)
        except TimeoutError:
            text = f"{_read_back(output)}\n(timed out after {timeout:g} s)".lstrip("\n")
            return _failed(text, {"timeout": timeout})
        finally:
            _end_group(process.pid)
            await process.wait()
        text = _read_back(output)
    code = process.returncode
    if code:
        text = f"{text}\n(exit code {code})".lstrip("\n")
    return ToolOutcome((Text(text),), {"exit_code": code}, bool(code))


async def _start(command: str, cwd: Path, output: IO[bytes]) -> asyncio.subprocess.Process:
    """Start a command; who is cancelled meanwhile leaves nothing half started behind."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            cwd=cwd,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        process = await starting
        _end_group(process.pid)
        await process.wait()
        raise


def _read_back(output: IO[bytes]) -> str:
    output.seek(0)
    return _cut(output.read().decode(errors="replace"))


def _end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


async def run_read(params: dict[str, Any], ctx: Context) -> ToolOutcome:
    """Give a file's text, or the lines asked for."""
    path = _place(ctx, params)
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        return _failed(_why(error, params["path"]), {"path": str(path)})
    start = params.get("offset", 1) - 1
    stop = start + params["limit"] if "limit" in params else None
    details = {"path": str(path), "lines": len(lines)}
    return ToolOutcome((Text(_cut("".join(lines[start:stop]))),), details)


async def run_write(params: dict[str, Any], ctx: Context) -> ToolOutcome:
    """Write a file."""
    path = _place(ctx, params)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(params["content"], encoding="utf-8")
    except OSError as error:
        return _failed(_why(error, params["path"]), {"path": str(path)})
    size = len(params["content"].encode())
    return ToolOutcome((Text(f"wrote {size} bytes to {params['path']}"),), {"path": str(path)})


async def run_edit(params: dict[str, Any], ctx: Context) -> ToolOutcome:
    """Replace one text in a file."""
    path = _place(ctx, params)
    details = {"path": str(path)}
    try:
        text = path.read_text(encoding="utf-8")
        found = text.count(params["old"]) if params["old"] else 0
        if found != 1:
            return _failed(f"the old text occurs {found} times in {params['path']}", details)
        path.write_text(text.replace(params["old"], params["new"]), encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return _failed(_why(error, params["path"]), details)
    return ToolOutcome((Text(f"edited {params['path']}"),), details)


def _place(ctx: Context, params: dict[str, Any]) -> Path:
    return ctx.cwd / Path(params["path"])


def _why(error: OSError | UnicodeDecodeError, path: str) -> str:
    reason = error.strerror if isinstance(error, OSError) else "not a UTF-8 text"
    return f"{path}: {reason}"


def _failed(text: str, details: dict[str, Any]) -> ToolOutcome:
    return ToolOutcome((Text(text),), details, is_error=True)


def _cut(text: str) -> str:
    over = len(text) - LONGEST
    return text if over <= 0 else f"{text[:LONGEST]}\n({over} more characters)"


def install_builtin_tools(tools: ToolRegistry) -> None:
    """Give a session its built-in tools."""
    for tool, execute in ((BASH, run_bash), (READ, run_read), (WRITE, run_write), (EDIT, run_edit)):
        tools.add(tool, execute, "")
