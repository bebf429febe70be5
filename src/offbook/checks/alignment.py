"""What was expected beside what came, step by step, with the places that differ marked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

WIDEST = 60
AROUND = 2
BEFORE = 20
Fits = Callable[[int, int], bool]
Differs = Callable[[Any, Any], bool]
Pairs = list[tuple[int, int]]


class AlignedRow(NamedTuple):
    """One step: as expected, as it was, and what of the two differs."""

    expected: str
    actual: str
    fits: bool = False
    notes: tuple[str, ...] = ()

    @property
    def sign(self) -> str:
        """`=` as expected, `≠` otherwise, `-` missing, `+` not expected; none where all is free."""
        if self.fits:
            return "=" if self.expected else " "
        return ("≠" if self.actual else "-") if self.expected else "+"


def align(rows: int, columns: int, fits: Fits) -> Pairs:
    """The longest list of pairs that keeps both orders."""
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    for a in range(rows - 1, -1, -1):
        for w in range(columns - 1, -1, -1):
            if fits(a, w):
                best[a][w] = best[a + 1][w + 1] + 1
            else:
                best[a][w] = max(best[a + 1][w], best[a][w + 1])
    pairs: Pairs = []
    a = w = 0
    while a < rows and w < columns:
        if fits(a, w):
            pairs.append((a, w))
            a, w = a + 1, w + 1
        elif best[a + 1][w] >= best[a][w + 1]:
            a += 1
        else:
            w += 1
    return pairs


def assign(rows: int, columns: int, fits: Fits) -> Pairs:
    """The largest set of pairs in which every row and every column occurs once at most."""
    fitting = [[a for a in range(rows) if fits(a, w)] for w in range(columns)]
    taken: dict[int, int] = {}

    def settle(column: int, tried: set[int]) -> bool:
        for row in fitting[column]:
            if row in tried:
                continue
            tried.add(row)
            if row not in taken or settle(taken[row], tried):
                taken[row] = column
                return True
        return False

    for column in range(columns):
        settle(column, set())
    return sorted(taken.items())


def render_rows(rows: Sequence[AlignedRow]) -> list[str]:
    """The rows in two columns; of a long stretch in which nothing differs, only its ends."""
    cut = [row._replace(expected=_cut(row.expected), actual=_cut(row.actual)) for row in rows]
    width = max((len(row.expected) for row in cut), default=0)
    width = max(width, len("expected"))
    lines = [f"  {'expected':{width}} | actual"]
    for row in _shorten(cut):
        if isinstance(row, int):
            lines.append(f"  … {row} more, as they should be")
            continue
        lines.append(f"{row.sign} {row.expected:{width}} | {row.actual}".rstrip())
        lines += [f"    {note}" for note in row.notes]
    return lines


def _shorten(rows: list[AlignedRow]) -> Iterator[AlignedRow | int]:
    kept = {
        near
        for at, row in enumerate(rows)
        if not row.fits
        for near in range(at - AROUND, at + AROUND + 1)
    }
    skipped = 0
    for at, row in enumerate(rows):
        if at in kept or not kept:
            if skipped:
                yield skipped
            skipped = 0
            yield row
        else:
            skipped += 1
    if skipped:
        yield skipped


def align_names(expected: Sequence[str], actual: Sequence[str], pairs: Pairs) -> list[AlignedRow]:
    """Names beside names, those that are paired in one row."""
    rows: list[AlignedRow] = []
    upto = 0
    by_actual = dict(pairs)
    for at, name in enumerate(actual):
        wish = by_actual.get(at)
        if wish is None:
            rows.append(AlignedRow("", name))
            continue
        rows += [AlignedRow(missing, "") for missing in expected[upto:wish]]
        rows.append(AlignedRow(expected[wish], name, fits=True))
        upto = wish + 1
    return [*rows, *(AlignedRow(missing, "") for missing in expected[upto:])]


def find_differences(
    given: Any, wanted: Any, differs: Differs, *, whole: bool = False, path: str = ""
) -> Iterator[str]:
    """Where a value is not as wanted, place by place; a `whole` one has nothing more."""
    if isinstance(wanted, Mapping) and isinstance(given, Mapping):
        fields, held = cast("Mapping[str, Any]", wanted), cast("Mapping[str, Any]", given)
        for key, value in fields.items():
            place = f"{path}.{key}"
            if key in held:
                yield from find_differences(held[key], value, differs, whole=whole, path=place)
            else:
                yield f"{place}: expected {render_value(value)}, got nothing"
        for key in held.keys() - fields.keys() if whole else ():
            yield f"{path}.{key}: expected nothing, got {render_value(held[key])}"
    elif isinstance(wanted, (list, tuple)) and isinstance(given, (list, tuple)):
        items, there = cast("Sequence[Any]", wanted), cast("Sequence[Any]", given)
        if len(items) != len(there):
            yield f"{path or 'input'}: expected {len(items)} items, got {len(there)}"
        for at, (value, one) in enumerate(zip(items, there, strict=False)):
            yield from find_differences(one, value, differs, whole=whole, path=f"{path}[{at}]")
    elif differs(given, wanted):
        sides: list[Any] = [wanted, given]
        expected, got = _trim(*(render_value(value, most=None) for value in sides))
        yield f"{path or 'input'}: expected {expected}, got {got}"


def render_value(value: object, most: int | None = 79) -> str:
    """A value, in at most a line."""
    text = msgspec.json.encode(value, enc_hook=repr).decode()
    return text if most is None else re.sub(rf"^(.{{{most}}}).+$", r"\1…", text)


def _trim(one: str, other: str) -> tuple[str, str]:
    """Two texts from shortly before where they part, if that is far from their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    parts = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    start = parts - BEFORE if parts > WIDEST - BEFORE else 0
    return _cut(one[start:], start > 0), _cut(other[start:], start > 0)


def _cut(text: str, begun: bool = False) -> str:  # noqa: FBT001, FBT002 - where the text stands
    line = text.replace("\n", "\\n")
    line = line if len(line) <= WIDEST else f"{line[: WIDEST - 1]}…"
    return f"…{line}" if begun else line
