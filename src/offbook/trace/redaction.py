"""Redaction: hides secrets, and replaces values that differ between two runs.

    Redaction(RedactionRules(patterns={"user": "user_[a-z0-9]+", "$UUID": True}, paths=("$.at",)))

It serves cassettes, snapshots, traces and reports. Secrets are always hidden; the built-in
patterns only if they are named; a preset has the volatile values of a command-line agent.
`suggest_redactions` finds rules that would make two texts equal. Only this module imports
jsonpath-rfc9535.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from functools import lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import UsageError, did_you_mean, require_known
from offbook.files import convert
from offbook.secrets import (
    MASK,
    hide_secrets,
    is_secret_name,
    known_secrets,
)
from offbook.trace.matching import (
    LiteralPattern,
    TrustedPattern,
    UserPattern,
    compile_pattern,
    compile_trusted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
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
# What differs between two runs of any agent, in the texts of requests and in their options:
# cassettes, goldens of requests and comparisons of traces leave out the same.
VOLATILE_PATTERNS: dict[str, str | bool] = {"$TIMESTAMP": True, "$UUID": True, "tmp": TMP}
VOLATILE_OPTIONS = frozenset(  # they identify the client or the transport: the reply is the same
    {
        "client_metadata",
        "metadata",
        "prompt_cache_key",
        "safety_identifier",
        "stream",
        "stream_options",
        "user",
    }
)
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
PRIVATE_MEMBERS = {"d", "p", "q", "dp", "dq", "qi", "k"}  # RFC 7518
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
        text = self._hide(text)
        for pattern, replacement in self._replacements:
            text = pattern.replace(replacement, text)
        return text

    def value(self, value: Any, *, names: bool = True) -> Any:
        """Return a JSON value, redacted: first by paths, then by field names and in texts.

        Without `names`, the rules do not apply to the names of fields. Secrets in them are hidden.
        """
        for path in self._paths:
            for node in path.find(value):
                value = _replace_at(value, tuple(node.location))
        return self._redact(value, self.text if names else self._hide)

    def _hide(self, text: str) -> str:
        return hide_secrets(text, self._known)

    def _redact(self, value: Any, rename: Callable[[str], str]) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, Any]", value)
            hidden = _named_values(fields)
            return {
                rename(name): MASK if name in hidden else self._redact_field(name, v, rename)
                for name, v in fields.items()
            }
        if isinstance(value, (list, tuple)):
            items = cast("Sequence[Any]", value)
            # in a command line, the item after an option such as --api-key is its value
            return [
                MASK
                if _is_named(previous, item)
                else self._redact_field(_option_name(previous), item, rename)
                for previous, item in zip(("", *items), items)  # noqa: B905 - the last item precedes none
            ]
        return value

    def _redact_field(self, name: str, value: Any, rename: Callable[[str], str]) -> Any:
        if not is_secret_name(name):
            return self._redact(value, rename)
        if isinstance(value, (list, tuple)):  # a header with several values
            return [self._redact_field(name, item, rename) for item in cast("Sequence[Any]", value)]
        from offbook.secrets.values import is_secret_field  # late: few values have such a name

        is_secret = isinstance(value, str) and is_secret_field(name, value)
        return MASK if is_secret else self._redact(value, rename)


def _named_values(fields: Mapping[str, Any]) -> set[str]:
    """Return the fields that another one names: `{"name": "API_KEY", "value": …}`, or a key."""
    if "kty" in fields:  # a JSON Web Key
        return {
            name for name in fields if name in PRIVATE_MEMBERS and isinstance(fields[name], str)
        }
    named = next((v for name, v in fields.items() if name.lower() in {"name", "key"}), None)
    return {n for n, v in fields.items() if n.lower() == "value" and _is_named(named, v)}


def _is_named(name: Any, value: Any) -> bool:
    """Return whether a text next to this one is a secret because of it."""
    from offbook.secrets import values

    return (
        isinstance(name, str)
        and isinstance(value, str)
        and is_secret_name(name)
        and values.is_unlike_code(value.encode("utf-8", "surrogatepass"))
    )


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
    return convert(rules, RedactionRules, path="redactions")


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
        require_known("unknown redaction preset", preset, PRESETS, where="redactions.presets")
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
    if source in REQUIRED_CHARACTERS:  # written out, but it is our own
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


# A bracket, which stays as it is, or a name after a dot that has a dash.
DASHED_NAME = re.compile(r"""(\[(?:'[^']*'|"[^"]*"|[^]'"])*\])|(\.\.?)(\w+(?:-\w+)+)""")


def _quote_name(found: re.Match[str]) -> str:
    bracket, dots, name = found.groups()
    return bracket or f"{'..' if dots == '..' else ''}['{name}']"


@lru_cache(maxsize=256)
def _compile_path(source: str) -> jsonpath_rfc9535.JSONPathQuery:
    import jsonpath_rfc9535  # late: most runs have no paths

    # RFC 9535 has no dashes in a name after a dot; other dialects of JSONPath do.
    quoted = DASHED_NAME.sub(_quote_name, source)
    try:
        return jsonpath_rfc9535.compile(quoted)
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


# --- Suggestions: redactions that would make two texts equal. A difference is worth a redaction if
# it looks like a value that changes with every run: a date, an id, a port, a temporary folder. The
# caller tests each suggestion before it shows one.

BUILT_IN = {
    "$TIMESTAMP": "timestamps",
    "$UUID": "UUIDs",
    "$DURATION": "durations",
    "$PATH": "paths",
}
SINGLE_WORDS = {
    "date": r"\d{4}-\d{2}-\d{2}",
    "time": r"\d{1,2}:\d{2}(?::\d{2})?(?:\.\d+)?",
    "epoch": r"\b1[5-9]\d{8}(?:\d{3})?(?:\.\d+)?\b",
    "hash": r"\b[0-9a-f]{7,}\b",
    "temporary folder": r"\b\w+-[a-z0-9_]{8}\b",
}
_DAYS = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
_MONTHS = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
# Patterns for several words or a part of one, which a comparison word by word does not see.
PHRASES = {
    "date": rf"(?:\b{_DAYS},? +)?\b(?:\d{{1,2}} +{_MONTHS}|{_MONTHS} +\d{{1,2}})\b(?:,? +\d{{4}})?",
    "time": SINGLE_WORDS["time"],
    "port": r"(?<=localhost:)\d+|(?<=127\.0\.0\.1:)\d+",
}
# Usual prefixes of ids: after one of them a word is an id even without a digit in it.
ID_PREFIXES = (
    *("account", "acct", "agent", "build", "cluster", "container", "conv", "cust", "customer"),
    *("event", "file", "host", "id", "item", "job", "msg", "node", "order", "org", "pid", "pod"),
    *("port", "proc", "req", "request", "run", "seed", "sess", "session", "shard", "span"),
    *("task", "tenant", "thread", "tmp", "token", "trace", "turn", "tx", "txn", "user", "usr"),
    *("worker", "workspace", "ws"),
)
NUMBER_PREFIXES = ("pid", "port", "process", "worker", "seed")  # a number after these is random
MIN_LONG_NUMBER = 5
MAX_TEXT_LENGTH = 20_000
_PREFIXED_ID = re.compile(r"([A-Za-z]+)([_\-:#/.=])([A-Za-z0-9]+)$")
_ID_FIELD = re.compile(
    r"(?:^|[_-])(?:id|key|time|date|session|trace|nonce|seed|uuid|ts|at)(?:$|[_-])"
)


class RedactionHint:
    """A redaction: a description for people, and the rules to paste."""

    def __init__(self, description: str, rules: dict[str, Any]) -> None:
        self.description = description
        self.rules = rules

    def minimized(self, matches: Callable[[dict[str, Any]], bool]) -> RedactionHint:
        """Return the redaction without the patterns that are not needed for a match."""
        patterns: dict[str, str | bool] = dict(self.rules.get("patterns", {}))
        for name in list(patterns):
            fewer = {other: pattern for other, pattern in patterns.items() if other != name}
            if fewer and matches({"patterns": fewer}):
                patterns = fewer
        return _hint_for(patterns) if patterns else self


def suggest_redactions(pairs: Iterable[tuple[str, str, str]]) -> Iterator[RedactionHint]:
    """Yield redactions to try, narrow ones first, for pairs of (path, recorded, current)."""
    pairs = [pair for pair in pairs if max(map(len, pair)) <= MAX_TEXT_LENGTH]
    # One built-in pattern.
    for name, description in BUILT_IN.items():
        redaction = Redaction({"patterns": {name: True}}, environment={})
        if any(
            redaction.text(recorded) == redaction.text(current) for _, recorded, current in pairs
        ):
            yield RedactionHint(description, {"patterns": {name: True}})
    # One pattern for the words that differ, then all of them.
    patterns: dict[str, str | bool] = {}
    for _, recorded, current in pairs:
        for name, pattern in _infer_patterns(recorded, current):
            patterns.setdefault(name, pattern)
    for name, pattern in patterns.items():
        yield _hint_for({name: pattern})
    if len(patterns) > 1:
        yield _hint_for(patterns)
    # A whole field, if its name says that it varies. Prompts, tools and the model never do.
    fixed = ("$.messages", "$.system", "$.tools", "$.prompt", "$.model")
    paths = [
        path
        for path, _, _ in pairs
        if not path.startswith(fixed)
        and _ID_FIELD.search(re.sub(r".*[.\[]['\"]?|['\"]?\]$", "", path))
    ]
    if paths:
        yield RedactionHint(" and ".join(paths), {"paths": paths})
    # Everything at once; the caller drops what is not needed.
    yield _hint_for({**dict.fromkeys(BUILT_IN, True), **PHRASES, **patterns})
    for name in PRESETS:
        yield RedactionHint(f"the differences between two runs of {name}", {"presets": [name]})


def _hint_for(patterns: dict[str, str | bool]) -> RedactionHint:
    descriptions: list[str] = []
    for name in patterns:
        words = name.removesuffix("_id")
        plural = f"{words}es" if words.endswith("h") else f"{words}s"
        descriptions.append(BUILT_IN.get(name) or (f"{words} IDs" if words != name else plural))
    return RedactionHint(" and ".join(descriptions), {"patterns": patterns})


def _infer_patterns(recorded: str, current: str) -> Iterator[tuple[str, str]]:
    """Yield names and patterns for the words of one text that replace words of the other."""
    from offbook.trace.matching import align_runs, split_words  # for suggestions only

    old, new = split_words(recorded), split_words(current)
    for equal, a, b, c, d in align_runs(old, new):
        if equal or a == b or c == d:
            continue
        preceding = next((token for token in reversed(old[:a]) if token.strip()), "")
        inferred = _infer_pattern(preceding, "".join(old[a:b]), "".join(new[c:d]))
        if inferred is not None:
            yield inferred


def _infer_pattern(preceding: str, old: str, new: str) -> tuple[str, str] | None:
    """Return a name and a pattern that matches both words, if they look like varying values."""
    for name, pattern in SINGLE_WORDS.items():
        # A word such as "defaced" has only hexadecimal digits, but it is a word.
        has_digits = name != "hash" or all(re.search(r"\d", word) for word in (old, new))
        if has_digits and re.fullmatch(pattern, old) and re.fullmatch(pattern, new):
            return name, pattern
    old_id, new_id = _PREFIXED_ID.match(old), _PREFIXED_ID.match(new)
    if old_id and new_id and old_id.group(1, 2) == new_id.group(1, 2):
        prefix, values = old_id[1].lower(), old_id[3] + new_id[3]
        if prefix in ID_PREFIXES or any(character.isdigit() for character in values):
            name = prefix if prefix.endswith("id") else f"{prefix}_id"
            lower = "a-z" if re.search("[a-z]", values) else ""
            upper = "A-Z" if re.search("[A-Z]", values) else ""
            # An id with letters will have digits sooner or later, even if these two have none.
            characters = f"[{upper}{lower}0-9]+"
            return name, f"{re.escape(old_id[1])}{re.escape(old_id[2])}{characters}"
    if old.isdigit() and new.isdigit():
        prefix = preceding.strip(":=#").lower()
        if prefix in NUMBER_PREFIXES:
            return prefix, rf"{re.escape(preceding)}\s*\d+"
        if min(len(old), len(new)) >= MIN_LONG_NUMBER:
            return "number", rf"\b\d{{{MIN_LONG_NUMBER},}}\b"
    return None
