"""Which hats there are, what they listen to, and when the loop ends. Ralph's presets fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from offbook.files import convert, read_document

PROMISE = "LOOP_COMPLETE"
RALPH = "ralph"


class Hat(msgspec.Struct, frozen=True):
    """A role that the agent takes when one of its topics comes."""

    name: str = ""
    description: str = ""
    triggers: tuple[str, ...] = ()
    subscribes_to: tuple[str, ...] = ()
    publishes: tuple[str, ...] = ()
    default_publishes: str = ""
    instructions: str = ""
    max_activations: int | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """What it listens to, under either name."""
        return self.triggers or self.subscribes_to


class EventLoop(msgspec.Struct, frozen=True):
    """When the loop ends."""

    completion_promise: str = PROMISE
    max_iterations: int = 100
    max_runtime_seconds: float = 14_400
    max_cost_usd: float | None = None
    max_consecutive_failures: int = 5
    starting_event: str = "task.start"
    required_events: tuple[str, ...] = ()
    cancellation_promise: str = ""
    enforce_hat_scope: bool = False
    backpressure: bool = False


class Preset(msgspec.Struct, frozen=True):
    """What of a preset the loop reads; the rest belongs to other tools and is left alone."""

    event_loop: EventLoop = EventLoop()
    hats: dict[str, Hat] | None = None
    max_iterations: int | None = None
    max_runtime_seconds: float | None = None
    completion_promise: str | None = None


PLANNER = Hat(
    "Planner",
    "Plans, and hands out one task at a time.",
    triggers=("task.*", "build.done", "build.blocked"),
    publishes=("build.task",),
)
BUILDER = Hat(
    "Builder",
    "Builds the task at hand.",
    triggers=("build.task",),
    publishes=("build.done", "build.blocked"),
)
CLASSIC = {"planner": PLANNER, "builder": BUILDER}


def read_preset(source: Path | str | Mapping[str, Any] | None) -> Preset:
    """A preset from a file, a dict, or nothing at all: then a planner and a builder."""
    if source is None:
        return Preset(hats=CLASSIC)
    if isinstance(source, Mapping):
        preset = convert(dict(source), Preset, path="config")
    else:
        preset = read_document(Path(source), Preset)
    loop = preset.event_loop
    for name in ("max_iterations", "max_runtime_seconds", "completion_promise"):
        value = getattr(preset, name)
        if value is not None:
            loop = msgspec.structs.replace(loop, **{name: value})
    hats = CLASSIC if preset.hats is None else preset.hats
    return msgspec.structs.replace(preset, event_loop=loop, hats=hats)
