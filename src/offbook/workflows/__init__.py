"""The test tools: set up a workspace, run an agent loop in it, check and report what it did.

    from offbook import workflows

    workflows.setup("flow", fixtures={"src/main.py": "print()"})
    workflows.run("flow", "Add error handling", mock_responses=[{"output": "LOOP_COMPLETE"}])
    assert workflows.check("flow", [{"type": "exit_code", "expected": 0}]).passed

Each tool is one function that takes plain values and returns a struct. The command line
(`offbook workspace`), the MCP server (`test_setup`, `test_run`, …) and scenario files call the
same functions. In an `async def`, await `run`, `record`, `replay` and `evaluate`; elsewhere they
return when they are done.
"""

from typing import TYPE_CHECKING

from offbook.capability import Capability, CommandEntry, lazy_names

if TYPE_CHECKING:
    from offbook.workflows.evaluation import evaluate as evaluate
    from offbook.workflows.evaluation import evaluate_with_source as evaluate_with_source
    from offbook.workflows.loop_tools import record as record
    from offbook.workflows.loop_tools import replay as replay
    from offbook.workflows.loop_tools import run as run
    from offbook.workflows.snapshots import diff as diff
    from offbook.workflows.snapshots import list_pending as list_pending
    from offbook.workflows.snapshots import review as review
    from offbook.workflows.snapshots import snapshot as snapshot
    from offbook.workflows.tools import check as check
    from offbook.workflows.tools import cleanup as cleanup
    from offbook.workflows.tools import inspect as inspect
    from offbook.workflows.tools import report as report
    from offbook.workflows.tools import setup as setup

CAPABILITY = Capability(
    heading="Workflows",
    commands={
        "scenario": CommandEntry("Run scenario files.", "offbook.workflows.workflows_cli:scenario"),
        "workspace": CommandEntry(
            "Set up workspaces, run the loop in them and check the results.",
            "offbook.workflows.workflows_cli:workspace",
        ),
    },
    mcp_tools="offbook.workflows.workflows_mcp:TOOLS",
)

__all__ = [
    "CAPABILITY",
    "check",
    "cleanup",
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
# Lazy, so that `import offbook.workflows`, which every command does, takes less than 2 ms.
__getattr__ = lazy_names(
    {
        "evaluation": "evaluate evaluate_with_source",
        "loop_tools": "record replay run",
        "snapshots": "diff list_pending review snapshot",
        "tools": "check cleanup inspect report setup",
    },
    __name__,
)


def __dir__() -> list[str]:
    return __all__
