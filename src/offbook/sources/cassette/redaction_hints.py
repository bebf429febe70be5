"""Suggestions of redactions that would make two texts equal.

A difference is worth a redaction if it looks like a value that changes with every run: a date,
an id, a port, a temporary folder. The caller tests each suggestion before it shows one.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from offbook.trace.redaction import PRESETS, Redaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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
TOKEN = re.compile(r"[A-Za-z0-9_/~](?:[A-Za-z0-9_.:/@+~-]*[A-Za-z0-9_/])?|\s+|.", re.DOTALL)
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
    old_tokens, new_tokens = TOKEN.findall(recorded), TOKEN.findall(current)
    matcher = SequenceMatcher(None, old_tokens, new_tokens, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind != "replace":
            continue
        preceding = next((token for token in reversed(old_tokens[:a]) if token.strip()), "")
        inferred = _infer_pattern(preceding, "".join(old_tokens[a:b]), "".join(new_tokens[c:d]))
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
