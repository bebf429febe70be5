"""Which tools return untrusted text, and which ones have an effect that matters.

    explore(world, prompt, untrusted("fetch_page"), powerful("send_mail"))

Without a policy the name, the description and the parameters of a tool decide.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, cast

import msgspec

from offbook.errors import UsageError
from offbook.exchange.tool_effects import classify

if TYPE_CHECKING:
    from offbook.exchange.model import Tool


class ToolPolicy(msgspec.Struct, frozen=True):
    """The tools that the user marked. With marks, a side has these tools and no others."""

    untrusted: tuple[str, ...] = ()
    powerful: tuple[str, ...] = ()

    @property
    def tools(self) -> tuple[str, ...]:
        """All tools that are marked."""
        return (*self.untrusted, *self.powerful)

    def is_source(self, tool: Tool, own: Collection[str] = ()) -> bool:
        """Return whether a tool returns untrusted text; `own` are tools that do not count."""
        if self.untrusted:
            return tool.name in self.untrusted
        return tool.name not in own and classify(tool).source

    def is_sink(self, tool: Tool, own: Collection[str] = ()) -> bool:
        """Return whether a tool has an effect that matters."""
        if self.powerful:
            return tool.name in self.powerful
        return tool.name not in own and classify(tool).sink


def untrusted(*tools: str) -> ToolPolicy:
    """Return a policy for `explore`: the results of these tools have untrusted text.

    The generated model obeys instructions in it.
    """
    return ToolPolicy(untrusted=_check_names(tools))


def powerful(*tools: str) -> ToolPolicy:
    """Return a policy for `explore`: no untrusted text may decide how these tools run."""
    return ToolPolicy(powerful=_check_names(tools))


def _check_names(tools: tuple[object, ...]) -> tuple[str, ...]:
    for tool in tools or ("",):
        if not isinstance(tool, str) or not tool:
            raise UsageError(
                f"expected names of tools, got {tool!r}", hint='write untrusted("fetch_page")'
            )
    return cast("tuple[str, ...]", tools)


def join_policies(policies: Iterable[ToolPolicy]) -> ToolPolicy:
    """Return one policy with all marks."""
    policies = [*policies]
    return ToolPolicy(
        tuple(dict.fromkeys(name for policy in policies for name in policy.untrusted)),
        tuple(dict.fromkeys(name for policy in policies for name in policy.powerful)),
    )
