"""The trace of every subject on the page: its rows, its indentation and its summary."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from offbook.viewer import read_sources, render_page, render_traces
from tests.viewer.conftest import Opened, OpenPage
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
              model “
              iteration.summary
              stdout
              publish build.task
            iteration 2 builder
              model “
              iteration.summary
              stdout
              publish build.done
            iteration 3 planner
              model “
              iteration.summary
              stdout LOOP_COMPLETE
          loop ended CompletionPromise · exit code 0
        run passed
    """,
    "pattern": """
        set counter.value 3
        set counter.value 4
    """,
}
# What a person has to read to know why a run failed: in the header, and in the summary.
REASONS = {
    "mismatch": (
        "expected “Refund order 7”, got “Refund order 8”",
        "The request is not the one that was recorded",
    ),
    "missing result": (
        "the result of call find_order never came back",
        "The run did not follow its script",
    ),
    "blocked tool": (
        "A hook blocked the tool bash: no shell in this project",
        "Before it: event 8 A hook blocked the tool bash",
    ),
    "timeout": ("was still running after 2 s", "Timeout: the agent did not end in time"),
    "judge": (
        "politeness: score 0.00 is below 0.7: The answer blames the customer.",
        "The check “politeness: judge” failed",
    ),
}
SIZES = [(1280, 800), (900, 700), (390, 800)]
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
        timeout=300,
    )
    return folder


def test_the_coverage_of_the_agent_names_the_parts_that_never_ran(
    open_html: OpenPage, traces: Path
) -> None:
    opened = open_html(render_traces([traces / "session" / "trace.jsonl"]))
    coverage = opened.page.locator(".coverage")
    assert "3 of 4 parts run (75 %)" in coverage.inner_text()
    coverage.locator("summary").focus()
    opened.press("Enter")
    expect(coverage.locator("tbody tr").first).to_have_text("toolreadnever called")


def test_the_coverage_of_several_traces_is_in_the_overview(
    open_html: OpenPage, traces: Path
) -> None:
    paths = [traces / name / "trace.jsonl" for name in ("session", "loop")]
    opened = open_html(render_traces(paths))
    rows = opened.page.locator(".overview .coverage tbody tr")
    assert rows.filter(has_text="hat").filter(has_text="builder").count() == 1
    assert rows.filter(has_text="bash").count() == 1


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_trace_of_a_subject_has_its_layout(
    open_html: OpenPage, traces: Path, name: str
) -> None:
    opened = open_html(render_traces([traces / name / "trace.jsonl"]))
    opened.page.locator(".list .row").first.wait_for()
    rows = opened.page.locator(".list .row").evaluate_all(ROWS)
    expected = [line[8:] for line in LAYOUT[name].splitlines() if line.strip()]
    assert len(rows) == len(expected), "\n".join(rows)
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
        timeout=300,
    )
    traces, records = read_sources([tmp_path / "run"])
    opened = open_html(render_page(traces, records=records))
    assert "2 of 2 (100 %)" in opened.text(".run tbody tr")
    assert opened.page.locator(".overview section").last.locator("tbody tr").count() == 2
    opened.page.locator(".run .trial").first.click()
    opened.page.get_by_role("button", name="Open its trace").click()
    opened.page.wait_for_selector(".list .row")
    assert "find_order" in "".join(opened.rows())


def render_run(traces: Path, name: str) -> str:
    """Return the page of a run: of its directory if it is an eval run, otherwise of its trace."""
    run = traces / name / "run"
    found, records = read_sources([run if run.exists() else traces / name / "trace.jsonl"])
    return render_page(found, records=records)


def is_on_the_first_screen(opened: Opened, text: str) -> bool:
    """Return whether all of an element with this text is in the window, in front of the others."""
    return opened.page.get_by_text(text).first.evaluate(
        """element => {
          const box = element.getBoundingClientRect();
          const found = document.elementFromPoint(box.left + 4, box.top + 4);
          return box.bottom <= innerHeight && box.right <= innerWidth && element.contains(found);
        }"""
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FAILURES)
def test_the_reason_of_a_failure_is_on_the_first_screen(
    open_html: OpenPage, traces: Path, name: str, size: tuple[int, int]
) -> None:
    opened = open_html(render_run(traces, name), size=size)
    assert is_on_the_first_screen(opened, REASONS[name][0])


@pytest.mark.parametrize("name", FAILURES)
def test_the_keyboard_alone_leads_to_the_reason(
    open_html: OpenPage, traces: Path, name: str
) -> None:
    opened = open_html(render_run(traces, name))
    if name == "judge":
        opened.press("n", "Tab")  # the case that failed, and its trial
        expect(opened.page.locator(".case-detail")).to_contain_text("The answer blames the")
        opened.press("Tab", "Enter")  # its trace
    headline, cause = REASONS[name]
    expect(opened.page.locator(".top-why")).to_contain_text(headline)
    expect(opened.page.locator(".problem").first).to_contain_text(cause)
    if name != "judge":  # the judge scores after the trace has ended
        opened.press("n")
        opened.page.wait_for_selector(".panel")
        opened.press("Enter")
        expect(opened.page.locator(".panel:focus")).to_be_visible()
        opened.press("Escape", "Escape")
        expect(opened.page.locator(".summary")).to_be_visible()


def test_the_trace_of_a_case_that_failed_is_not_shown_as_passed(
    open_html: OpenPage, traces: Path
) -> None:
    opened = open_html(render_run(traces, "judge"))
    assert "1 trace: 1 failed" in opened.text(".overview")
    opened.press("]")
    expect(opened.page.locator(".summary .outcome")).to_contain_text("failed")


def test_what_was_expected_has_one_colour_and_what_came_another(
    open_html: OpenPage, traces: Path
) -> None:
    opened = open_html(render_run(traces, "mismatch"))
    colours = opened.page.evaluate(
        """() => ['.problem .del', '.problem del.line', '.problem .ins', '.problem ins.line']
          .map(name => getComputedStyle(document.querySelector(name)).color)"""
    )
    ok, fail = opened.page.evaluate(
        """() => ['passed', 'failed'].map(name => {
          const badge = document.body.appendChild(document.createElement('span'));
          badge.className = `outcome ${name}`;
          return getComputedStyle(badge).color;
        })"""
    )
    assert colours == [fail, fail, ok, ok]  # as in other diffs


def test_a_call_without_a_result_is_marked_in_the_list(open_html: OpenPage, traces: Path) -> None:
    opened = open_html(render_run(traces, "missing result"))
    row = opened.page.locator(".row.tool.warn")
    assert row.locator(".label").inner_text() == 'find_order {"number":7} → no result'


def test_a_mismatch_has_its_difference_marked(open_html: OpenPage, traces: Path) -> None:
    opened = open_html(render_run(traces, "mismatch"))
    assert opened.text(".problem del.line") == "- Refund order 7"
    assert opened.text(".problem ins.line") == "+ Refund order 8"
