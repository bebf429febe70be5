"""Cases from data: the rows of a file, and the values of axes, put into the templates of a case.

    [[datasets]]
    path = "orders.csv"

    [datasets.case]
    subject = "shop.py:answer"
    input = "Refund order {{order}}"
    assertions = [{ kind = "output", contains = "{{answer}}" }]

    [axes]
    model = ["small", "large"]

A template that is a whole value keeps the type of the cell. The cells of a CSV file are texts;
`{{count | json}}` parses one. A case is repeated for each value of the axes that it names.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

from offbook.errors import FormatError, did_you_mean
from offbook.evals.run_record import json_lines
from offbook.files import MAX_FILE_SIZE, parse_document, parse_json, read_text

Fail = Callable[[str, str, str], NoReturn]

_TEMPLATE = re.compile(r"\{\{\s*([^{}|]+?)\s*(?:\|\s*(\w+)\s*)?\}\}")
ROW = "row"  # the number of the row, from 1


class CaseOrigin(NamedTuple):
    """Where a case was written: its location in the pack, and its row of a data set."""

    at: str
    row: str = ""


def expand_cases(
    raw: Mapping[str, Any], base: Path, fail: Fail
) -> tuple[list[Any], list[CaseOrigin]]:
    """Return the cases of a pack: its own and those of its data sets, for all values of axes."""
    for name, kind in (("axes", dict), ("cases", list), ("datasets", list)):
        if not isinstance(raw.get(name) or kind(), kind):
            _refuse(raw[name], kind, f"$.{name}", fail)
    axes = _read_axes(raw.get("axes") or {}, fail)
    used: set[str] = set()
    cases: list[Any] = []
    origins: list[CaseOrigin] = []

    def add(case: Any, values: Mapping[str, Any], origin: CaseOrigin) -> None:
        names = _names_in(case)
        if both := sorted(axes.keys() & values.keys() & names):
            fail(f"{both[0]!r} is an axis and a column", origin.at, "rename the axis")
        chosen = [name for name in axes if name in names]
        used.update(chosen)
        for cell in product(*(axes[name].items() for name in chosen)):
            labels = {name: label for name, (label, _) in zip(chosen, cell, strict=True)}
            known = {**values, **{n: value for n, (_, value) in zip(chosen, cell, strict=True)}}
            done = _render(case, known, origin, fail) if known or origin.row else case
            if labels:
                name, metadata = done["id"], done.get("metadata", {})
                for key, value, kind in (("id", name, str), ("metadata", metadata, dict)):
                    if not isinstance(value, kind):
                        _refuse(value, kind, f"{origin.at}.{key}", fail)
                done["id"] = "/".join([name, *(f"{n}={v}" for n, v in labels.items())])
                done["metadata"] = {**labels, **metadata}
            cases.append(done)
            origins.append(origin)

    for number, case in enumerate(raw.get("cases") or ()):
        at = f"$.cases[{number}]"
        if not isinstance(case, dict):
            _refuse(case, dict, at, fail)
        default = {"id": f"case_{number + 1}"} if axes else {}
        add({**default, **cast("dict[str, Any]", case)}, {}, CaseOrigin(at))
    for number, dataset in enumerate(raw.get("datasets") or ()):
        at = f"$.datasets[{number}]"
        case = dataset.get("case") if isinstance(dataset, dict) else None
        if not isinstance(case, dict) or not isinstance(dataset.get("path"), str):
            fail("a data set needs a path and a case", at, 'path = "rows.csv" and [datasets.case]')
        path = base / dataset["path"]
        prefix = dataset.get("id") or path.stem
        rows = read_rows(path)
        if not rows:
            fail(f"the data set {path.name} has no rows", f"{at}.path", "")
        for place, row in enumerate(rows, 1):
            made = {"id": f"{prefix}-{place}", **cast("dict[str, Any]", case)}
            origin = CaseOrigin(f"{at}.case", f"row {place} of {path.name}")
            add(made, {ROW: place, **row}, origin)
    if unused := [name for name in axes if name not in used]:
        hint = f"write {{{{{unused[0]}}}}} where its value belongs"
        fail(f"no case uses the axis {unused[0]!r}", f"$.axes.{unused[0]}", hint)
    return cases, origins


def _refuse(value: Any, kind: type, at: str, fail: Fail) -> NoReturn:
    """Raise an error for a value that is not of this kind."""
    expected = {dict: "a table", list: "a list", str: "a text"}[kind]
    fail(f"expected {expected}, got {type(value).__name__}", at, "")


def _read_axes(raw: Any, fail: Fail) -> dict[str, dict[str, Any]]:
    """Return the values of each axis by their names: those of a list are their own names."""
    axes: dict[str, dict[str, Any]] = {}
    for name, given in cast("dict[str, Any]", raw).items():
        values = given
        if isinstance(given, list):
            items = cast("list[Any]", given)
            values = {item if isinstance(item, str) else json.dumps(item): item for item in items}
            if len(values) < len(items):
                fail(f"the axis {name!r} has a value twice", f"$.axes.{name}", "")
        if not isinstance(values, dict) or not values:
            fail(
                f"the axis {name!r} has no values", f"$.axes.{name}", "a list, or names and values"
            )
        axes[name] = cast("dict[str, Any]", values)
    return axes


# --- Templates


def _names_in(value: Any) -> set[str]:
    """Return the first parts of the names that the templates of a value have."""
    if isinstance(value, str):
        return {match[1].partition(".")[0] for match in _TEMPLATE.finditer(value)}
    if isinstance(value, dict):
        return {name for item in cast("dict[str, Any]", value).values() for name in _names_in(item)}
    if isinstance(value, list):
        return {name for item in cast("list[Any]", value) for name in _names_in(item)}
    return set()


def _render(value: Any, known: Mapping[str, Any], origin: CaseOrigin, fail: Fail) -> Any:
    """Return a value with all templates replaced."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: _render(item, known, origin, fail) for key, item in fields.items()}
    if isinstance(value, list):
        return [_render(item, known, origin, fail) for item in cast("list[Any]", value)]
    if not isinstance(value, str):
        return value

    def find(match: re.Match[str]) -> Any:
        found: Any = known
        for part in match[1].split("."):
            if not isinstance(found, Mapping) or part not in found:
                names = list(cast("Mapping[str, Any]", found)) if isinstance(found, Mapping) else []
                fail(f"no column or axis {match[1]!r}", origin.at, did_you_mean(part, names))
            found = cast("Mapping[str, Any]", found)[part]
        if match[2] is None:
            return found
        if match[2] != "json":
            fail(f"unknown filter {match[2]!r}", origin.at, "{{name | json}} parses a text")
        try:
            return json.loads(found) if isinstance(found, str) else found
        except ValueError:
            fail(f"{origin.row}: {match[1]} is not JSON: {found!r}", origin.at, "")

    if whole := _TEMPLATE.fullmatch(value):
        return find(whole)
    return _TEMPLATE.sub(lambda match: _to_text(find(match)), value)


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# --- Rows


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file: CSV, JSONL, JSON, YAML or Parquet."""
    reader = READERS.get(path.suffix)
    if reader is None:
        raise FormatError(
            f"unsupported file type {path.suffix!r}",
            path=path,
            hint=f"a data set is a {', '.join(READERS)} file",
        )
    if not path.is_file():
        raise FormatError("no such file", path=path)
    rows = [*reader(path)]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            what = f"expected an object in row {number}, got {type(row).__name__}"
            raise FormatError(what, path=path)
    return rows


def _read_csv(path: Path) -> Iterator[dict[str, Any]]:
    reader = csv.reader(io.StringIO(read_text(path).removeprefix("\ufeff")), strict=True)
    limit = csv.field_size_limit(MAX_FILE_SIZE)  # a cell may be as large as the file
    try:
        names = next(reader, list[str]())
        if twice := next((name for name in names if names.count(name) > 1 or not name), None):
            raise FormatError(f"the column {twice!r} is there twice", path=path, line=1)
        for cells in reader:
            if not cells:
                continue  # an empty line
            if len(cells) != len(names):
                what = f"expected {len(names)} cells, got {len(cells)}"
                raise FormatError(what, path=path, line=reader.line_num)
            yield dict(zip(names, cells, strict=True))
    except csv.Error as error:
        raise FormatError(f"invalid CSV: {error}", path=path, line=reader.line_num) from error
    finally:
        csv.field_size_limit(limit)


def _read_jsonl(path: Path) -> Iterator[Any]:
    for number, line in json_lines(read_text(path)):
        yield parse_json(line, path, number)


def _read_list(path: Path) -> Sequence[Any]:
    value = parse_document(read_text(path), path)
    if not isinstance(value, list):
        raise FormatError(f"expected a list of rows, got {type(value).__name__}", path=path)
    return cast("list[Any]", value)


def _read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    from offbook.evals.run_directory import load_duckdb  # few packs have such files

    database = load_duckdb("Parquet files")
    try:
        cursor = database.connect(":memory:").execute("select * from read_parquet(?)", [str(path)])
    except database.Error as error:
        raise FormatError(f"invalid Parquet file: {error}", path=path) from error
    names = [column[0] for column in cursor.description]
    for row in cursor.fetchall():
        # Dates, decimals and the like as texts.
        yield json.loads(json.dumps(dict(zip(names, row, strict=True)), default=str))


READERS: dict[str, Callable[[Path], Any]] = {
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
    **dict.fromkeys((".json", ".yaml", ".yml"), _read_list),
    ".parquet": _read_parquet,
}
