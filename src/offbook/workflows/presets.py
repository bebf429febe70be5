"""Which hats there are, what they listen to, and when the loop ends. Ralph's presets fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec

from offbook.files import convert, parse_json, read_text
from offbook.yaml_files import parse_yaml

PROMISE = "LOOP_COMPLETE"
RALPH = "ralph"
Count = Annotated[int, msgspec.Meta(ge=0)]
Amount = Annotated[float, msgspec.Meta(ge=0)]


class Hat(msgspec.Struct, frozen=True):
    """A role that the agent takes when one of its topics comes."""

    name: str = ""
    description: str = ""
    triggers: tuple[str, ...] = ()
    subscribes_to: tuple[str, ...] = ()
    publishes: tuple[str, ...] = ()
    default_publishes: str = ""
    instructions: str = ""
    extra_instructions: tuple[str, ...] = ()
    max_activations: Count | None = None

    @property
    def advice(self) -> str:
        """What the agent is told that wears it."""
        return "\n\n".join(filter(None, (self.instructions, *self.extra_instructions)))

    @property
    def topics(self) -> tuple[str, ...]:
        """What it listens to, under either name."""
        return self.triggers or self.subscribes_to


class EventLoop(msgspec.Struct, frozen=True):
    """When the loop ends."""

    completion_promise: str = PROMISE
    max_iterations: Count = 100
    max_runtime_seconds: Amount = 14_400
    max_cost_usd: Amount | None = None
    max_consecutive_failures: Count = 5
    starting_event: str = "task.start"
    required_events: tuple[str, ...] = ()
    cancellation_promise: str = ""
    enforce_hat_scope: bool = False
    backpressure: bool = False
    persistent: bool = False


class Memories(msgspec.Struct, frozen=True):
    """Whether agents keep their tasks in a file, which then has to be done with."""

    enabled: bool = False


class Preset(msgspec.Struct, frozen=True):
    """What of a preset the loop reads; the rest belongs to other tools and is left alone."""

    event_loop: EventLoop = EventLoop()
    hats: dict[str, Hat] | None = None
    memories: Memories = Memories(enabled=True)


# What stands outside of `event_loop` in presets of the first version.
FLAT_KEYS = {
    "max_iterations": "max_iterations",
    "max_runtime": "max_runtime_seconds",
    "max_runtime_seconds": "max_runtime_seconds",
    "max_cost": "max_cost_usd",
    "completion_promise": "completion_promise",
}


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
DEFAULT_HATS = {"planner": PLANNER, "builder": BUILDER}


def read_preset(source: Path | str | Mapping[str, Any] | Preset | None) -> Preset:
    """A preset from a file, a dict, or nothing at all: then a planner and a builder."""
    if source is None:
        return Preset(hats=DEFAULT_HATS)
    if isinstance(source, Preset):
        return source
    path, text = "config", ""
    value: Any = source
    if not isinstance(source, Mapping):
        path, text = Path(source), read_text(Path(source))
        value = parse_json(text, path) if path.suffix == ".json" else parse_yaml(text, path)
    preset = convert(_shape(value), Preset, path=path, text=text)
    hats = DEFAULT_HATS if preset.hats is None else preset.hats
    return msgspec.structs.replace(preset, hats=hats)


def _shape(preset: Any) -> Any:
    """A preset of any version in the shape of the newest; a key without a value says nothing."""
    if not isinstance(preset, Mapping):
        return preset
    fields: dict[str, Any] = _told(preset)
    loop = _told(fields.get("event_loop", {}))
    if isinstance(loop, dict):
        flat = {FLAT_KEYS[name]: fields[name] for name in FLAT_KEYS if name in fields}
        fields["event_loop"] = {**cast("dict[str, Any]", loop), **flat}
    if isinstance(fields.get("hats"), dict):
        fields["hats"] = {name: _told(hat) for name, hat in fields["hats"].items()}
    return fields


def _told(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    fields = cast("Mapping[str, Any]", value)
    return {key: held for key, held in fields.items() if held is not None}
