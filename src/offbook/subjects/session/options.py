"""What a session is given: checked, so that a wrong one is told before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, cast

import msgspec

from offbook.errors import UsageError, nearest
from offbook.exchange.messages import JSON

MINIMAL = "You are an agent. Use the tools that you are given."
MISSPELT = 0.65  # extensions have settings of their own: only what is nearly ours is refused


class Skill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that the agent can read up on; it stands in the system prompt."""

    name: str
    description: str = ""
    content: str = ""


class Settings(msgspec.Struct, frozen=True):
    """What the session itself reads of the settings; extensions find all of them in `ctx`."""

    model: str = "offbook/playbook"
    parameters: JSON = {}
    retries: int = 0


def read_list(value: object, name: str) -> list[object]:
    """A list that somebody gave, or what is wrong with it."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        kind = type(cast("object", value)).__name__
        raise UsageError(f"{name} is a list, not {kind}", hint=f"write {name}=[…]")
    return list(cast("Iterable[object]", value))


def read_mapping(value: object, name: str) -> Mapping[str, Any]:
    """A dict that somebody gave, or what is wrong with it."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(
            f"{name} is a dict, not {type(value).__name__}", hint=f'write {name}={{"name": …}}'
        )
    return cast("Mapping[str, Any]", value)


def read_settings(raw: Mapping[str, Any]) -> Settings:
    """Our part of the settings; one that is nearly called like ours is refused."""
    known = Settings.__struct_fields__
    for key in raw:
        if not isinstance(key, str):
            raise UsageError(f"settings has the key {key!r}", hint="settings are named by strings")
        if key not in known and get_close_matches(key, known, n=1, cutoff=MISSPELT):
            raise UsageError(f"settings has no {key!r}", hint=nearest(key, known))
    try:
        return msgspec.convert({k: v for k, v in raw.items() if k in known}, Settings)
    except msgspec.ValidationError as error:
        raise UsageError(f"settings: {error}") from error


def compose_system(system: str, skills: Iterable[Skill | Mapping[str, Any]]) -> str:
    """The system prompt, with the skills in it."""
    if not isinstance(system, str):
        raise UsageError(f"system_prompt is a string, not {type(system).__name__}")
    parts = [system]
    for skill in read_list(skills, "skills"):
        try:
            read = skill if isinstance(skill, Skill) else msgspec.convert(skill, Skill)
        except msgspec.ValidationError as error:
            hint = "give Skill(name, description, content)"
            raise UsageError(f"skills: {error}", hint=hint) from error
        about = f"# Skill {read.name}\n{read.description}\n{read.content}"
        parts.append(about.rstrip())
    return "\n\n".join(parts)
