"""What the commands read, alike in all of them: JSON itself, a file, or the standard input."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, cast

import msgspec

from offbook.errors import UsageError
from offbook.files import parse_json, parse_yaml, read_text

VALUE = "JSON, a JSON or YAML file, or - for stdin"


def read_value(word: str, what: str) -> Any:
    """The value that a word stands for."""
    if word == "-":
        return parse_yaml(sys.stdin.read(), "stdin")
    if word.lstrip().startswith(("{", "[")):
        return parse_json(word, what)
    path = Path(word)
    text = read_text(path)
    return parse_json(text, path) if path.suffix == ".json" else parse_yaml(text, path)


def read_object(word: str | None, what: str) -> dict[str, Any] | None:
    """The value, which has to be one with fields."""
    value = None if word is None else read_value(word, what)
    if value is not None and not isinstance(value, dict):
        raise UsageError(f"{what} is an object, not {type(value).__name__}", hint='{"name": …}')
    return cast("dict[str, Any] | None", value)


def read_list(words: tuple[str, ...], what: str) -> list[Any]:
    """All values of all words, in order; a word may hold one or a list of them."""
    found: list[Any] = []
    for word in words:
        value = read_value(word, what)
        found += value if isinstance(value, list) else [value]
    return found


def read_pairs(words: tuple[str, ...], what: str) -> dict[str, str]:
    """NAME=VALUE, as a dict."""
    found: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise UsageError(f"{what} {word!r} is not NAME=VALUE")
        found[name] = value
    return found


def read_env(words: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE, or NAME alone for what it is here: nothing else goes to an agent."""
    here = [word for word in words if "=" not in word]
    missing = [name for name in here if name not in os.environ]
    if missing:
        raise UsageError(f"env {missing[0]!r} is not set here", hint="give it: NAME=VALUE")
    given = read_pairs(tuple(word for word in words if "=" in word), "env")
    return {**{name: os.environ[name] for name in here}, **given}


def read_redactions(given: tuple[str, ...], presets: tuple[str, ...]) -> dict[str, Any]:
    """Redactions as people paste them: JSON objects, one after the other, and presets."""
    patterns: dict[str, Any] = {}
    paths: list[str] = []
    named = [*presets]
    for text in given:
        try:
            rules = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise UsageError(
                f"--redact {text!r} is no JSON object: {error}",
                hint='write --redact \'{"patterns": {"user_id": "user_[a-z0-9]+"}}\'',
            ) from error
        patterns.update(rules.pop("patterns", {}))
        paths += rules.pop("paths", [])
        named += rules.pop("presets", [])
        if rules:
            raise UsageError(
                f"--redact knows no {next(iter(rules))!r}", hint="it has patterns, paths, presets"
            )
    return {"patterns": patterns, "paths": paths, "presets": named}
