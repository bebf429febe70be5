"""Comparison of values, texts and sequences with what is expected of them.

    contains({"id": 7, "note": "x"}, {"id": 7})                       # True: a subset
    contains({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, subset="top")  # False: exact below
    [m.path for m in find_mismatches({"a": [1]}, {"a": [2]})]         # [".a[0]"]

Tool calls, host mocks, steps and golden transcripts all compare by `find_mismatches`. They differ
in what two single values must have in common (`matches`) and in where further keys are allowed.
A JSON Pointer (RFC 6901) names a field of a document: `/stages/0/name`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

import msgspec

from offbook.errors import UsageError
from offbook.secrets import excerpt, hide_secrets, outgoing

if TYPE_CHECKING:
    import regex

Subset = Literal["deep", "top", "none"]
Matches = Callable[[Any, Any], bool]
_INDEX = re.compile(r"0|[1-9][0-9]*")


class Note(str):
    """A side of a mismatch that is not a value; it is shown without quotes."""

    __slots__ = ()


MISSING = Note("nothing")
"""The side that does not have the key."""


class Mismatch(NamedTuple):
    """A place where a value differs; a key that one side does not have is `MISSING` there."""

    path: str
    expected: Any
    actual: Any

    def __str__(self) -> str:
        return (
            f"{self.path}: expected {render_value(self.expected)}, got {render_value(self.actual)}"
        )


def values_equal(actual: Any, expected: Any) -> bool:
    """Return whether two values are equal. In Python True == 1, in JSON they differ."""
    return bool(actual == expected) and isinstance(actual, bool) == isinstance(expected, bool)


def text_matches(actual: Any, expected: Any) -> bool:
    """Return whether an expected text, a regular expression, is found; other values are equal.

    An empty text equals only itself: as an expression it would match every text.
    """
    if isinstance(expected, str) and isinstance(actual, str) and expected:
        return compile_pattern(expected).search(actual) is not None
    return values_equal(actual, expected)


def find_mismatches(
    actual: Any,
    expected: Any,
    *,
    matches: Matches = values_equal,
    subset: Subset = "deep",
    missing: Any = MISSING,
    path: str = "",
) -> Iterator[Mismatch]:
    """Yield each place where a value does not have what is expected of it.

    A dict may have further keys: everywhere (`deep`), in the outermost dict only (`top`), or
    nowhere (`none`). Lists have the same length. `missing` is compared for a key that is not there.
    """
    below: Subset = "deep" if subset == "deep" else "none"
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        wanted, found = cast("Mapping[Any, Any]", expected), cast("Mapping[Any, Any]", actual)
        for key, value in wanted.items():
            at = f"{path}.{key}"
            item = found.get(key, missing)
            if item is MISSING:
                yield Mismatch(at, value, MISSING)
            else:
                yield from find_mismatches(
                    item, value, matches=matches, subset=below, missing=missing, path=at
                )
        for key in found if subset == "none" else ():
            if key not in wanted:
                yield Mismatch(f"{path}.{key}", MISSING, found[key])
    elif isinstance(expected, (list, tuple)) and isinstance(actual, (list, tuple)):
        items, others = cast("list[Any]", expected), cast("list[Any]", actual)
        if len(items) != len(others):
            yield Mismatch(path, Note(f"{len(items)} items"), Note(len(others)))
        for index, (value, item) in enumerate(zip(items, others, strict=False)):
            yield from find_mismatches(
                item, value, matches=matches, subset=below, missing=missing, path=f"{path}[{index}]"
            )
    elif not matches(actual, expected):
        yield Mismatch(path, expected, actual)


def contains(
    actual: Any, expected: Any, *, matches: Matches = values_equal, subset: Subset = "deep"
) -> bool:
    """Return whether a value has everything that is expected of it."""
    return next(find_mismatches(actual, expected, matches=matches, subset=subset), None) is None


def render_value(value: object, max_length: int | None = 79) -> str:
    """Return a value as JSON on one line, shortened to the given length."""
    plain = isinstance(value, Note)
    try:
        text = value if plain else msgspec.json.encode(value, enc_hook=repr).decode()
    except UnicodeEncodeError:  # half a character
        from offbook.exchange.messages import to_json

        text = to_json(value).decode()
    if max_length is None or len(text) <= max_length:
        return text
    return f"{outgoing(text)[:max_length]}…"


# --- JSON Pointers


def resolve_pointer(document: Any, pointer: str, default: Any = MISSING) -> Any:
    """Return the value at a pointer, or `default` if the document has no such field.

    >>> resolve_pointer({"a/b": [7]}, "/a~1b/0")
    7
    """
    value = document
    for key in parse_pointer(pointer):
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, Any]", value)
            if key not in fields:
                return default
            value = fields[key]
        elif isinstance(value, (list, tuple)):
            items = cast("list[Any]", value)
            # `-` is the place after the last item, where nothing is yet.
            if _INDEX.fullmatch(key) is None or int(key) >= len(items):
                return default
            value = items[int(key)]
        else:
            return default
    return value


def parse_pointer(pointer: str) -> list[str]:
    """Return the keys of a pointer; the empty pointer is the whole document."""
    if not isinstance(pointer, str):
        raise UsageError(f"a JSON pointer is a text, got {type(pointer).__name__}")
    if not pointer:
        return []
    where = f"JSON pointer {pointer!r}"
    if not pointer.startswith("/"):
        fix = f"write '/{pointer.removeprefix('$').lstrip('.').replace('.', '/')}'"
        raise UsageError("pointer must be empty or start with '/'", where=where, hint=fix)
    for escape in re.finditer(r"~([^01]|\Z)", pointer):
        at = f"{where}, character {escape.start() + 1}"
        what = f"invalid escape '~{escape[1]}'" if escape[1] else "dangling '~'"
        raise UsageError(what, where=at, hint="write ~0 for ~, and ~1 for /")
    # `~01` is `~1`, so the slash is replaced first.
    return [key.replace("~1", "/").replace("~0", "~") for key in pointer[1:].split("/")]


# --- Patterns to search and replace in texts. Those of users and agents are limited in time.
# Only this module imports `regex`: its matching can be stopped, that of `re` cannot.

MAX_SECONDS = 2.0
MAX_PATTERN = 1000  # characters: for thousands, regex takes minutes, and ignores its limit of time
_SPECIAL_CHARACTERS = re.compile(r"[\\.^$*+?{}\[\]|()]")
# Expressions that cannot match a line end, and do not depend on where a text begins or ends: no
# anchors, no look-around, no \s and no negated class.
_WITHIN_LINE = (
    r"(?:\(\?i\))?"
    r"(?:[^\\^$.*+?{}\[\]|()\n]|[.*+?|]|\{\d*,?\d*\}|\((?:\?:)?(?!\?)|\)|\\[dwSbB]|\\[^\w\s]"
    r"|\[[^\]\\^\[&|~\x00-\x1f][^\]\\\[&|~\x00-\x1f]*\])*\Z"
)


class LiteralPattern:
    """A plain text to find."""

    def __init__(self, text: str) -> None:
        self._text = text

    def search(self, text: str) -> tuple[int, int] | None:
        """Return the start and end of the first match, or None."""
        start = text.find(self._text)
        return None if start < 0 else (start, start + len(self._text))

    def replace(self, replacement: str, text: str) -> str:
        """Return the text with every match replaced."""
        return text.replace(self._text, replacement)

    def stream_bounds(self, text: str) -> tuple[int, int]:
        """Return the end of the part that can be searched before more text follows, and the start
        of the part that must be kept for the next search.
        """  # noqa: D205 - one sentence
        return len(text), max(0, len(text) - len(self._text) + 1)


class TrustedPattern:
    """A pattern of Offbook itself: known to be linear, so it needs no time limit.

    Every match contains one of the `required` characters, if there are any. A text without them
    is skipped, which is faster than to search it.
    """

    def __init__(self, source: str, required: str = "") -> None:
        self._compiled = re.compile(source)
        self._required = required

    def replace(self, replacement: str, text: str) -> str:
        """Return the text with every match replaced."""
        if self._required and not any(map(text.__contains__, self._required)):
            return text
        if self._compiled.search(text) is None:  # `sub` would copy the text
            return text
        return self._compiled.sub(lambda _: replacement, text)


class UserPattern:
    """A regular expression of a user: an error, and not a hang, if it backtracks too long."""

    def __init__(self, compiled: regex.Pattern[str], where: str) -> None:
        self._compiled = compiled
        self._where = where
        self._within_line = re.match(_WITHIN_LINE, compiled.pattern) is not None

    @property
    def source(self) -> str:
        """The expression as it was written."""
        return self._compiled.pattern

    def search(self, text: str) -> tuple[int, int] | None:
        """Return the start and end of the first match, or None."""
        try:
            match = self._compiled.search(text, timeout=MAX_SECONDS)
        except TimeoutError as error:
            raise self._timeout_error() from error
        return None if match is None else match.span()

    def replace(self, replacement: str, text: str) -> str:
        """Return the text with every match replaced."""
        try:
            return self._compiled.sub(lambda _: replacement, text, timeout=MAX_SECONDS)
        except TimeoutError as error:
            raise self._timeout_error() from error

    def stream_bounds(self, text: str) -> tuple[int, int]:
        """Return the bounds as LiteralPattern does: after the last line, or the whole text."""
        end = text.rfind("\n") + 1 if self._within_line else 0
        return end, end

    def _timeout_error(self) -> UsageError:
        return UsageError(
            f"the pattern {self.source!r} took longer than {MAX_SECONDS:g} s",
            where=self._where,
            hint="do not repeat a group that itself repeats something, as in (a+)+",
        )


@lru_cache(maxsize=256)
def compile_trusted(source: str, required: str = "") -> TrustedPattern:
    """Return a pattern of Offbook itself."""
    return TrustedPattern(source, required)


@lru_cache(maxsize=1024)
def compile_pattern(source: str, where: str = "") -> UserPattern | LiteralPattern:
    """Return the pattern of a user; without special characters it is a plain text."""
    if not source:
        raise UsageError("the pattern is empty and would match every text", where=where)
    if not _SPECIAL_CHARACTERS.search(source):
        return LiteralPattern(source)
    if len(source) > MAX_PATTERN:
        raise UsageError(
            f"the pattern has {len(source)} characters, and at most {MAX_PATTERN} are searched",
            where=where,
            hint="write a part of the text; a plain text without special characters has no limit",
        )
    import regex  # late: most runs have no such pattern

    try:
        return UserPattern(regex.compile(source), where)
    # of a repeat with thousands of digits, and of thousands of groups in each other
    except (regex.error, ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise UsageError(
            f"invalid pattern {source!r}: {error}",
            where=where,
            # masked first: an escaped secret is not recognised any more
            hint=f"to match it literally, write {regex.escape(hide_secrets(source))!r}",
        ) from error


# Texts that have nothing in common: a pattern that is found in each is found in every text.
UNLIKE_TEXTS = ("", "x", "7 \n", "\0é")


def compile_check(
    source: str, where: str = "", *, whole: bool = False
) -> UserPattern | LiteralPattern:
    """Return the pattern of a check; raise if it is found in every text, as `.*` is.

    With `whole`, raise if it matches every text as a whole: `[0-9]*` does not.
    """
    pattern = compile_pattern(source, where)
    searched = compile_pattern(rf"(?s:\A(?:{source})\Z)", where) if whole else pattern
    if all(searched.search(text) is not None for text in UNLIKE_TEXTS):
        raise UsageError(
            f"the pattern {source!r} is found in every text and would check nothing",
            where=where,
            hint="write a part of the text that must be there; .+ for any text that is not empty",
        )
    return pattern


# --- Alignment: the one comparison of two sequences, for events, requests, steps and lines of text.
#
#   expected             | actual
# = find({"id": 7})      | find({"id": 7})
# ≠ refund({"id": 7})    | refund({"id": 8})
#     .id: expected 7, got 8
# - notify               |

MAX_WIDTH = 60
CONTEXT_ROWS = 2
MAX_ROWS = 20_000
CONTEXT_CHARACTERS = 20
MAX_PAIRED = 400  # items without an equal one between two pairs that are paired by their subject
_WORD = r"(?s)[A-Za-z0-9_/~](?:[A-Za-z0-9_.:/@+~-]*[A-Za-z0-9_/])?|\s+|."
T = TypeVar("T")
StepMatches = Callable[[int, int], bool]
# Positions of an actual step and of the expected step that it satisfies.
Pairs = list[tuple[int, int]]


class AlignedRow(NamedTuple):
    """One step as expected and as it happened, with notes on the differences."""

    expected: str
    actual: str
    ok: bool = False
    notes: tuple[str, ...] = ()

    @property
    def sign(self) -> str:
        """`=` as expected, `≠` different, `-` missing, `+` unexpected, blank if not compared."""
        if self.ok:
            return "=" if self.expected else " "
        return ("≠" if self.actual else "-") if self.expected else "+"


def align_equal(first: Sequence[Hashable], second: Sequence[Hashable]) -> Pairs:
    """Return the longest list of pairs of equal items that keeps both orders.

    The longest common subsequence, with a row of the usual table as the bits of one number:
    5,000 items that repeat take 0.1 s, in `difflib` two minutes.
    """
    shortest = min(len(first), len(second))
    head = next((i for i in range(shortest) if first[i] != second[i]), shortest)
    tail = next((i for i in range(shortest - head) if first[~i] != second[~i]), shortest - head)
    pairs = [(i, i) for i in range(head)]
    for start in range(head, len(first) - tail, MAX_ROWS):  # to bound the memory
        stops = (min(start + MAX_ROWS, len(side) - tail) for side in (first, second))
        one, two = (side[start:stop] for side, stop in zip((first, second), stops, strict=True))
        pairs += [(a + start, b + start) for a, b in _align_block(one, two)]
    pairs += [(len(first) - i, len(second) - i) for i in range(tail, 0, -1)]
    return pairs


def _align_block(first: Sequence[Hashable], second: Sequence[Hashable]) -> Pairs:
    positions: dict[Hashable, int] = {}
    for index, item in enumerate(first):
        positions[item] = positions.get(item, 0) | 1 << index
    # A bit of a row is 0 if the subsequence gets longer with this item of `first`.
    row = (1 << len(first)) - 1
    rows = [row]
    for item in second:
        matched = row & positions.get(item, 0)
        row = (row + matched) | (row - matched)
        rows.append(row)
    pairs: Pairs = []
    a, b = len(first), len(second)
    while a and b:
        if rows[b] >> (a - 1) & 1:
            a -= 1
        elif not rows[b - 1] >> (a - 1) & 1:
            b -= 1
        else:
            a, b = a - 1, b - 1
            pairs.append((a, b))
    return pairs[::-1]


def align(
    first: Sequence[T],
    second: Sequence[T],
    key: Callable[[T], Hashable],
    subject: Callable[[T], object],
) -> Iterator[tuple[int | None, int | None]]:
    """Yield the positions of all items as pairs, in order; None where an item has no partner.

    First those with equal keys are paired, then, between two such pairs, those of one subject.
    """
    equal = align_equal([key(item) for item in first], [key(item) for item in second])
    a = b = 0
    for a_end, b_end in [*equal, (len(first), len(second))]:
        paired = _pair_subjects(
            [subject(item) for item in first[a:a_end]], [subject(item) for item in second[b:b_end]]
        )
        for b_next, a_next in [*((b + j, a + i) for j, i in paired), (b_end, a_end)]:
            yield from ((i, None) for i in range(a, a_next))
            yield from ((None, j) for j in range(b, b_next))
            if a_next < len(first) and b_next < len(second):
                yield a_next, b_next
            a, b = a_next + 1, b_next + 1


def _pair_subjects(first: Sequence[object], second: Sequence[object]) -> Pairs:
    """Return the positions in the second and the first list; none if these are long."""
    if max(len(first), len(second)) > MAX_PAIRED:
        return []
    return align_in_order(len(second), len(first), lambda j, i: second[j] == first[i])


class AlignedRun(NamedTuple):
    """Items `a` to `b` of the first sequence, and `c` to `d` of the second: equal, or changed."""

    equal: bool
    a: int
    b: int
    c: int
    d: int


def align_runs(first: Sequence[Hashable], second: Sequence[Hashable]) -> list[AlignedRun]:
    """Return two sequences as runs of equal and of changed items, in order."""
    runs: list[AlignedRun] = []
    a = b = 0
    for a_next, b_next in [*align_equal(first, second), (len(first), len(second))]:
        if (a, b) != (a_next, b_next):
            runs.append(AlignedRun(equal=False, a=a, b=a_next, c=b, d=b_next))
        if a_next < len(first) and b_next < len(second):
            run = AlignedRun(equal=True, a=a_next, b=a_next + 1, c=b_next, d=b_next + 1)
            if runs and runs[-1].equal:
                run = run._replace(a=runs[-1].a, c=runs.pop().c)
            runs.append(run)
        a, b = a_next + 1, b_next + 1
    return runs


def split_words(text: str) -> list[str]:
    """Return the words of a text, and what is between them."""
    return re.findall(_WORD, text)


LONG_TEXT = 500  # characters


def similarity(first: str, second: str, above: float = 0) -> float:
    """Return how similar two texts are, from 0 to 1; 0 if not above a limit.

    Long texts are compared by words: by characters it takes seconds.
    """
    from difflib import SequenceMatcher  # only here: saves 1 ms of `import offbook`

    long = max(len(first), len(second)) > LONG_TEXT
    texts = (first.split(), second.split()) if long else (first, second)
    matcher = SequenceMatcher(None, *texts, autojunk=False)
    # The upper bound is cheap, the ratio is not.
    return matcher.ratio() if matcher.quick_ratio() > above else 0


# The two pairings below are for steps that match by a predicate: a partial dict, a pattern, a
# function.


def align_in_order(actual: int, expected: int, matches: StepMatches) -> Pairs:
    """Return the longest list of matching pairs that keeps both orders.

    `matches(a, e)` returns True if the actual step `a` satisfies the expected step `e`.
    """
    # lengths[a][e] is the length of the longest list of pairs from (a, e) to the end.
    lengths = [[0] * (expected + 1) for _ in range(actual + 1)]
    for a in range(actual - 1, -1, -1):
        for e in range(expected - 1, -1, -1):
            if matches(a, e):
                lengths[a][e] = lengths[a + 1][e + 1] + 1
            else:
                lengths[a][e] = max(lengths[a + 1][e], lengths[a][e + 1])
    pairs: Pairs = []
    a = e = 0
    while a < actual and e < expected:
        if matches(a, e):
            pairs.append((a, e))
            a, e = a + 1, e + 1
        elif lengths[a + 1][e] >= lengths[a][e + 1]:
            a += 1
        else:
            e += 1
    return pairs


def align_in_any_order(actual: int, expected: int, matches: StepMatches) -> Pairs:
    """Return the largest set of matching pairs in which each step occurs at most once.

    Augmenting paths: a step that is taken already is released if its owner can take another one.
    """
    candidates = [[a for a in range(actual) if matches(a, e)] for e in range(expected)]
    owners: dict[int, int] = {}

    def assign(e: int, visited: set[int]) -> bool:
        for a in candidates[e]:
            if a in visited:
                continue
            visited.add(a)
            if a not in owners or assign(owners[a], visited):
                owners[a] = e
                return True
        return False

    for e in range(expected):
        assign(e, set())
    return sorted(owners.items())


def align_names(expected: Sequence[str], actual: Sequence[str], pairs: Pairs) -> list[AlignedRow]:
    """Return the rows of two lists of names; a pair shares a row."""
    rows: list[AlignedRow] = []
    next_expected = 0
    expected_of = dict(pairs)
    for position, name in enumerate(actual):
        match = expected_of.get(position)
        if match is None:
            rows.append(AlignedRow("", name))
            continue
        rows += [AlignedRow(missing, "") for missing in expected[next_expected:match]]
        rows.append(AlignedRow(expected[match], name, ok=True))
        next_expected = match + 1
    return [*rows, *(AlignedRow(missing, "") for missing in expected[next_expected:])]


def render_rows(
    rows: Sequence[AlignedRow],
    headings: tuple[str, str] = ("expected", "actual"),
    agreed: str = "as expected",
) -> list[str]:
    """Return the lines of a table; long stretches without a difference are shortened."""
    # If nothing differs, everything is shown.
    shown = {
        neighbour
        for position, row in enumerate(rows)
        if not row.ok
        for neighbour in range(position - CONTEXT_ROWS, position + CONTEXT_ROWS + 1)
    } or set(range(len(rows)))
    width = max(map(len, (headings[0], *(_truncate(row.expected) for row in rows))))
    lines = [f"  {headings[0]:{width}} | {headings[1]}"]
    skipped = 0
    for position, row in enumerate(rows):
        if position not in shown:
            skipped += 1
            continue
        if skipped:
            lines.append(f"  … {skipped} more {agreed}")
            skipped = 0
        columns = f"{_truncate(row.expected):{width}} | {_truncate(row.actual)}"
        lines.append(f"{row.sign} {columns}".rstrip())
        lines += [f"    {note}" for note in row.notes]
    if skipped:
        lines.append(f"  … {skipped} more {agreed}")
    return lines


def describe_mismatch(mismatch: Mismatch, name: str = "input") -> str:
    """Return a line with both values; long texts are shown from shortly before the difference."""
    want, got = shorten_sides(mismatch.expected, mismatch.actual)
    return f"{mismatch.path or name}: expected {want}, got {got}"


def shorten_sides(expected: Any, actual: Any) -> tuple[str, str]:
    """Return two values as short texts that begin shortly before their first difference."""
    want, got = (outgoing(render_value(side, max_length=None)) for side in (expected, actual))
    characters = enumerate(zip(want, got, strict=False))
    split = next((i for i, (a, b) in characters if a != b), min(len(want), len(got)))
    start = split - CONTEXT_CHARACTERS if split > MAX_WIDTH - CONTEXT_CHARACTERS else 0
    cut = "…" if start else ""
    return f"{cut}{_truncate(want[start:])}", f"{cut}{_truncate(got[start:])}"


def _truncate(text: str) -> str:
    return excerpt(text.replace("\n", "\\n"), MAX_WIDTH)
