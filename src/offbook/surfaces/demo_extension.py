"""The extension of the demo: a small shop, and a guard that keeps the agent from harm."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from offbook.errors import ToolBlocked

if TYPE_CHECKING:
    from offbook.subjects.session.extensions import Api
    from offbook.subjects.session.tools import Context, HookEvent

ITEM = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
ORDER = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}


def extension(api: Api) -> None:
    """Two tools, and a hook that looks at every command before it runs."""
    orders: dict[str, str] = {}

    @api.tool("place_order", "Order something.", ITEM)
    def place_order(params: dict[str, Any], ctx: Context) -> str:
        digest = blake2b(params["item"].encode(), digest_size=3).hexdigest()
        orders[f"ORDER-{digest}"] = params["item"]
        ctx.ui.notify(f"{len(orders)} open order")
        return f"ORDER-{digest}: one {params['item']}"

    @api.tool("ship_order", "Send an order off.", ORDER)
    async def ship_order(params: dict[str, Any], ctx: Context) -> str:
        item = orders[params["id"]]
        if not await ctx.ui.confirm("Ship it?", f"one {item}"):
            return "the customer changed their mind"
        return f"shipped {params['id']}: one {item}"

    @api.on("tool_call")
    def guard(moment: HookEvent, _: Context) -> None:
        if moment.tool == "bash" and "rm -rf" in moment.input["command"]:
            raise ToolBlocked("this would delete more than you think")
