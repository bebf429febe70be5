"""A source in front of another one: some requests get a fault in place of a good reply."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from offbook.determinism.faults import BEFORE_THE_REPLY
from offbook.errors import ModelError

if TYPE_CHECKING:
    from offbook.determinism.faults import Fault, FaultInjector
    from offbook.exchange.model import ModelSource, Reply, Request

RATE_LIMIT = 429
RETRY_AFTER = 2.0  # clients of Offbook's endpoints do not wait for it, see `_without_delay`
# The status and category of a fault without a response, for the trace and for agents without HTTP.
WITHOUT_RESPONSE = {
    "timeout": (504, "timeout"),
    "reset": (502, "connection"),
    "content_type": (502, "invalid_response"),
}


class FaultySource:
    """A source with faults.

    A fault before the reply takes no step of the script: a retry gets the reply. Other faults
    break the delivery of a reply, so they go with it to the endpoint. With `wire=False` the agent
    calls this source itself, and gets an error in place of a broken connection.
    """

    def __init__(self, source: ModelSource, injector: FaultInjector, *, wire: bool = True) -> None:
        self._source = source
        self._injector = injector
        self._wire = wire

    async def reply(self, request: Request, /) -> Reply:
        """Return the reply of the source, or raise the fault that is due."""
        digest = request.messages.digest()
        fault = self._injector.for_request(digest, stream=request.stream, wire=self._wire)
        if fault is None:
            return await self._source.reply(request)
        if fault.kind in BEFORE_THE_REPLY or (not self._wire and fault.kind != "slow"):
            raise fault_error(fault)
        if not self._wire:
            await asyncio.sleep(fault.seconds)
            return await self._source.reply(request)
        return msgspec.structs.replace(await self._source.reply(request), fault=fault)


def fault_error(fault: Fault) -> ModelError:
    """Return the error of the provider that a fault is."""
    if fault.kind == "status":
        error = ModelError(fault.message, status=fault.status)
    elif fault.kind == "rate_limit":
        error = ModelError(fault.message, status=RATE_LIMIT, retry_after=RETRY_AFTER)
    else:
        status, category = WITHOUT_RESPONSE.get(fault.kind, WITHOUT_RESPONSE["reset"])
        error = ModelError(fault.message, status=status, category=category)
    error.fault = fault
    return error
