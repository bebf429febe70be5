"""The page of the check-up over frameworks is that of the stored run, and large enough."""

import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MATRIX: dict[str, Any] = runpy.run_path(str(ROOT / "bench" / "checkup_matrix.py"))
STORED: list[dict[str, Any]] = MATRIX["read_stored"]()
ROWS = [line for line in STORED if "outcomes" in line]


def test_the_page_is_current():
    page = (ROOT / "docs" / "reference" / "checkup-frameworks.md").read_text("utf-8")
    assert page == MATRIX["render_page"](STORED), "run bench/checkup_matrix.py page"


def test_twenty_agents_of_the_matrix_are_checked():
    assert len({(row["client"], row["variant"]) for row in ROWS}) >= 20
    assert all(row["outcomes"]["baseline/answer"][0] == "survived" for row in ROWS)


def test_three_rows_are_explained_with_their_traces():
    shown = {(line["agent"], line["scenario"]): line["shown"] for line in STORED if "shown" in line}
    explained = MATRIX["EXPLAINED"]
    assert len(explained) == 3
    for agent, scenario, _ in explained:
        assert f"checkup {scenario}: " in shown[agent, scenario]
