"""Redaction: hides secrets, and replaces values that differ between two runs.

    Redaction(RedactionRules(patterns={"user": "user_[a-z0-9]+", "$UUID": True}, paths=("$.at",)))

It serves cassettes, snapshots, traces and reports. Secrets are always hidden; the built-in
patterns only if they are named; a preset has the volatile values of a command-line agent. Only
this module imports jsonpath-rfc9535.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from functools import lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import UsageError, did_you_mean
from offbook.secrets import MASK, hide_secrets, is_secret_name, known_secrets
from offbook.secrets.named_values import is_secret_field
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
IDS = (  # every id has a digit, and hardly any word does
    r"(?:call|toolu|tooluse|msg|resp|fc|rs|ctc|chatcmpl|req|run|thread|sess)"
    r"[_-](?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{6,}"
)
DATE = r"(?<![\d-])\d{4}-\d{2}-\d{2}(?![\d-])"
LONG_DATE = r"\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, [A-Z][a-z]+ \d{1,2}, \d{4}\b"
ANY_ID = rf"\b{UUID}\b|\b{IDS}\b"
TMP = r"(?:/private)?(?:/var/folders/\w+/\w+/T|/var/tmp|/tmp)/[^\s/'\"\\<>`)]+"
UNITS = r"(?:ms|µs|us|ns|s|secs?|seconds?|minutes?)"
BUILTIN: dict[str, tuple[tuple[str, str], ...]] = {
    "$TIMESTAMP": ((ISO, "[TIMESTAMP]"),),
    "$UUID": ((ANY_ID, "[UUID]"),),
    "$API_KEY": (),  # always hidden: accepted so that it can be named
    "$PATH": ((r"(?<![\w/.:<])(?:/[\w.@+~-]+){2,}/?|\b[A-Za-z]:\\[\w.@+~\\-]+", "[WORKSPACE]"),),
    "$DURATION": ((rf"(?<![\w.])\d+(?:\.\d+)?\s?{UNITS}\b", "[DURATION]"),),
}
# The values that differ between two runs of a client: in texts, and at paths of its requests.
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
            (r"Original token count: \d+", "Original token count: [COUNT]"),  # depends on the paths
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
# Every match of these patterns contains one of the characters.
REQUIRED_CHARACTERS = {ISO: ":", DATE: "-", ANY_ID: "-_", TMP: "/"}
PROGRAMS = {"claude": "claude-code", "codex": "codex", "gemini": "gemini-cli"}
REDACTED = "[REDACTED]"
SHALLOW = 2  # the parts of a path directly below the root, such as /app
Replacement = tuple[UserPattern | TrustedPattern | LiteralPattern, str]


class RedactionRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rules that a user writes: patterns by name, JSON paths, and presets of clients.

    A pattern is an expression, or True for a built-in one, or False to switch it off.
    """

    patterns: dict[str, str | bool] = {}
    paths: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()


