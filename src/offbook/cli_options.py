"""What the commands read, alike in all of them: JSON itself, a file, or the standard input."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from offbook.errors import UsageError
from offbook.exchange.dialects.validation import RULES
from offbook.files import parse_json, read_text
from offbook.yaml_files import parse_yaml

# --- What the commands read, alike in all of them: JSON itself, a file, or the standard input.

VALUE_HELP = "JSON, a JSON or YAML file, or - for stdin"


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


# --- The options that several commands have, alike in all of them.

FILE_PATH = click.Path(path_type=Path)
PORT_NUMBER = click.IntRange(0, 65_535)


deadline_option = click.option(
    "--deadline",
    default=600.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds that the command may take.",
)
env_option = click.option(
    "--env", multiple=True, metavar="NAME[=VALUE]", help="For the agent; repeatable."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
preset_option = click.option(
    "--preset", multiple=True, metavar="CLIENT", help="What is known of a client."
)
trace_option = click.option("--trace", type=FILE_PATH, help="Write what happened to this file.")
upstream_option = click.option("--upstream", metavar="URL", help="The base URL of the real model.")


# --- What the commands print, alike in all of them.


def use_colour() -> bool:
    """Colours are for a terminal, and for nobody who set NO_COLOR."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def print_json(value: Any) -> None:
    """Print a value for machines, a field a line."""
    print_redacted(
        msgspec.json.format(msgspec.json.encode(value, enc_hook=repr), indent=2).decode()
    )


def print_redacted(text: str) -> None:
    """Print what may have a secret in it, without."""
    from offbook.secrets import hide_secrets, known_secrets

    click.echo(hide_secrets(text, known_secrets()))


# --- The option `--lenient`, and what it can name.

LENIENT_RULES_HELP = "\n\n\b\nRules for --lenient, all of them held otherwise:\n" + "\n".join(
    f"  {name:<20} {refused}" for name, refused in RULES.items()
)

lenient_option = click.option(
    "--lenient",
    multiple=True,
    metavar="RULE",
    help="Let pass what a provider would refuse; repeatable.",
)
