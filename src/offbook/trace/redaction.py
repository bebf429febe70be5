"""One engine hides what is secret and evens out what never stays the same.

    Redaction(patterns={"user": "user_[a-z0-9]+", "$UUID": True}, paths=["$.created_at"])

It serves cassettes, snapshots, traces and reports. Secrets are hidden always; the built-in
patterns when they are asked for by name; a preset knows what differs between two runs of the
same command-line agent. The door of jsonpath-rfc9535.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import UsageError, did_you_mean
from offbook.secrets import MASK, hide_secrets, is_placeholder, is_secret_name, known_secrets
from offbook.trace.text_patterns import (
    LiteralPattern,
    TrustedPattern,
    UserPattern,
    compile_pattern,
    compile_trusted,
)

if TYPE_CHECKING:
    from pathlib import Path

    import jsonpath_rfc9535

ISO = r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?"
UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
IDS = (  # there is a digit in every id, and in hardly any word
    r"(?:call|toolu|msg|resp|fc|rs|ctc|chatcmpl|req|run|thread|sess)"
    r"[_-](?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{6,}"
)
DATE = r"(?<![\d-])\d{4}-\d{2}-\d{2}(?![\d-])"
LONG_DATE = r"\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, [A-Z][a-z]+ \d{1,2}, \d{4}\b"
ANY_ID = rf"\b{UUID}\b|\b{IDS}\b"
OWN_ID = rf"{ANY_ID}|\bplaybook-tc-\d+\b"
TMP = r"(?:/private)?(?:/var/folders/\w+/\w+/T|/var/tmp|/tmp)/[^\s/'\"\\<>`)]+"
UNITS = r"(?:ms|µs|us|ns|s|secs?|seconds?|minutes?)"
BUILTIN: dict[str, tuple[tuple[str, str], ...]] = {
    "$TIMESTAMP": ((ISO, "[TIMESTAMP]"),),
    "$UUID": ((OWN_ID, "[UUID]"),),
    "$API_KEY": (),  # hidden in any case
    "$PATH": ((r"(?<![\w/.:<])(?:/[\w.@+~-]+){2,}/?|\b[A-Za-z]:\\[\w.@+~\\-]+", "[WORKSPACE]"),),
    "$DURATION": ((rf"(?<![\w.])\d+(?:\.\d+)?\s?{UNITS}\b", "[DURATION]"),),
}
# What differs between two identical runs of a client: texts, and places in its requests.
PRESETS: dict[str, tuple[tuple[tuple[str, str], ...], tuple[str, ...]]] = {
    "claude-code": (
        (
            (DATE, "[DATE]"),
            (r"(?<!\d)1[5-9]\d{11}(?!\d)", "[TIMESTAMP]"),
            (ANY_ID, "[UUID]"),
        ),
        ("$.metadata.user_id", "$..cache_control"),
    ),
    "codex": (
        (
            (DATE, "[DATE]"),
            (r"(?<!\d)1[5-9]\d{11}(?!\d)", "[TIMESTAMP]"),
            (ANY_ID, "[UUID]"),
            (r"Chunk ID: \w+", "Chunk ID: [ID]"),
            (r"Wall time: [\d.]+ seconds?", "Wall time: [DURATION]"),
            (r"Original token count: \d+", "Original token count: [COUNT]"),  # paths count, too
        ),
        ("$.client_metadata", "$.prompt_cache_key", "$.input[*].id", "$.metadata"),
    ),
    "gemini-cli": (
        (
            (rf"\b{UUID}\b", "[UUID]"),
            (DATE, "[DATE]"),
            (LONG_DATE, "[DATE]"),
            (r"(?<=Process Group PGID: )\d+|(?<=Background PIDs: )[\d, ]+", "[PID]"),
        ),
        ("$..thoughtSignature",),
    ),
}
# One of these signs stands in whatever the pattern finds.
REQUIRED_CHARACTERS = {ISO: ":", DATE: "-", ANY_ID: "-_", OWN_ID: "-_", TMP: "/"}
PROGRAMS = {"claude": "claude-code", "codex": "codex", "gemini": "gemini-cli"}
REDACTED = "[REDACTED]"
SHALLOW = 2  # the parts of a folder right below the root
Replacement = tuple[UserPattern | TrustedPattern | LiteralPattern, str]


class RedactionRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a user writes: patterns by name, JSON paths, and the clients whose noise is known."""

    patterns: dict[str, str | bool] = {}
    paths: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()


class Redaction:
    """Hides secrets, and whatever else it was told to, in texts and in JSON."""

    def __init__(
        self,
        rules: RedactionRules | Mapping[str, Any] | None = None,
        *,
        roots: Mapping[str, Path] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        read = parse_redaction_rules(rules)
        self._known = known_secrets(environment)
        self._rules = [*_root_rules(roots or {}), *_rules(read)]
        self._paths = [_path(path) for path in (*read.paths, *_preset_paths(read.presets))]

    def text(self, text: str) -> str:
        """A text, redacted."""
        text = hide_secrets(text, self._known)
        for pattern, replacement in self._rules:
            text = pattern.replace(replacement, text)
        return text

    def value(self, value: Any) -> Any:
        """A JSON value, redacted: by the paths first, then by field names and texts."""
        for path in self._paths:
            value = _blank(path, value)
        return self._walk(value)

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, Any]", value)
            return {self.text(name): self._field(name, held) for name, held in fields.items()}
        if isinstance(value, (list, tuple)):
            items = cast("Sequence[Any]", value)
            return [self._item(before, item) for before, item in zip(("", *items), items)]  # noqa: B905 - the last is before none
        return value

    def _item(self, before: Any, item: Any) -> Any:
        """An item of a list: of a command line, say, where a secret stands behind its option."""
        option = before if isinstance(before, str) and before.startswith("-") else ""
        return self._field(option.lstrip("-").replace("-", "_"), item)

    def _field(self, name: str, held: Any) -> Any:
        if not is_secret_name(name):
            return self._walk(held)
        if isinstance(held, (list, tuple)):  # a header that came more than once
            return [self._field(name, one) for one in cast("Sequence[Any]", held)]
        secret = isinstance(held, str) and held and not is_placeholder(held)
        return MASK if secret else self._walk(held)


