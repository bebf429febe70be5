"""The page of a trace of 100,000 events: its size, the time to its first rows, and its scrolling.

The browser measures itself: paint timing, frames and long tasks while the list scrolls, once while
the trace is still being read and once after it. Long tasks are counted twice: by their duration,
which other programs of the machine lengthen, and by the CPU time of the page's main thread. Needs
Chromium; `./dev browser` installs it. `python bench/viewer.py --megabytes 200` also opens a trace
of that size.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbook.viewer import render_traces

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

EVENTS = 100_000
LONG_TASK_MS = 50
SWITCHES = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WORDS = ["order", "was", "found", "and", "refund", "of", "the", "kettle", "sent", "to", "customer"]

PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1"
PROBE = """async () => {
  const list = document.querySelector('.list');
  const long = [];
  new PerformanceObserver(l => long.push(...l.getEntries().map(e => e.duration)))
    .observe({ type: 'longtask' });
  list.scrollTop = 0;
  const gaps = [];
  const empty = [];
  let last = performance.now();
  for (let frame = 0; frame < 240; frame++) {
    list.scrollTop += frame < 200 ? 400 : 100_000;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    gaps.push(now - last);
    last = now;
    const top = list.getBoundingClientRect().top;
    empty.push(document.elementFromPoint(60, top + 100)?.closest('.row') ? 0 : 1);
  }
  gaps.sort((a, b) => a - b);
  return { median: gaps[120], p99: gaps[237], worst: gaps.at(-1), long: long.length,
    empty: empty.reduce((a, b) => a + b) };
}"""
FRAMES = """async () => {
  const gaps = [];
  let last = performance.now();
  for (let frame = 0; frame < 240; frame++) {
    const now = await new Promise(requestAnimationFrame);
    gaps.push(now - last);
    last = now;
  }
  gaps.sort((a, b) => a - b);
  return { median: gaps[120], p99: gaps[237] };
}"""


def write_trace(path: Path, count: int, size: int) -> None:
    """Write a trace with turns, model calls and tools, whose texts do not repeat."""
    chance = random.Random(7)  # noqa: S311 - reproducible, no secret

    def words(number: int) -> str:
        return " ".join(chance.choices(WORDS, k=number)) + f" {chance.getrandbits(48):x}"

    before = ""
    with path.open("w", encoding="utf-8") as file:
        now = 1_790_000_000_000
        seq = 0

        def emit(name: str, data: dict[str, Any]) -> None:
            nonlocal now, seq
            now += chance.randrange(40)
            seq += 1
            event = {"ts": now, "event": name, "data": data, "seq": seq}
            file.write(json.dumps(event, separators=(",", ":")) + "\n")

        file.write('{"ts":0,"event":"_meta.trace","data":{"format":"offbook.trace","version":1}}\n')
        emit("_meta.run_start", {"subject": "session", "turns": 1})
        number = 0
        messages = 1
        while seq < count - 1:
            number += 1
            after, answer = f"{chance.getrandbits(96):024x}", f"{chance.getrandbits(96):024x}"
            call = f"call_{chance.getrandbits(96):024x}"
            new = [{"role": "user", "blocks": [{"type": "text", "text": words(size)}]}]
            request = {"exchange": f"x{number}", "before": before, "after": after, "new": new}
            emit("model.request", {**request, "count": messages, "head": "h"})
            arguments = {"command": words(size), "number": number}
            block = {"type": "tool_call", "id": call, "name": "bash", "arguments": arguments}
            usage = {"input": chance.randrange(9999), "output": chance.randrange(999)}
            reply = {"exchange": f"x{number}", "after": answer, "blocks": [block]}
            emit("model.reply", {**reply, "stop": "tool_use", "usage": usage})
            emit("tool.call", {"call_id": call, "tool": "bash", "input": arguments})
            content = [{"type": "text", "text": words(size * 2)}]
            result = {"call_id": call, "tool": "bash", "content": content}
            emit("tool.result", {**result, "is_error": number % 50 == 0})
            before, messages = answer, messages + 2
        emit("_meta.run_end", {"ok": True})


def measure_scrolling(browser: Browser, page: Page) -> dict[str, Any]:
    """Scroll the list, and return its frames and the CPU time of the tasks of the main thread."""
    browser.start_tracing(page=page, categories=["toplevel"])
    found: dict[str, Any] = page.evaluate(PROBE)
    events: list[dict[str, Any]] = json.loads(browser.stop_tracing())["traceEvents"]
    threads = {
        (event["pid"], event["tid"])
        for event in events
        if event.get("name") == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    cpu = [
        event["tdur"] / 1000
        for event in events
        if (event["pid"], event["tid"]) in threads
        and event["name"] == "ThreadControllerImpl::RunTask"
        and "tdur" in event
    ]
    long = sum(task > LONG_TASK_MS for task in cpu)
    return {**found, "cpu": sum(cpu) / 240, "worst_cpu": max(cpu), "long_cpu": long}


def measure(path: Path) -> dict[str, Any]:
    """Open a page in Chromium, wait for its rows, scroll, and return the measures."""
    from playwright.sync_api import sync_playwright

    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if program is None:
        sys.exit("needs Chromium: ./dev browser installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=SWITCHES)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        found: dict[str, Any] = {"idle": page.evaluate(FRAMES)}
        start = time.perf_counter()
        page.goto(f"file://{path}", wait_until="load", timeout=120_000)
        loaded = time.perf_counter()
        page.wait_for_selector(".list .row", timeout=120_000)
        ready = time.perf_counter()
        found["paint"] = page.evaluate(PAINT)
        found["reading"] = measure_scrolling(browser, page)
        page.wait_for_selector('main[aria-busy="false"]', timeout=600_000)
        found["read"] = measure_scrolling(browser, page)
        start_search = time.perf_counter()
        page.keyboard.press("/")
        page.keyboard.type("99999")
        page.wait_for_function(
            "() => document.querySelector('.status').textContent.includes('match')"
        )
        found["search"] = time.perf_counter() - start_search
        browser.close()
    return {**found, "load": loaded - start, "rows_after_load": ready - loaded}


def main() -> None:
    """Print the measures of 100,000 events, and of a large trace on request."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=0)
    options = parser.parse_args()
    viewer = len(render_traces([]))
    with tempfile.TemporaryDirectory() as folder:
        shapes = [("100,000 events", EVENTS, 12)]
        if options.megabytes:
            shapes.append((f"{options.megabytes} MB", options.megabytes * 1250, 90))
        for name, count, size in shapes:
            trace, page = Path(folder) / "trace.jsonl", Path(folder) / "page.html"
            write_trace(trace, count, size)
            raw = trace.read_bytes()
            zipped = len(gzip.compress(raw, 9))
            start = time.perf_counter()
            page.write_text(render_traces([trace]), encoding="utf-8")
            rendered = time.perf_counter() - start
            share = (page.stat().st_size - viewer) / zipped
            print(f"{name}: {len(raw) / 1e6:.1f} MB, gzip -9 {zipped / 1e6:.2f} MB")
            print(f"  page {page.stat().st_size / 1e6:.2f} MB = viewer {viewer / 1e3:.0f} kB")
            print(f"    + {share:.3f} x the compressed trace; written in {rendered:.1f} s")
            found = measure(page)
            print(f"  first paint {found['paint']:.0f} ms, page loaded {found['load']:.2f} s")
            print(f"  first rows {found['rows_after_load']:.2f} s after load")
            idle = found["idle"]
            print(f"  frames of an empty page: {idle['median']:.1f} median, {idle['p99']:.1f} p99")
            for phase, words in (("reading", "while it is read"), ("read", "after it is read")):
                part = found[phase]
                print(f"  scroll {words}: frames {part['median']:.1f} ms median")
                print(f"    {part['p99']:.1f} ms p99, {part['worst']:.1f} ms worst")
                print(f"    CPU of the main thread {part['cpu']:.1f} ms a frame")
                print(f"    worst task {part['worst_cpu']:.1f} ms CPU")
                print(f"    long tasks {part['long']} by duration, {part['long_cpu']} by CPU time")
                print(f"    frames without a row at the top {part['empty']} of 240")
            print(f"  search in all events {found['search']:.2f} s")


if __name__ == "__main__":
    main()
