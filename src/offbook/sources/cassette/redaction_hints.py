"""Which redaction would make two texts equal, when what differs looks as if it always would."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from offbook.trace.redaction import PRESETS, Redaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BUILT_IN = {
    "$TIMESTAMP": "time stamps",
    "$UUID": "UUIDs",
    "$DURATION": "durations",
    "$PATH": "paths",
}
ALIKE = {
    "date": r"\d{4}-\d{2}-\d{2}",
    "time": r"\d{1,2}:\d{2}(?::\d{2})?(?:\.\d+)?",
    "epoch": r"\b1[5-9]\d{8}(?:\d{3})?(?:\.\d+)?\b",
    "hash": r"\b[0-9a-f]{7,}\b",
    "temporary folder": r"\b\w+-[a-z0-9_]{8}\b",
}
DAYS = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
MONTHS = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
SPELT = {  # of more words than one, or of a part of one
    "date": rf"(?:\b{DAYS},? +)?\b(?:\d{{1,2}} +{MONTHS}|{MONTHS} +\d{{1,2}})\b(?:,? +\d{{4}})?",
    "time": ALIKE["time"],
    "port": r"(?<=localhost:)\d+|(?<=127\.0\.0\.1:)\d+",
}
# What an id is often called: then it is one even where it has no digit in it.
OWNERS = (
    *("account", "acct", "agent", "build", "cluster", "container", "conv", "cust", "customer"),
    *("event", "file", "host", "id", "item", "job", "msg", "node", "order", "org", "pid", "pod"),
    *("port", "proc", "req", "request", "run", "seed", "sess", "session", "shard", "span"),
    *("task", "tenant", "thread", "tmp", "token", "trace", "turn", "tx", "txn", "user", "usr"),
    *("worker", "workspace", "ws"),
)
NUMBERED = ("pid", "port", "process", "worker", "seed")  # a number after these is chance
LONG_NUMBER = 5
LONGEST = 20_000
TOKEN = re.compile(r"[A-Za-z0-9_/~](?:[A-Za-z0-9_.:/@+~-]*[A-Za-z0-9_/])?|\s+|.", re.DOTALL)
_PREFIXED = re.compile(r"([A-Za-z]+)([_\-:#/.=])([A-Za-z0-9]+)$")
_FIELD = re.compile(r"(?:^|[_-])(?:id|key|time|date|session|trace|nonce|seed|uuid|ts|at)(?:$|[_-])")


class RedactionHint:
    """A redaction in words, and as one pastes it."""

    def __init__(self, about: str, rules: dict[str, Any]) -> None:
        self.about = about
        self.rules = rules

    def without_needless(self, fits: Callable[[dict[str, Any]], bool]) -> RedactionHint:
        """The redaction without the patterns that it does not need to fit."""
        patterns: dict[str, str | bool] = dict(self.rules.get("patterns", {}))
        for name in list(patterns):
            fewer = {other: held for other, held in patterns.items() if other != name}
            if fewer and fits({"patterns": fewer}):
                patterns = fewer
        return _describe(patterns) if patterns else self


def suggest_redactions(pairs: Iterable[tuple[str, str, str]]) -> Iterator[RedactionHint]:
    """Redactions worth trying, for pairs of (path, recorded, current) that differ."""
    listed = [pair for pair in pairs if max(map(len, pair)) <= LONGEST]
    yield from _built_in(listed)
    yield from _worded(listed)
    yield from _by_path(listed)
    together: dict[str, str | bool] = {
        **dict.fromkeys(BUILT_IN, True),
        **SPELT,
        **_infer_all(listed),
    }
    yield _describe(together)
    yield from (
        RedactionHint(f"what differs between two runs of {name}", {"presets": [name]})
        for name in PRESETS
    )


def _built_in(pairs: list[tuple[str, str, str]]) -> Iterator[RedactionHint]:
    for name, about in BUILT_IN.items():
        redaction = Redaction({"patterns": {name: True}}, environment={})
        if any(redaction.text(was) == redaction.text(now) for _, was, now in pairs):
            yield RedactionHint(about, {"patterns": {name: True}})


def _describe(patterns: dict[str, str | bool]) -> RedactionHint:
    listed = [BUILT_IN.get(name) or _plural(name) for name in patterns]
    return RedactionHint(" and ".join(listed), {"patterns": patterns})


def _worded(pairs: list[tuple[str, str, str]]) -> Iterator[RedactionHint]:
    patterns = _infer_all(pairs)
    for name, pattern in patterns.items():
        yield _describe({name: pattern})
    if len(patterns) > 1:
        yield _describe({**patterns})


def _infer_all(pairs: list[tuple[str, str, str]]) -> dict[str, str]:
    """By its name, a pattern for each thing that stands where another stood."""
    patterns: dict[str, str] = {}
    for _, was, now in pairs:
        for before, old, new in _replaced(was, now):
            found = _infer(before, old, new)
            if found is not None:
                name, pattern = found
                patterns.setdefault(name, pattern)
    return patterns


def _by_path(pairs: list[tuple[str, str, str]]) -> Iterator[RedactionHint]:
    paths = [path for path, _, _ in pairs if _is_field(path)]
    if paths:
        yield RedactionHint(" and ".join(paths), {"paths": paths})


def _is_field(path: str) -> bool:
    if path.startswith(("$.messages", "$.system", "$.tools", "$.prompt", "$.model")):
        return False
    return bool(_FIELD.search(re.sub(r".*[.\[]['\"]?|['\"]?\]$", "", path)))


def _replaced(was: str, now: str) -> Iterator[tuple[str, str, str]]:
    """What stands in one text where another stands in the other, with the word before it."""
    old, new = TOKEN.findall(was), TOKEN.findall(now)
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "replace":
            before = next((token for token in reversed(old[:a]) if token.strip()), "")
            yield before, "".join(old[a:b]), "".join(new[c:d])


def _infer(before: str, old: str, new: str) -> tuple[str, str] | None:
    found = _known(old, new)
    if found is not None:
        return found
    one, two = _PREFIXED.match(old), _PREFIXED.match(new)
    if one and two and one[1] == two[1] and one[2] == two[2]:
        owner = one[1].lower()
        if owner in OWNERS or any(sign.isdigit() for sign in one[3] + two[3]):
            signs = _signs(one[3] + two[3])
            name = owner if owner.endswith("id") else f"{owner}_id"
            return name, f"{re.escape(one[1])}{re.escape(one[2])}{signs}+"
    if old.isdigit() and new.isdigit():
        owner = before.strip(":=#").lower()
        if owner in NUMBERED:
            return owner, rf"{re.escape(before)}\s*\d+"
        if min(len(old), len(new)) >= LONG_NUMBER:
            return "number", rf"\b\d{{{LONG_NUMBER},}}\b"
    return None


def _known(old: str, new: str) -> tuple[str, str] | None:
    for name, pattern in ALIKE.items():
        whole = re.compile(pattern)
        hashed = name != "hash" or all(re.search(r"\d", text) for text in (old, new))
        if hashed and whole.fullmatch(old) and whole.fullmatch(new):
            return name, pattern
    return None


def _signs(text: str) -> str:
    lower = "a-z" if re.search("[a-z]", text) else ""
    upper = "A-Z" if re.search("[A-Z]", text) else ""
    # an id with letters has digits sooner or later, whatever these two look like
    return f"[{upper}{lower}0-9]"


def _plural(name: str) -> str:
    words = name.removesuffix("_id")
    if words != name:
        return f"{words} IDs"
    return f"{words}es" if words.endswith("h") else f"{words}s"
