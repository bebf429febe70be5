"""JSON-RPC between two peers."""

import asyncio
import gc
from typing import Any

import pytest

from offbook.exchange.json_rpc import Peer


async def refuse(method: str, params: Any) -> Any:
    raise NotImplementedError(method, params)


async def test_a_request_that_could_not_be_sent_leaves_no_error_of_asyncio():
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def send(message: Any) -> None:
        raise ValueError(message)

    peer = Peer(send, refuse)
    with pytest.raises(ValueError, match="ping"):
        await peer.request("ping")
    peer.close()
    del peer
    gc.collect()
    assert reported == []
