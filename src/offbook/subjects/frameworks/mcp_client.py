"""MCP: the tools that a client session of this process calls, in a function or a framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offbook.determinism.run_context import apply_patch
from offbook.subjects.frameworks.framework import report_calls
from offbook.subjects.tool_watch import current_watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from offbook.subjects.tool_watch import WatchedCall


def patch_sessions(module: Any) -> Iterator[Callable[[], None]]:
    """Report each call of a tool by a session.

    The tools that a session lists during the run are observed: a result without a call is none.
    """

    def find(
        _session: Any, name: str, arguments: dict[str, Any] | None = None, *_: Any, **_named: Any
    ) -> WatchedCall | None:
        watch = current_watch.get()
        if watch is None or not watch.expects(name):
            return None
        watched = watch.call(name, arguments or {})
        watched.server = "mcp"  # a session does not keep the name of its server
        return watched

    def note(execution: WatchedCall, result: Any) -> Any:
        execution.failed = bool(getattr(result, "is_error", getattr(result, "isError", False)))
        content = getattr(result, "content", None)  # None: the server asks for more
        if content is not None:
            execution.returns([block.model_dump(mode="json") for block in content])
        return result

    async def list_tools(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        listed = await original(*args, **named)
        if (watch := current_watch.get()) is not None:
            watch.watched.update(tool.name for tool in listed.tools)
        return listed

    yield report_calls(module.ClientSession, "call_tool", find, note)
    yield apply_patch(module.ClientSession, "list_tools", list_tools)