def parse_redaction_rules(rules: RedactionRules | Mapping[str, Any] | None) -> RedactionRules:
    """What a user wrote, as rules."""
    if rules is None:
        return RedactionRules()
    if isinstance(rules, RedactionRules):
        return rules
    try:
        return msgspec.convert(rules, RedactionRules)
    except msgspec.ValidationError as error:
        raise UsageError(
            str(error),
            where="redactions",
            hint='give {"patterns": {…}, "paths": […], "presets": […]}',
        ) from error


def preset_for_command(command: Sequence[str]) -> tuple[str, ...]:
    """The preset of the client that a command starts, if it is a known one."""
    found = PROGRAMS.get(PurePath(command[0]).stem) if command else None
    return (found,) if found else ()


def describe_redaction(read: RedactionRules) -> object:
    """All that these rules do, also what their names stand for here and now."""
    return read, BUILTIN, [PRESETS[preset] for preset in read.presets if preset in PRESETS]


def _rules(read: RedactionRules) -> list[Replacement]:
    found: list[Replacement] = []
    for preset in read.presets:
        if preset not in PRESETS:
            raise UsageError(
                f"there is no redaction preset {preset!r}",
                where="redactions.presets",
                hint=did_you_mean(preset, PRESETS),
            )
        found += [_trusted(*rule) for rule in PRESETS[preset][0]]
    for name, source in read.patterns.items():
        if source is False:
            continue
        found += _builtin(name) if source is True else [_custom(name, source)]
    return found


def _builtin(name: str) -> list[Replacement]:
    if name not in BUILTIN:
        raise UsageError(
            f"there is no built-in redaction {name!r}",
            hint=f"{did_you_mean(name, BUILTIN)}; for your own, write {{{name!r}: 'a pattern'}}",
        )
    return [_trusted(*rule) for rule in BUILTIN[name]]


def _trusted(source: str, text: str) -> Replacement:
    return compile_trusted(source, REQUIRED_CHARACTERS.get(source, "")), text


def _custom(name: str, source: str) -> Replacement:
    mark = f"[{re.sub(r'[^A-Za-z0-9]+', '_', name).strip('_').upper()}]"
    if source in REQUIRED_CHARACTERS:
        return _trusted(source, mark)
    where = f"redactions.patterns[{name!r}]"
    pattern = compile_pattern(source, where)
    if pattern.search("") is not None:
        raise UsageError(
            f"the pattern {source!r} matches the empty text, so it would match everywhere",
            where=where,
            hint="let it match at least one character",
        )
    return pattern, mark


def _root_rules(roots: Mapping[str, Path]) -> list[Replacement]:
    """A folder's path and the slug that clients make of it, by the name that stands for it."""
    found: list[Replacement] = []
    for name, root in roots.items():
        for text in dict.fromkeys((str(root), str(root.resolve()))):
            found.append((folder_pattern(text), f"[{name}]"))
            if len(PurePath(text).parts) > SHALLOW:
                slug = re.sub(r"[^A-Za-z0-9]", "-", text)
                found.append((LiteralPattern(slug), f"[{name}]"))
    return found


def folder_pattern(text: str) -> LiteralPattern | TrustedPattern:
    """What finds a folder in a text: one such as /app only where it is not a part of a name."""
    if len(PurePath(text).parts) > SHALLOW:
        return LiteralPattern(text)
    return compile_trusted(rf"(?<![\w.:/@~-]){re.escape(text)}(?![\w.@~-])")


def _preset_paths(presets: Iterable[str]) -> list[str]:
    return [path for preset in presets for path in PRESETS[preset][1]]


@lru_cache(maxsize=256)
def _path(source: str) -> jsonpath_rfc9535.JSONPathQuery:
    import jsonpath_rfc9535

    try:
        return jsonpath_rfc9535.compile(source)
    except jsonpath_rfc9535.JSONPathError as error:
        raise UsageError(
            f"the JSON path {source!r} is wrong: {error}",
            where="redactions.paths",
            hint="paths look like $.response.headers['x-request-id']",
        ) from error


def _blank(path: jsonpath_rfc9535.JSONPathQuery, value: Any) -> Any:
    for node in path.find(value):
        value = _replaced(value, tuple(node.location))
    return value


def _replaced(value: Any, location: tuple[str | int, ...]) -> Any:
    """The value with something else at this place; what was given stays as it is."""
    if not location:
        return REDACTED
    first, rest = location[0], location[1:]
    copied: Any = copy(value)
    copied[first] = _replaced(copied[first], rest)
    return copied
