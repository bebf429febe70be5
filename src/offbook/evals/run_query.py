"""SQL over the results of runs, with DuckDB.

    offbook eval query "select id, status from results where status <> 'pass'"

`results` has one row for each trial of all runs, with the column `run`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from offbook.errors import UsageError
from offbook.evals.run_directory import RESULTS, ROOT


def query_results(sql: str, root: Path = ROOT) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the names of the columns, and the rows."""
    try:
        import duckdb  # pyright: ignore[reportMissingImports] - an extra
    except ImportError as error:
        raise UsageError(
            "queries need the package duckdb", hint="pip install 'offbook[duckdb]'"
        ) from error
    if not any(root.glob(f"*/{RESULTS}")):
        raise UsageError("no results to query", where=str(root), hint="offbook eval run PACK")
    database: Any = duckdb
    connection = database.connect(":memory:")
    pattern = str(root / "*" / RESULTS).replace("'", "''")
    # A view: only the columns that a query names are read from the files.
    columns = "*, regexp_extract(filename, '([^/]+)/[^/]+$', 1) as run"
    options = "format='newline_delimited', union_by_name=true, filename=true, ignore_errors=true"
    source = f"read_json('{pattern}', {options})"
    connection.execute(f"create view results as select {columns} from {source}")  # noqa: S608 - ours
    try:
        cursor = connection.execute(sql)
    except database.Error as error:
        raise UsageError(f"invalid query: {error}") from error
    return [column[0] for column in cursor.description], cursor.fetchall()


def render_rows(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return the lines of a table."""
    cells = [list(names), *([str(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(names))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
