"""The test tools in Python: each is a function with plain values in and a struct out.

    from offbook import workflows

    workflows.setup("flow", fixtures={"src/main.py": "print()"})
    workflows.run("flow", "Add error handling", mock_responses=[{"output": "LOOP_COMPLETE"}])
    assert workflows.check("flow", [{"type": "exit_code", "expected": 0}]).passed

In an `async def`, await `run`, `record`, `replay` and `evaluate`; elsewhere they return when they
are done.
"""

from offbook.capability import Capability, CommandEntry, lazy_names

_CLI = "offbook.surfaces.cli"

CAPABILITY = Capability(
    heading="Workflows",
    commands={
        "assert": CommandEntry("Check assertions against a run.", f"{_CLI}.check:command"),
        "clean": CommandEntry("Remove forgotten workspaces.", f"{_CLI}.clean:command"),
        "cleanup": CommandEntry("Remove a workspace.", f"{_CLI}.cleanup:command"),
        "diff": CommandEntry("Show what changed in a workspace.", f"{_CLI}.diff:command"),
        "evaluate": CommandEntry("Let a model judge a run.", f"{_CLI}.evaluate:command"),
        "inspect": CommandEntry(
            "Show records, summary or timeline of a run.", f"{_CLI}.inspect:command"
        ),
        "report": CommandEntry(
            "Write verdicts for CI: junit, tap, ctrf, json.", f"{_CLI}.report:command"
        ),
        "setup": CommandEntry("Make a workspace.", f"{_CLI}.setup:command"),
        "snapshot": CommandEntry(
            "Take or review snapshots of a workspace.", f"{_CLI}.snapshot:command"
        ),
    },
    mcp_tools="offbook.workflows.workflows_mcp:TOOLS",
)

_MODULES = {
    "python_api": "evaluate record replay run",
    "snapshots": "diff list_pending review snapshot",
    "tools": "check cleanup inspect report setup",
}

__all__ = ["CAPABILITY", *sorted(name for names in _MODULES.values() for name in names.split())]
__getattr__ = lazy_names(_MODULES, __name__)


def __dir__() -> list[str]:
    return __all__
