"""Presets: the hats of a loop, their topics, and the limits of the loop.

A preset is a YAML or JSON file, or a dict. Those of the orchestrator Ralph can be used unchanged:

    event_loop: {completion_promise: LOOP_COMPLETE, max_iterations: 20}
    hats:
      planner: {triggers: [task.*], publishes: [build.task], instructions: "…"}
      builder: {triggers: [build.task], publishes: [build.done]}
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec

from offbook.errors import FormatError, OffbookWarning
from offbook.files import convert, find_line, parse_document, read_text

COMPLETION_PROMISE = "LOOP_COMPLETE"
MIN_PREFIX = 6  # characters of a shortened key, such as `max_iter`
RALPH = "ralph"  # the hat of an iteration without pending events
Count = Annotated[int, msgspec.Meta(ge=0)]
Amount = Annotated[float, msgspec.Meta(ge=0)]


class Hat(msgspec.Struct, frozen=True):
    """A role that the agent takes when an event of one of its topics is pending."""

    name: str = ""
    description: str = ""
    triggers: Annotated[
        tuple[str, ...],
        msgspec.Meta(description="Topics that select this hat; `*` is one part: `build.*`."),
    ] = ()
    subscribes_to: Annotated[
        tuple[str, ...], msgspec.Meta(description="Another name of `triggers`.")
    ] = ()
    publishes: Annotated[
        tuple[str, ...],
        msgspec.Meta(description="Topics that this hat may publish, with `enforce_hat_scope`."),
    ] = ()
    default_publishes: Annotated[
        str, msgspec.Meta(description="Topic to publish if an answer publishes none.")
    ] = ""
    instructions: Annotated[str, msgspec.Meta(description="A part of the prompt.")] = ""
    extra_instructions: Annotated[
        tuple[str, ...], msgspec.Meta(description="More parts of the prompt.")
    ] = ()
    max_activations: Annotated[
        Count | None, msgspec.Meta(description="Iterations of this hat; then `HAT.exhausted`.")
    ] = None

    @property
    def prompt(self) -> str:
        """The instructions for the agent."""
        return "\n\n".join(filter(None, (self.instructions, *self.extra_instructions)))

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it subscribes to; presets use either of two keys."""
        return self.triggers or self.subscribes_to


class EventLoop(msgspec.Struct, frozen=True):
    """The conditions that end the loop."""

    completion_promise: str = COMPLETION_PROMISE
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
    """Settings of the agents' task file: if enabled, its tasks must be closed at the end."""

    enabled: bool = False


class Preset(msgspec.Struct, frozen=True):
    """The parts of a preset that the loop uses; other keys belong to other tools."""

    event_loop: EventLoop = EventLoop()
    hats: dict[str, Hat] | None = None
    # Enabled if the key is missing, but not if it is an empty object: that is Ralph's rule.
    memories: Memories = Memories(enabled=True)


# Keys that first-version presets have at the top level instead of in `event_loop`.
FLAT_KEYS = {
    "max_iterations": "max_iterations",
    "max_runtime": "max_runtime_seconds",
    "max_runtime_seconds": "max_runtime_seconds",
    "max_cost": "max_cost_usd",
    "completion_promise": "completion_promise",
}

# Keys that Ralph reads and the loop does not use. Other unknown keys are reported; a key that
# begins with "_" holds a part for an anchor, or another tool's data.
RALPH_KEYS = {
    "": """cli core events agent agent_priority prompt_file verbose archive_prompts enable_metrics
        max_tokens retry_delay adapters tui tasks skills features hooks backpressure RObot""",
    "event_loop": """prompt prompt_file cooldown_delay_seconds starting_hat checkpoint_interval
        idle_timeout_secs mutation_score_warn_threshold""",
    "memories": "inject budget filter",
    "hats": "backend backend_args scratchpad disallowed_tools timeout max_tokens",
}

DEFAULT_HATS = {
    "planner": Hat(
        "Planner",
        "Plans, and hands out one task at a time.",
        triggers=("task.*", "build.done", "build.blocked"),
        publishes=("build.task",),
    ),
    "builder": Hat(
        "Builder",
        "Builds the task at hand.",
        triggers=("build.task",),
        publishes=("build.done", "build.blocked"),
    ),
}


