"""Answers with a hole where their id will be: what says the same again is written once."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal, cast

from offbook.exchange.dialects.chat.encode import HOLE, write_completion
from offbook.exchange.dialects.chat.stream import write_events
from offbook.exchange.messages import JSON, Text, to_json
from offbook.exchange.reply import Reply, Stop, Usage

if TYPE_CHECKING:
    from offbook.exchange.request import Request, Tool

KEPT = 256
LONG = 10_000

Form = Literal["whole", "events", "counted events"]


def fill_completion(id_: str, reply: Reply, request: Request) -> bytes:
    """The completion."""
    (drawn,) = _draw("whole", reply, request)
    return drawn.replace(HOLE, to_json(id_))


def fill_events(id_: str, reply: Reply, request: Request) -> tuple[bytes, ...]:
    """The events of a stream, with the usage at its end if that was asked for."""
    options = request.parameters.get("stream_options")
    counted = isinstance(options, dict) and bool(cast("JSON", options).get("include_usage"))
    drawn = _draw("counted events" if counted else "events", reply, request)
    name = to_json(id_)
    return tuple([event.replace(HOLE, name) for event in drawn])


def _draw(form: Form, reply: Reply, request: Request) -> list[bytes]:
    model = reply.model or request.model
    if len(reply.blocks) == 1:
        (only,) = reply.blocks
        if isinstance(only, Text) and len(only.text) < LONG:
            return _draw_text(form, only.text, reply.stop, reply.usage, model, reply.chunks)
    return _write(form, reply, model, request.tools)


@lru_cache(KEPT)
def _draw_text(
    form: Form, text: str, stop: Stop, usage: Usage, model: str, chunks: tuple[str, ...]
) -> list[bytes]:
    return _write(form, Reply((Text(text),), stop, usage, chunks=chunks), model)


def _write(form: Form, reply: Reply, model: str, tools: tuple[Tool, ...] = ()) -> list[bytes]:
    if form == "whole":
        return [write_completion(reply, model, tools)]
    return write_events(reply, model, tools, counted=form == "counted events")
