"""Fuzz the parsers, guided by coverage: ./dev fuzz [TARGET|all] [SECONDS].

Each target runs in a process of its own. An input that reaches a new line of Offbook is kept and
changed further. A finding is an exception that is not Offbook's own, an input that takes longer
than `CPU_SECONDS`, or memory that grows. Its smallest input is written to
tests/fuzz/findings/TARGET, where a test replays it from then on.

Coverage comes from `sys.monitoring` (Python 3.12), where each line costs once, or from
`sys.settrace`, which is slower. Both need no compiler, unlike atheris, which has no wheels for ARM.
"""

from __future__ import annotations

import gc
import hashlib
import os
import random
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.fuzz.mutations import Mutator
from tests.fuzz.targets import ROOT, TARGETS, check_input, list_seeds

FINDINGS = Path(__file__).parent / "findings"
SOURCE = str(ROOT / "src" / "offbook")
SECONDS = 30.0
CPU_SECONDS = 5.0  # of one input
ONE_INPUT_GROWTH = 256 << 20  # bytes
WHOLE_GROWTH = 256 << 20
MAX_CORPUS = 2000
MAX_SHRINKS = 300
FRUITLESS = 400  # calls of a function without a new line, after which settrace skips most of them


class Hang(BaseException):
    """An input that takes too long. Not an Exception: no parser may catch it."""


def watch_lines() -> Callable[[], int]:
    """Start to note which lines of Offbook run; return a function that counts them."""
    lines: set[tuple[CodeType, int]] = set()
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is not None:

        def note(code: CodeType, line: int) -> Any:
            if code.co_filename.startswith(SOURCE):
                lines.add((code, line))
            return monitoring.DISABLE  # each line once

        monitoring.use_tool_id(monitoring.COVERAGE_ID, "offbook fuzz")
        monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, note)
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)
        return lambda: len(lines)

    fruitless: Counter[CodeType] = Counter()

    def trace_line(frame: FrameType, event: str, _: object) -> Any:
        if event == "line" and (frame.f_code, frame.f_lineno) not in lines:
            lines.add((frame.f_code, frame.f_lineno))
            fruitless[frame.f_code] = 0
        return trace_line

    def trace_call(frame: FrameType, _event: str, _: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(SOURCE):
            return None
        fruitless[code] += 1
        return None if fruitless[code] > FRUITLESS and fruitless[code] % 50 else trace_line

    sys.settrace(trace_call)
    return lambda: len(lines)


def try_input(name: str, data: bytes) -> BaseException | None:
    """Run an input with its limits; return what is a finding."""

    def stop(_number: int, _frame: object) -> None:
        raise Hang(f"more than {CPU_SECONDS:g} s of CPU time")

    signal.signal(signal.SIGPROF, stop)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        check_input(name, data)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - that is what is looked for
        return error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    if growth > ONE_INPUT_GROWTH:
        return MemoryError(f"one input of {len(data)} bytes took {growth >> 20} MiB")
    return None


def signature(error: BaseException) -> str:
    """Return the type of an error, and the last place of Offbook that it passed."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(SOURCE)]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "?"
    return f"{type(error).__name__} in {place}"


def shrink(name: str, data: bytes, found: str) -> bytes:
    """Return a smaller input with the same finding."""
    size, tries = max(1, len(data) // 2), 0
    while size and tries < MAX_SHRINKS and not found.startswith("Hang"):
        at = 0
        while at < len(data) and tries < MAX_SHRINKS:
            tries += 1
            smaller = data[:at] + data[at + size :]
            error = try_input(name, smaller)
            if error is not None and signature(error) == found:
                data = smaller
            else:
                at += size
        size //= 2
    return data


def memory() -> int:
    """Return the bytes that this process has in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def fuzz(name: str, seconds: float, seed: int) -> int:
    """Fuzz one target; print its numbers and findings, and return the number of findings."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    choice = random.Random(seed)  # noqa: S311 - no secret
    seeds = list_seeds(name)
    folder = FINDINGS / name
    corpus = [*seeds, *(path.read_bytes() for path in sorted(folder.glob("*")))]
    mutator = Mutator(seeds, choice)
    found: dict[str, BaseException] = {}
    count_lines = watch_lines()
    covered = inputs = warm = 0
    queue = list(corpus)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        data = (
            queue.pop() if queue else mutator.change(choice.choice(corpus), choice.choice(corpus))
        )
        error = try_input(name, data)
        inputs += 1
        if error is not None and (where := signature(error)) not in found:
            found[where] = error
            data = shrink(name, data, where)
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / hashlib.sha256(where.encode()).hexdigest()[:12]
            path.write_bytes(data)
            print(f"{name}: {where}: {error}\n  {path.relative_to(ROOT)}", flush=True)  # noqa: T201 - the command's output
            traceback.print_exception(error, limit=-4)
        if (lines := count_lines()) > covered:
            covered = lines
            if data not in corpus and len(corpus) < MAX_CORPUS:
                corpus.append(data)
        if not warm and time.monotonic() > end - seconds / 2:
            warm = memory()
    growth = memory() - warm
    if growth > WHOLE_GROWTH:
        found["growth"] = MemoryError()
        print(f"{name}: the memory grew by {growth >> 20} MiB in {seconds / 2:g} s")  # noqa: T201 - as above
    print(  # noqa: T201 - as above
        f"{name:12} {inputs:>8} inputs  {covered:>6} lines  {len(corpus):>5} kept  "
        f"{growth >> 20:>4} MiB  {len(found)} findings",
        flush=True,
    )
    return len(found)


def main(arguments: list[str]) -> int:
    """Fuzz the named target, or all of them in as many processes as there are processors."""
    chosen = arguments[0] if arguments else "all"
    seconds = float(arguments[1]) if len(arguments) > 1 else SECONDS
    seed = int(os.environ.get("OFFBOOK_FUZZ_SEED") or time.time_ns())
    if chosen in TARGETS:
        return 1 if fuzz(chosen, seconds, seed) else 0
    if chosen != "all":
        print(f"unknown target {chosen!r}: all, {', '.join(TARGETS)}", file=sys.stderr)  # noqa: T201 - as above
        return 2
    waiting, running, failed = [*TARGETS], list[subprocess.Popen[bytes]](), 0
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            command = [sys.executable, "-m", "tests.fuzz", waiting.pop(0), str(seconds)]
            running.append(subprocess.Popen(command, cwd=ROOT))
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        failed += sum(1 for process in running if process.poll())
        running = [process for process in running if process.returncode is None]
    print(f"{len(TARGETS)} targets, {failed} with findings")  # noqa: T201 - as above
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
