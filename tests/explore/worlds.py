"""Small agents with a planted bug each, and what must always hold for them."""

from __future__ import annotations

import asyncio
from typing import Any

from offbook import session
from offbook.runs import Rehearsal, Run

NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
PROMPT = "Refund order 7"
# A generated model calls every tool, so the tools that reach this machine are replaced.
MOCKS: dict[str, str] = dict.fromkeys(("bash", "edit", "read", "write"), "ok")


class Shop:
    """Two tools. Without a lock, two refunds of one order at once both succeed."""

    def __init__(self, *, locked: bool = False) -> None:
        self.refunds: list[int] = []
        self._locked = locked

    def extension(self, api: Any) -> None:
        @api.tool("find_order", description="Find an order.", parameters=NUMBER)
        def find_order(params: dict[str, Any], ctx: Any) -> str:
            return f"order {params['number']}"

        @api.tool("refund", description="Refund an order.", parameters=NUMBER)
        async def refund(params: dict[str, Any], ctx: Any) -> str:
            number = params["number"]
            if number not in {7, 8}:
                return "there is no such order"
            if number in self.refunds:
                return "it was refunded already"
            if not self._locked:
                await asyncio.sleep(0)
            self.refunds.append(number)
            return "refunded"


def broken_shop() -> tuple[Rehearsal, Shop]:
    shop = Shop()
    return session(extensions=[shop.extension], mock_tools=MOCKS), shop


def fixed_shop() -> tuple[Rehearsal, Shop]:
    shop = Shop(locked=True)
    return session(extensions=[shop.extension], mock_tools=MOCKS), shop


def never_twice(run: Run, shop: Shop) -> None:
    assert len(shop.refunds) == len(set(shop.refunds)), f"refunded {shop.refunds}"
