"""How many clicks three sorts of failing run need; docs/guides/viewer.md has the table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import expect

from offbook.trace import Event
from offbook.viewer import PageTrace, render_page
from tests.viewer.conftest import OpenPage
from tests.viewer.test_page import case
from tests.viewer.test_timeline import exchange

pytestmark = pytest.mark.slow

Events = list[tuple[str, dict[str, Any]]]
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "viewer.md"
START = ("_meta.run_start", {"subject": "session"})


def failed(message: str, *events: tuple[str, dict[str, Any]]) -> Events:
    verdict = {"check": "run finished", "status": "fail", "message": message}
    return [
        START,
        *events,
        ("check.verdict", verdict),
        ("_meta.run_end", {"ok": False, "error": message}),
    ]


class FailingRun(NamedTuple):
    """A page: the reason that it shows at once, and the clicks to what explains it."""

    page: str
    reason: str
    clicks: list[str]  # selectors
    cause: str  # a text of the panel


def page_of(events: Events) -> str:
    return render_page(
        [
            PageTrace(
                "t", [Event(10 * n, name, data, n + 1) for n, (name, data) in enumerate(events)]
            )
        ]
    )


MISMATCH = "Replay mismatch at interaction 1 (track: model)\n- Refund order 7\n+ Refund order 8"
EXIT = {"code": 1, "timed_out": False}
PROCESS: Events = [
    ("process.start", {"command": ["agent"]}),
    ("process.output", {"stream": "stderr", "text": "KeyError: 'total'"}),
    ("process.exit", EXIT),
]
RUNS = [
    {"run": {"name": "main", "pass": True}},
    case("refund", 1, "pass"),
    {"run": {"name": "branch", "pass": False}},
    case("refund", 1, "fail"),
]
SORTS = {
    "a replay mismatch": FailingRun(
        page_of(failed(MISMATCH, *exchange(1, "Done."))),
        "Refund order 8",
        [".row.model", "#tab-conversation"],
        "prompt 1",
    ),
    "a crash of the agent": FailingRun(
        page_of(failed("exit code 1", *PROCESS)),
        "exit code 1",
        [".note .link", "#tab-output"],
        "KeyError",
    ),
    "an eval regression": FailingRun(
        render_page(records=RUNS),
        "worse",
        ["nav >> text=Overview", ".run tr.fail .link"],
        "refund fail",
    ),
}


@pytest.mark.parametrize("sort", SORTS)
def test_the_reason_needs_no_click_and_its_cause_a_few(open_html: OpenPage, sort: str):
    run = SORTS[sort]
    opened = open_html(run.page)
    expect(opened.page.locator(".summary, .compare").first).to_contain_text(run.reason)
    cause = opened.page.locator(".panel, .case-detail", has_text=run.cause)
    expect(cause).to_have_count(0)
    for selector in run.clicks:
        opened.page.locator(selector).first.click()
    expect(cause).to_be_visible()


def test_the_guide_has_the_number_of_clicks():
    rows = re.findall(r"^\| (an? [\w ]+) \| 0 \| (\d) \| the", GUIDE.read_text(), re.MULTILINE)
    assert dict(rows) == {sort: str(len(run.clicks)) for sort, run in SORTS.items()}
