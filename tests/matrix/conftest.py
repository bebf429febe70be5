"""Prints the matrix at the end of a whole run: each client and way, with its versions."""

from collections import defaultdict
from typing import Any

from tests.matrix.rows import ROWS, WHOLE

CELLS = {"passed": "ok", "failed": "FAILED", "error": "FAILED", "skipped": "skipped"}


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not WHOLE:
        return
    cells: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    versions: dict[tuple[str, str], str] = {}
    rows = {str(row): row for row in ROWS}
    for outcome, cell in CELLS.items():
        for report in terminalreporter.stats.get(outcome, []):
            row = rows.get(str(getattr(report, "nodeid", "")).partition("[")[2].rstrip("]"))
            if row is not None:
                told = dict(report.user_properties)
                cells[row.client, row.variant][row.way] = told.get("missing", cell)
                versions.setdefault((row.client, row.variant), told.get("client", ""))
    terminalreporter.section("clients")
    for key, ways in sorted(cells.items()):
        shown = " ".join(f"{way} {ways.get(way, '-'):<14}" for way in ("plain", "stream"))
        terminalreporter.write_line(f"{key[0]:<20} {key[1]:<18} {shown} {versions[key]}")
