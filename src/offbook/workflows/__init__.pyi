from offbook.capability import Capability
from offbook.workflows.evaluation import evaluate as evaluate
from offbook.workflows.evaluation import evaluate_with_source as evaluate_with_source
from offbook.workflows.loop_tools import record as record
from offbook.workflows.loop_tools import replay as replay
from offbook.workflows.loop_tools import run as run
from offbook.workflows.measuring_tools import benchmark as benchmark
from offbook.workflows.measuring_tools import chaos as chaos
from offbook.workflows.measuring_tools import compare as compare
from offbook.workflows.measuring_tools import coverage as coverage
from offbook.workflows.snapshot_review import list_pending as list_pending
from offbook.workflows.snapshot_review import review as review
from offbook.workflows.snapshots import diff as diff
from offbook.workflows.snapshots import snapshot as snapshot
from offbook.workflows.tools import check as check
from offbook.workflows.tools import cleanup as cleanup
from offbook.workflows.tools import inspect as inspect
from offbook.workflows.tools import report as report
from offbook.workflows.tools import setup as setup

CAPABILITY: Capability
__all__ = [
    "CAPABILITY",
    "benchmark",
    "chaos",
    "check",
    "cleanup",
    "compare",
    "coverage",
    "diff",
    "evaluate",
    "evaluate_with_source",
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