def read_preset(
    source: Path | str | Mapping[str, Any] | Preset | None,
    *,
    path: Path | str = "config",
    text: str = "",
    at: str = "$",
    limits: Mapping[str, float] | None = None,
) -> Preset:
    """Return a preset from a file or a dict; without hats, those of a planner and a builder.

    `limits` are those of the `event_loop` that the preset does not have.

    A dict may come from a document: `path`, `text` and its location `at` are for errors. In a
    document, an unknown key is an error if it resembles a known one, otherwise a warning.
    """
    if source is None:
        return Preset(hats=DEFAULT_HATS)
    if isinstance(source, Preset):
        return source
    value: Any = source
    if not isinstance(source, Mapping):
        path, text = Path(source), read_text(Path(source))
        value = parse_document(text, path)
    for location, fields, known in _list_keys(value):
        ralph = RALPH_KEYS[location.removeprefix(".").partition(".")[0]].split()
        for key in fields:
            if key in known or key in ralph:
                continue
            where = f"{at}{location}.{key}"
            line = find_line(text, where) if text else None
            # Ralph's plugins have keys of their own: only a likely typo is an error.
            if close := _find_intended(str(key), known):
                fact, hint = f"unknown key {key!r} (at {where})", f"did you mean {close!r}?"
                raise FormatError(fact, path=path, line=line, hint=hint)
            if text and not str(key).startswith("_"):
                warnings.warn(
                    f"{path}:{line}: unknown key {key!r} is ignored (at {where})",
                    OffbookWarning,
                    stacklevel=2,
                )
    preset = convert(_normalize(value, limits or {}), Preset, path=path, text=text, at=at)
    hats = DEFAULT_HATS if preset.hats is None else preset.hats
    return msgspec.structs.replace(preset, hats=hats)


def _list_keys(preset: Any) -> list[tuple[str, Mapping[str, Any], tuple[str, ...]]]:
    """Return the location, the fields and the known keys of each part of a preset."""
    if not isinstance(preset, Mapping):
        return []
    root = cast("Mapping[str, Any]", preset)
    hats = root.get("hats")
    parts = [
        ("", root, (*Preset.__struct_fields__, *FLAT_KEYS)),
        (".event_loop", root.get("event_loop"), EventLoop.__struct_fields__),
        (".memories", root.get("memories"), Memories.__struct_fields__),
    ]
    if isinstance(hats, Mapping):
        named = cast("Mapping[str, Any]", hats).items()
        parts += [(f".hats.{name}", hat, Hat.__struct_fields__) for name, hat in named]
    return [(at, fields, known) for at, fields, known in parts if isinstance(fields, Mapping)]


def _find_intended(key: str, known: Iterable[str]) -> str:
    """Return the known key that is meant by a misspelled or shortened one, or ""."""
    from difflib import get_close_matches

    shortened = [name for name in known if len(key) >= MIN_PREFIX and name.startswith(key)]
    return next(iter([*get_close_matches(key, known, n=1, cutoff=0.8), *shortened]), "")


def _normalize(preset: Any, limits: Mapping[str, float]) -> Any:
    """Return a preset of any version in the newest layout."""
    if not isinstance(preset, Mapping):
        return preset
    fields: dict[str, Any] = _without_nulls(preset)
    event_loop = _without_nulls(fields.get("event_loop", {}))
    if isinstance(event_loop, dict):
        flat = {FLAT_KEYS[name]: fields[name] for name in FLAT_KEYS if name in fields}
        fields["event_loop"] = {**limits, **cast("dict[str, Any]", event_loop), **flat}
    if isinstance(fields.get("hats"), dict):
        fields["hats"] = {name: _without_nulls(hat) for name, hat in fields["hats"].items()}
    return fields


def _without_nulls(value: Any) -> Any:
    """Drop keys without a value: in a preset they mean the default."""
    if not isinstance(value, Mapping):
        return value
    items = cast("Mapping[str, Any]", value).items()
    return {key: item for key, item in items if item is not None}
