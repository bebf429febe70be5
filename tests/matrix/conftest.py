"""Print the matrix after a whole run: each client and mode, with its versions."""

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
                properties = dict(report.user_properties)
                cells[row.client, row.variant][row.mode] = properties.get("missing", cell)
                versions.setdefault((row.client, row.variant), properties.get("client", ""))
    terminalreporter.section("clients")
    for key, modes in sorted(cells.items()):
        shown = " ".join(f"{mode} {modes.get(mode, '-'):<14}" for mode in ("plain", "stream"))
        terminalreporter.write_line(f"{key[0]:<20} {key[1]:<18} {shown} {versions[key]}")
