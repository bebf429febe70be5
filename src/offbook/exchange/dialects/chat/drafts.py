"""Completions and streams of them, drafted: all is there but the id, and a text is drafted once."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal, cast

from offbook.exchange.dialects.chat.encode import write_completion
from offbook.exchange.dialects.chat.stream import write_events
from offbook.exchange.messages import JSON, Text
from offbook.exchange.reply import Reply, Stop, Usage
from offbook.exchange.templates import Template

if TYPE_CHECKING:
    from offbook.exchange.request import Request, Tool

KEPT = 256
LONG = 10_000

Form = Literal["whole", "events", "counted events"]


def draft_completion(reply: Reply, request: Request) -> Template:
    """The completion, in one piece."""
    return _draft("whole", reply, request)


def draft_events(reply: Reply, request: Request) -> Template:
    """The events of a stream, with the usage at its end if that was asked for."""
    options = request.parameters.get("stream_options")
    counted = isinstance(options, dict) and bool(cast("JSON", options).get("include_usage"))
    return _draft("counted events" if counted else "events", reply, request)


def _draft(form: Form, reply: Reply, request: Request) -> Template:
    model = reply.model or request.model
    if len(reply.blocks) == 1:
        (only,) = reply.blocks
        if isinstance(only, Text) and len(only.text) < LONG:
            return _draft_text(form, only.text, reply.stop, reply.usage, model, reply.chunks)
    return _write(form, reply, model, request.tools)


@lru_cache(KEPT)
def _draft_text(
    form: Form, text: str, stop: Stop, usage: Usage, model: str, chunks: tuple[str, ...]
) -> Template:
    return _write(form, Reply((Text(text),), stop, usage, chunks=chunks), model)


def _write(form: Form, reply: Reply, model: str, tools: tuple[Tool, ...] = ()) -> Template:
    if form == "whole":
        return Template((write_completion(reply, model, tools),))
    return Template(write_events(reply, model, tools, counted=form == "counted events"))
