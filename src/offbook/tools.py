"""The test tools in Python: each is a function with plain values in and a struct out.

    from offbook import tools

    tools.setup("flow", fixtures={"src/main.py": "print()"})
    ran = tools.run("flow", "Add error handling", mock_responses=[{"output": "LOOP_COMPLETE"}])
    assert tools.check("flow", [{"type": "exit_code", "expected": 0}]).passed

Those that take time (`run`, `record`, `replay`, `evaluate`) are awaited in an `async def`;
elsewhere they have happened when they return.
"""

from __future__ import annotations

from offbook.runs.bridge import settle
from offbook.runs.tools.check import check
from offbook.runs.tools.cleanup import cleanup
from offbook.runs.tools.diff import diff
from offbook.runs.tools.evaluate import evaluate as _evaluate
from offbook.runs.tools.inspect import inspect
from offbook.runs.tools.record import record as _record
from offbook.runs.tools.replay import replay as _replay
from offbook.runs.tools.report import report
from offbook.runs.tools.review import list_pending, review
from offbook.runs.tools.run import run as _run
from offbook.runs.tools.setup import setup
from offbook.runs.tools.snapshot import snapshot

run = settle(_run)
record = settle(_record)
replay = settle(_replay)
evaluate = settle(_evaluate)

__all__ = [
    "check",
    "cleanup",
    "diff",
    "evaluate",
    "inspect",
    "list_pending",
    "record",
    "replay",
    "report",
    "review",
    "run",
    "setup",
    "snapshot",
]
