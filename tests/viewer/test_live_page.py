"""The live page and the review in real Chromium."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from playwright.sync_api import expect

from offbook.trace import Event
from offbook.viewer import LiveFeed, LiveServer, PageTrace, ReviewDesk
from offbook.viewer.watched_page import ResultsFeed
from offbook.workflows import list_pending
from tests.viewer.conftest import Opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HEADER = Event(0, "_meta.trace", {"format": "offbook.trace", "version": 1})
STATE = '{{"files": {{"a.txt": "{}\\n"}}}}'


def write(path: Path, *events: Event) -> None:
    with path.open("ab") as file:
        file.writelines(msgspec.json.encode(event) + b"\n" for event in events)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveServer]:
    monkeypatch.delenv("CI", raising=False)
    desk = ReviewDesk(lambda: list_pending([str(tmp_path)]))
    server = LiveServer(LiveFeed(tmp_path), desk)
    yield server.launch()
    server.feed.end()
    server.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    context = browser.new_context()
    yield Opened(context.new_page())
    context.close()


def test_the_page_shows_events_when_they_are_written(
    tmp_path: Path, server: LiveServer, opened: Opened
):
    path = tmp_path / "trace.jsonl"
    write(path, HEADER, Event(1, "agent.start", {"prompt": "First question"}, 1))
    server.feed.poll()
    opened.page.goto(server.url)
    opened.page.get_by_text("First question").first.wait_for()
    write(path, Event(2, "ui.notify", {"method": "notify", "args": ["second thing"]}, 2))
    server.feed.poll()
    opened.page.get_by_text("second thing").first.wait_for()
    hosts = {url.split("/")[2] for url in opened.requests if url.startswith("http")}
    assert hosts == {server.url.split("/")[2]}


def test_traces_that_grow_together_are_two_traces(
    tmp_path: Path, server: LiveServer, opened: Opened
):
    for number in (1, 2):
        for name in ("one", "two"):
            path = tmp_path / f"{name}.jsonl"
            event = Event(number, "agent.start", {"prompt": f"{name} {number}"}, number)
            write(path, *([HEADER] if number == 1 else []), event)
        server.feed.poll()
    opened.page.goto(f"{server.url}#trace=1")
    opened.page.get_by_text("one 2").first.wait_for()
    assert opened.page.get_by_text("two 2").count() == 0


def test_the_results_of_tests_replace_those_before(tmp_path: Path, opened: Opened):
    def trace(name: str, outcome: str) -> PageTrace:
        test = {"outcome": outcome, "message": f"{name} broke"}
        return PageTrace(
            name, [Event(1, "agent.start", {"prompt": outcome}, 1)], about={"test": test}
        )

    feed = ResultsFeed(tmp_path)
    feed.show([trace("test_a", "failed"), trace("test_b", "failed")])
    server = LiveServer(feed, ReviewDesk()).launch()
    try:
        opened.page.goto(f"{server.url}#trace=2")
        expect(opened.page.locator(".side")).to_contain_text("test_b broke", timeout=60_000)
        feed.show([trace("test_b", "passed")])  # it has another place now
        expect(opened.page.locator(".side")).not_to_contain_text("broke", timeout=60_000)
        assert "passed" in "".join(opened.rows())
        feed.show([trace("test_c", "passed"), trace("test_d", "passed")])
        opened.page.locator("#overview").wait_for()
        assert opened.messages == []
    finally:
        feed.end()
        server.close()


def test_a_change_is_accepted_by_the_keyboard(tmp_path: Path, server: LiveServer, opened: Opened):
    (tmp_path / "one.json.proposed").write_text(STATE.format("<img src=x onerror=alert(1)>"))
    (tmp_path / "one.json").write_text(STATE.format("old"))
    write(tmp_path / "trace.jsonl", HEADER, Event(1, "agent.start", {"prompt": "Go"}, 1))
    server.feed.poll()
    opened.page.goto(server.url)
    opened.page.get_by_role("button", name="Review").click()
    opened.page.get_by_text("+<img src=x onerror=alert(1)>").wait_for()
    opened.page.get_by_role("button", name="Accept", exact=True).focus()
    opened.press("Enter")
    opened.page.get_by_text("Nothing is pending").wait_for()
    assert "<img" in (tmp_path / "one.json").read_text()
    opened.page.get_by_role("button", name="Undo").click()
    opened.page.get_by_text("1 pending").wait_for()
    assert (tmp_path / "one.json").read_text() == STATE.format("old")
    assert opened.messages == []


# --- Real runs, followed by the real command

ROOT = Path(__file__).parents[2]
COMMAND = "from offbook.surfaces.cli import main; main()"


@contextmanager
def started(*command: str) -> Generator[subprocess.Popen[str]]:
    """A process of Python, interrupted at the end of the block if it still runs."""
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)


@contextmanager
def followed(kind: str, folder: Path, opened: Opened) -> Generator[subprocess.Popen[str]]:
    """A run that waits for the file `go`, and its live page in the browser."""
    with started("-m", "tests.viewer.live_runs", kind, str(folder)) as run:
        assert run.stdout is not None
        path = run.stdout.readline().strip()
        with started("-c", COMMAND, "view", "--live", path) as view:
            assert view.stdout is not None
            found = re.search(r"http://\S+", view.stdout.readline())
            assert found is not None
            opened.page.set_default_timeout(60_000)
            opened.page.goto(found[0])
            yield run


def test_a_hat_loop_is_followed_while_it_runs(tmp_path: Path, opened: Opened):
    with followed("loop", tmp_path, opened):
        wait = expect(opened.page.locator(".list"))
        wait.to_contain_text("iteration 2 builder", timeout=60_000)
        expect(opened.page.locator(".top .outcome")).to_contain_text("unfinished")
        assert "loop ended" not in "".join(opened.rows())
        (tmp_path / "go").touch()
        wait.to_contain_text("loop ended CompletionPromise", timeout=60_000)
        expect(opened.page.locator(".top .outcome")).to_contain_text("passed", timeout=60_000)


def test_an_eval_run_is_followed_case_by_case(tmp_path: Path, opened: Opened):
    with followed("pack", tmp_path, opened) as run:
        cases = opened.page.locator(".cases tbody tr")
        expect(cases).to_have_count(1, timeout=60_000)
        expect(opened.page.locator(".run .outcome")).to_contain_text("unfinished")
        cases.locator("button.link").first.focus()
        opened.press("Enter")
        expect(opened.page.locator(".case-detail")).to_contain_text("first · trial 1 · pass")
        (tmp_path / "go").touch()
        expect(cases).to_have_count(2, timeout=60_000)
        expect(opened.page.locator(".run .outcome")).to_contain_text("passed", timeout=60_000)
        expect(opened.page.locator(".case-detail")).to_contain_text("first · trial 1 · pass")
        expect(cases.locator("button.link:focus")).to_have_text("first")
        assert run.wait(300) == 0
