"""The host of a session, as its tools and hooks see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offbook.trace.current_hub import current_host

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offbook.host.host_scope import HostScope


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
