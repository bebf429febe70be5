"""The page of an eval run: 1,000 cases of a CSV file with two axes, and of two runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from offbook.evals import RunOptions, read_pack, run_pack
from offbook.trace.redaction import Redaction
from offbook.viewer.html_page import read_comparison, read_sources, render_page
from tests.viewer.conftest import OpenPage

if TYPE_CHECKING:
    from playwright.sync_api import Locator

PACK = """id = "orders"

[[datasets]]
path = "orders.csv"

[datasets.case]
id = "order-{{order}}"
subject = "orders.py:answer"
input = "{{request}} order {{order}}"
env = { TONE = "{{tone}}", MODEL = "{{model}}" }
severity = "informational"
metadata = { kind = "{{kind}}" }
assertions = [{ kind = "output", contains = "{{expected}}" }]

[axes]
tone = ["short", "kind"]
model = ["small", "large"]
"""
AGENT = """import os

def answer(text):
    word = "refunded" if text.startswith("Refund") else "unknown"
    if os.environ["MODEL"] == "large" and LEARNED:
        word = "cancelled" if text.startswith("Cancel") else word
    return f"Thank you. {word}" if os.environ["TONE"] == "kind" else word
"""
ROWS = 250


def write_pack(folder: Path, count: int = ROWS) -> Path:
    """Write a pack of four cases for each of the rows: 1,000 cases."""
    rows = ["order,kind,request,expected"]
    for number in range(count):
        refund = number % 5 > 0
        kind, request = ("card", "Refund") if refund else ("cash", "Cancel")
        rows.append(f"{number},{kind},{request},{'refunded' if refund else 'cancelled'}")
    (folder / "orders.csv").write_text("\n".join(rows) + "\n")
    (folder / "orders.eval.toml").write_text(PACK)
    return folder / "orders.eval.toml"


def run_agent(folder: Path, name: str, count: int = ROWS) -> Path:
    """Run the pack; the agent of the second run has learned to cancel."""
    pack = write_pack(folder, count)
    (folder / "orders.py").write_text(f"LEARNED = {name == 'after'}\n{AGENT}")
    return run_pack([pack], RunOptions(output=str(folder / name))).folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 1,000 cases."""
    return run_agent(tmp_path_factory.mktemp("runs"), "after")


def open_runs(open_html: OpenPage, *folders: Path, address: str, shown: str) -> Any:
    """Open the page of one run or two, and wait until a part of it is shown."""
    if len(folders) > 1:
        traces, records = read_comparison(folders[0], folders[1], Redaction())
    else:
        traces, records = read_sources(folders)
    page = open_html(render_page(traces, records=records), address).page
    page.wait_for_selector(shown)
    return page


def column(table: Locator, number: int) -> list[str]:
    return table.locator(f"tbody tr td:nth-child({number})").all_inner_texts()


def test_a_thousand_cases_with_two_axes_are_one_file_of_forty_lines(tmp_path: Path) -> None:
    pack = write_pack(tmp_path)
    assert len(pack.read_text().splitlines()) <= 40
    assert len(read_pack(pack).cases) == 1000


def test_the_page_of_a_run_has_its_slices_and_sorts_its_cases(
    open_html: OpenPage, run: Path
) -> None:
    page = open_runs(open_html, run, address="#view=overview", shown="table.cases")
    assert page.locator(".cases tbody tr").count() == 1000
    slices = {
        table.locator("th").first.inner_text(): column(table, 3)
        for table in page.locator("table.slices").all()
    }
    assert slices == {
        "tone": ["90.0 %", "90.0 %"],
        "model": ["80.0 %", "100 %"],
        "kind": ["50.0 %", "100 %"],
    }
    table = page.locator("table.cases")
    table.locator("th button", has_text="Case").click()
    assert column(table, 1)[0] == "order-0/tone=kind/model=large"
    table.locator("th button", has_text="Case").click()
    assert column(table, 1)[0] == "order-249/tone=short/model=small"
    assert table.locator("th[aria-sort=descending]").inner_text() == "Case"


def test_a_slice_shows_its_cases_and_a_case_its_trace(open_html: OpenPage, run: Path) -> None:
    page = open_runs(open_html, run, address="#view=overview", shown="table.cases")
    page.locator("table.slices button", has_text="cash").click()
    assert page.locator(".cases tbody tr").count() == 200
    page.locator("button", has_text="show all").click()
    assert page.locator(".cases tbody tr").count() == 1000
    page.locator(".cases tbody tr button", has_text="trace").first.click()
    page.wait_for_selector(".summary")
    assert "order-0" in page.locator(".summary h2").inner_text()


def test_a_run_has_the_distribution_of_its_times(open_html: OpenPage, run: Path) -> None:
    page = open_runs(open_html, run, address="#view=overview", shown="table.cases")
    label = page.locator(".histogram-bars").first.get_attribute("aria-label")
    assert label.startswith("Latency: ")
    assert page.locator(".histogram").first.locator(".histogram-bar").count() == 12


def test_two_runs_have_the_differences_with_their_intervals(
    open_html: OpenPage, tmp_path: Path
) -> None:
    runs = [run_agent(tmp_path, name, 10) for name in ("before", "after")]
    page = open_runs(open_html, *runs, address="#view=compare", shown="table.differences")
    rows = page.locator("table.differences tbody tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == ["pass rate"]  # no time of a scripted run
    _, mean, interval, p_value, _ = rows[0].split("\t")
    assert (mean, p_value) == ("+0.1", "0.125")
    low, high = (float(part) for part in interval.split(" to "))
    assert 0 <= low < 0.1 < high < 0.3
