"""The trace of every subject on the page: its rows, its indentation and its summary."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from offbook.viewer import read_sources, render_page, render_traces
from tests.viewer.conftest import OpenPage
from tests.viewer.example_traces import FAILURES, SUBJECTS

pytestmark = pytest.mark.slow

LAYOUT = {
    "session": """
        run session · 2 turns
          user “Greet me”
            model calls bash
              bash
            model calls write
              write
            model “Done.”
          user “Change it”
            model calls edit
              edit
            model “Changed.”
          pass playbook consumed
        run passed Changed.
    """,
    "framework": """
        run pydantic-ai · 1 turn
          user “Refund order 7”
            model calls find_order
              find_order
            model “Found it.”
          pass playbook consumed
        run passed Found it.
    """,
    "command": """
        run python · 1 turn
          process
          model “Hello.”
          stdout Hello.
          stderr ready
          process ended exit code 0
          process.result
          pass playbook consumed
        run passed Hello.
    """,
    "loop": """
        run loop · 1 turn
          loop at most 5 iterations
            agent.parts
            publish task.start
            iteration 1 planner
              stdout
              publish build.task
            iteration 2 builder
              stdout
              publish build.done
            iteration 3 planner
              stdout LOOP_COMPLETE
          loop ended CompletionPromise · exit code 0
        run passed
    """,
    "pattern": """
        set counter.value 3
        set counter.value 4
    """,
}
REASONS = {
    "mismatch": ("Replay mismatch at interaction 1", "Refund order 7"),
    "missing result": ("the result of call find_order never came back", "has no result"),
    "blocked tool": ("expected the output of rm", "A hook blocked the tool bash"),
    "timeout": ("was still running after 2 s", "timed out"),
    "judge": ("score 0.2 is below 0.7", "0.2"),
}
ROWS = """rows => rows.sort((a, b) => a.dataset.position - b.dataset.position).map(row =>
  '  '.repeat(Number(row.style.getPropertyValue('--depth')))
  + row.querySelector('.label').textContent.trim())"""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of all runs, made by another process: Playwright keeps an event loop in this."""
    folder = tmp_path_factory.mktemp("traces")
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-m", "tests.viewer.example_traces", str(folder)],
        cwd=root,
        check=True,
        timeout=120,
    )
    return folder


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_trace_of_a_subject_has_its_layout(
    open_html: OpenPage, traces: Path, name: str
) -> None:
    opened = open_html(render_traces([traces / name / "trace.jsonl"]))
    rows = opened.page.locator(".list .row").evaluate_all(ROWS)
    expected = [line[8:] for line in LAYOUT[name].splitlines() if line.strip()]
    assert len(rows) == len(expected), rows
    assert [
        row for row, start in zip(rows, expected, strict=True) if not row.startswith(start)
    ] == []
    boxes = opened.page.locator(".list .row").evaluate_all(
        "rows => rows.map(row => row.getBoundingClientRect()).map(b => [b.top, b.height])"
    )
    tops = sorted(top for top, _ in boxes)
    assert all(height == 28 for _, height in boxes)
    assert [b - a for a, b in itertools.pairwise(tops)] == [28] * (len(tops) - 1)


def test_an_eval_run_has_its_table_and_its_traces(open_html: OpenPage, tmp_path: Path) -> None:
    pack = Path(__file__).parents[2] / "examples" / "evals"
    command = "from offbook.surfaces.cli import main; main()"
    arguments = ["eval", "run", "playbook.eval.toml", "--output", str(tmp_path / "run")]
    subprocess.run(
        [sys.executable, "-c", command, *arguments],
        cwd=pack,
        capture_output=True,
        check=True,
        timeout=120,
    )
    traces, records = read_sources([tmp_path / "run"])
    opened = open_html(render_page(traces, records=records))
    assert "2 of 2 (100 %)" in opened.text(".run tbody tr")
    assert opened.page.locator(".overview section").last.locator("tbody tr").count() == 2
    opened.page.locator(".run .trial").first.click()
    opened.page.get_by_role("button", name="Open its trace").click()
    opened.page.wait_for_selector(".list .row")
    assert "find_order" in "".join(opened.rows())


@pytest.mark.parametrize("name", FAILURES)
def test_the_reason_of_a_failure_is_on_the_first_screen(
    open_html: OpenPage, traces: Path, name: str
) -> None:
    opened = open_html(render_traces([traces / name / "trace.jsonl"]))
    headline, cause = REASONS[name]
    assert headline in opened.text(".top-why")
    assert cause in opened.text(".side")
    opened.press("n")
    opened.page.wait_for_selector(".panel")


def test_a_mismatch_has_its_difference_marked(open_html: OpenPage, traces: Path) -> None:
    opened = open_html(render_traces([traces / "mismatch" / "trace.jsonl"]))
    assert opened.text(".problem del.line") == "- Refund order 7"
    assert opened.text(".problem ins.line") == "+ Refund order 8"
