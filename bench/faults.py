"""The calls that a run makes because faults exist, without a plan of faults.

Budget: no module of faults is imported, none of its functions is called, and the lookups of the
plan are below 1 call in 200: one for each tool call. Calls are counted, of Python and of C, so a
busy machine makes no difference.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import openai

from offbook import call, drive, say, session, when
from offbook.trace.hub import current_faults

STEPS = 200
SHARE = 1 / 200
MODULES = (
    "offbook.determinism.faults",
    "offbook.sources.faulty_source",
    "offbook.sources.faulty_source",
    "offbook.runs.fault_runs",
    "offbook.checks.fault_outcomes",
)


def run_session() -> None:
    """Run a session with many tool calls."""
    with session() as rehearsal:
        steps = [call("read", {"path": "a.txt"})] * STEPS
        Path(rehearsal.cwd, "a.txt").write_text("text", encoding="utf-8")
        rehearsal.run(when("Go", [*steps, say("Done.")]))


def ask(prompt: str) -> str | None:
    """Make calls of the OpenAI SDK."""
    messages: Any = [{"role": "user", "content": prompt}]
    with openai.OpenAI(api_key="none") as client:
        for _ in range(STEPS // 10):
            reply = client.chat.completions.create(model="m", messages=messages)
            messages += [
                {"role": "assistant", "content": reply.choices[0].message.content},
                {"role": "user", "content": "Next"},
            ]
    return "Done."


def run_client() -> None:
    """Run a function with a client of the OpenAI SDK."""
    with drive(ask) as rehearsal:
        rehearsal.run(when("Go", [say("Hi.")] * (STEPS // 10)))


def count_calls(run: Any) -> tuple[int, int, int]:
    """Return the number of all calls, of calls of fault modules, and of lookups of the plan."""
    counts: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            counts["all"] += 1
            counts["faults"] += frame.f_globals.get("__name__") in MODULES
            counts["lookups"] += frame.f_code is current_faults.__code__
        elif event == "c_call":
            counts["all"] += 1

    run()  # imports are not counted
    threading.setprofile(profile)  # a function that blocks runs in a thread
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return counts["all"], counts["faults"], counts["lookups"]


def main() -> int:
    """Count, print, and return 1 if the budget is exceeded."""
    failed = False
    for name, run in (("session", run_session), ("client", run_client)):
        every, faults, lookups = count_calls(run)
        share = lookups / every
        print(f"{name}: {every} calls, {faults} of fault modules, {lookups} lookups: {share:.3%}")
        failed |= faults > 0 or share > SHARE
    imported = [module for module in MODULES if module in sys.modules]
    print(f"imported: {', '.join(imported) or 'none'}")
    return int(failed or bool(imported))


if __name__ == "__main__":
    sys.exit(main())
