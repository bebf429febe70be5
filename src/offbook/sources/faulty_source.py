"""A source in front of another one: some requests get a fault in place of a good reply."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import msgspec

from offbook.determinism.faults import BEFORE_THE_REPLY
from offbook.errors import ModelError
from offbook.exchange.dialects.dialect import HttpResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

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


# ---------------------------------------------------------------------- broken response
# Breaks a response: the bytes of a fault, for clients of the server and of this process alike.

HTML_PAGE = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body></body></html>\n"
# The events after the last content of a stream, in all dialects.
_END_EVENT = re.compile(
    rb'"finish_reason": ?"|"finishReason": ?"|"usage": ?\{|\[DONE\]'
    rb"|message_stop|message_delta|content_block_stop|messageStop|contentBlockStop"
    rb"|response\.(?:completed|incomplete|output_item\.done|content_part\.done)"
    rb"|response\.(?:output_text|function_call_arguments)\.done"
)


def fault_response(fault: Fault) -> HttpResponse | None:
    """Return the response of a fault before the reply; None if it is the provider's own error."""
    match fault.kind:
        case "timeout":
            return HttpResponse(ending="timeout", hold=fault.seconds)
        case "content_type":
            return HttpResponse(200, {"content-type": "text/html; charset=utf-8"}, HTML_PAGE)
        case _:
            return None


def break_response(response: HttpResponse, fault: Fault) -> HttpResponse:
    """Return a response as a fault leaves it."""
    change = msgspec.structs.replace
    chunks: Sequence[bytes] = tuple(response.chunks)
    place = max(1, int(fault.at * len(chunks)))
    match fault.kind:
        case "cut" if chunks:
            return change(response, chunks=without_end(chunks))
        case "reset" | "cut":
            return change(response, body=b"", chunks=chunks[:place], ending="reset")
        case "stall":
            sent = chunks[:place]
            return change(response, body=b"", chunks=sent, ending="timeout", hold=fault.seconds)
        case "truncate" if chunks:
            event = chunks[min(place, len(chunks) - 1)]
            return change(response, chunks=(*chunks[:place], event[: len(event) // 2]))
        case "truncate":
            return change(response, body=response.body[: int(fault.at * len(response.body))])
        case "duplicate":
            return change(response, chunks=(*chunks[:place], *chunks[place - 1 :]))
        case "slow" if chunks:
            delays = (fault.seconds / len(chunks),) * len(chunks)
            return change(response, chunk_delays=delays)
        case _:
            return fault_response(fault) or response


def without_end(chunks: Sequence[bytes]) -> Sequence[bytes]:
    """Return the events of a stream without those after its last content."""
    count = len(chunks)
    while count > 1 and _END_EVENT.search(chunks[count - 1]):
        count -= 1
    return chunks[:count]
