"""Breaks a response: the bytes of a fault, for clients of the server and of this process alike."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from offbook.exchange.dialects.dialect import HttpResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offbook.determinism.faults import Fault

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
