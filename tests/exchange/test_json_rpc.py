"""JSON-RPC between two peers."""

import asyncio
import gc
from typing import Any

import pytest

from offbook.exchange.json_rpc import Peer, RpcError, decode_message


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


def test_half_a_character_is_read_as_it_was_written():
    assert decode_message(rb'{"text": "\ud83d"}') == {"text": "\ud83d"}


@pytest.mark.parametrize("raw", [rb'["\ud83d"', rb'["\ud83d", NaN]', rb'["\ud83d", -Infinity]'])
def test_half_a_character_makes_no_other_text_json(raw: bytes):
    with pytest.raises(RpcError, match="invalid JSON"):
        decode_message(raw)


async def test_a_response_is_expected_once_and_that_of_a_request_that_was_given_up():
    sent: list[Any] = []
    peer = Peer(sent.append, refuse)
    answered, given_up = (asyncio.ensure_future(peer.request("ping")) for _ in range(2))
    await asyncio.sleep(0)
    assert [peer.expects(number) for number in (1, 2, 3, "1", [1])] == [
        *(True, True, False, False, False)
    ]
    peer.receive({"jsonrpc": "2.0", "id": 1, "result": {}})
    assert await answered == {}
    given_up.cancel()
    await asyncio.wait([given_up])
    assert [peer.expects(number) for number in (1, 2)] == [False, True]