class Redaction:
    """Redacts texts and JSON values. `roots` are folders, by the name that replaces their path."""

    def __init__(
        self,
        rules: RedactionRules | Mapping[str, Any] | None = None,
        *,
        roots: Mapping[str, Path] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        parsed = parse_redaction_rules(rules)
        self._known = known_secrets(environment)
        # roots first: a path must be replaced before a pattern changes a part of it
        self._replacements = [*_root_replacements(roots or {}), *_rule_replacements(parsed)]
        preset_paths = [path for preset in parsed.presets for path in PRESETS[preset][1]]
        self._paths = [_compile_path(path) for path in (*parsed.paths, *preset_paths)]

    def text(self, text: str) -> str:
        """Return a text, redacted."""
        text = hide_secrets(text, self._known)
        for pattern, replacement in self._replacements:
            text = pattern.replace(replacement, text)
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON value, redacted: first by paths, then by field names and in texts."""
        for path in self._paths:
            for node in path.find(value):
                value = _replace_at(value, tuple(node.location))
        return self._redact(value)

    def _redact(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, Any]", value)
            return {self.text(name): self._redact_field(name, v) for name, v in fields.items()}
        if isinstance(value, (list, tuple)):
            items = cast("Sequence[Any]", value)
            # in a command line, the item after an option such as --api-key is its value
            return [
                self._redact_field(_option_name(previous), item)
                for previous, item in zip(("", *items), items)  # noqa: B905 - the last item precedes none
            ]
        return value

    def _redact_field(self, name: str, value: Any) -> Any:
        if not is_secret_name(name):
            return self._redact(value)
        if isinstance(value, (list, tuple)):  # a header with several values
            return [self._redact_field(name, item) for item in cast("Sequence[Any]", value)]
        is_secret = isinstance(value, str) and is_secret_field(name, value)
        return MASK if is_secret else self._redact(value)


def _option_name(item: Any) -> str:
    """Return `api_key` for the command-line option `--api-key`, and nothing for another item."""
    if not isinstance(item, str) or not item.startswith("-"):
        return ""
    return item.lstrip("-").replace("-", "_")


def parse_redaction_rules(rules: RedactionRules | Mapping[str, Any] | None) -> RedactionRules:
    """Return the rules that a user wrote as a struct."""
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
    """Return the preset of the client that a command starts, if there is one."""
    preset = PROGRAMS.get(PurePath(command[0]).stem) if command else None
    return (preset,) if preset else ()


def describe_redaction(rules: RedactionRules) -> object:
    """Return the rules with the definitions of their names, to notice when these change."""
    return rules, BUILTIN, [PRESETS[preset] for preset in rules.presets if preset in PRESETS]


def _rule_replacements(rules: RedactionRules) -> list[Replacement]:
    replacements: list[Replacement] = []
    for preset in rules.presets:
        if preset not in PRESETS:
            raise UsageError(
                f"unknown redaction preset {preset!r}",
                where="redactions.presets",
                hint=did_you_mean(preset, PRESETS),
            )
        replacements += [_trusted(*rule) for rule in PRESETS[preset][0]]
    for name, source in rules.patterns.items():
        if source is False:
            continue
        if source is not True:
            replacements.append(_custom_replacement(name, source))
        elif name in BUILTIN:
            replacements += [_trusted(*rule) for rule in BUILTIN[name]]
        else:
            raise UsageError(
                f"unknown built-in redaction {name!r}",
                hint=f"{did_you_mean(name, BUILTIN)}; for a custom one, write "
                f"{{{name!r}: 'a pattern'}}",
            )
    return replacements


def _trusted(source: str, replacement: str) -> Replacement:
    return compile_trusted(source, REQUIRED_CHARACTERS.get(source, "")), replacement


def _custom_replacement(name: str, source: str) -> Replacement:
    mark = f"[{re.sub(r'[^A-Za-z0-9]+', '_', name).strip('_').upper()}]"
    if source in REQUIRED_CHARACTERS:  # written out, but one of ours
        return _trusted(source, mark)
    where = f"redactions.patterns[{name!r}]"
    pattern = compile_pattern(source, where)
    if pattern.search("") is not None:
        raise UsageError(
            f"the pattern {source!r} matches the empty text, so it would match everywhere",
            where=where,
            hint="make it match at least one character",
        )
    return pattern, mark


def _root_replacements(roots: Mapping[str, Path]) -> list[Replacement]:
    """Return the replacements of each folder: its path, and the slug that clients make of it."""
    replacements: list[Replacement] = []
    for name, root in roots.items():
        for text in dict.fromkeys((str(root), str(root.resolve()))):
            replacements.append((folder_pattern(text), f"[{name}]"))
            if len(PurePath(text).parts) > SHALLOW:
                slug = re.sub(r"[^A-Za-z0-9]", "-", text)
                replacements.append((LiteralPattern(slug), f"[{name}]"))
    return replacements


def folder_pattern(text: str) -> LiteralPattern | TrustedPattern:
    """Return a pattern for a folder's path; /app must not match within /apple or src/app."""
    if len(PurePath(text).parts) > SHALLOW:
        return LiteralPattern(text)
    return compile_trusted(rf"(?<![\w.:/@~-]){re.escape(text)}(?![\w.@~-])")


@lru_cache(maxsize=256)
def _compile_path(source: str) -> jsonpath_rfc9535.JSONPathQuery:
    import jsonpath_rfc9535  # late: most runs have no paths

    try:
        return jsonpath_rfc9535.compile(source)
    except jsonpath_rfc9535.JSONPathError as error:
        raise UsageError(
            f"invalid JSON path {source!r}: {error}",
            where="redactions.paths",
            hint="paths look like $.response.headers['x-request-id']",
        ) from error


def _replace_at(value: Any, location: tuple[str | int, ...]) -> Any:
    """Return a copy of the value with a mark at this location."""
    # A path such as `$..*` also matches inside of a value that is redacted already.
    if not location or value == REDACTED:
        return REDACTED
    first, rest = location[0], location[1:]
    copied: Any = copy(value)
    copied[first] = _replace_at(copied[first], rest)
    return copied
