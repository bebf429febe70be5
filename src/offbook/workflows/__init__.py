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

from offbook.capability import Capability, CommandEntry, lazy_names

CAPABILITY = Capability(
    heading="Workflows",
    commands={
        "scenario": CommandEntry("Run scenario files.", "offbook.workflows.scenario_cli:scenario"),
        "workspace": CommandEntry(
            "Set up workspaces, run the loop in them and check the results.",
            "offbook.workflows.workspace_cli:workspace",
        ),
    },
    mcp_tools="offbook.workflows.workflows_mcp:TOOLS",
    pending="offbook.workflows.snapshot_tools:find_pending",
)

# Lazy, so that `import offbook.workflows`, which every command does, takes less than 2 ms.
# `__init__.pyi` lists the same names for type checkers.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "cassette_tools": "record replay",
        "loop_tools": "run",
        "result_tools": "benchmark chaos compare coverage evaluate evaluate_with_source",
        "snapshot_tools": "diff list_pending review snapshot",
        "tools": "check cleanup inspect report setup",
    },
    "CAPABILITY",
    internal={
        "hat_loop": "AgentTurn BusEvent HatBus HatLoop LoopOutcome missing_evidence",
        "loop_tools": "MockResponse MockResponses RunResult read_limits",
        "result_tools": "read_target",
        "presets": "DEFAULT_HATS FLAT_KEYS Hat read_preset",
        "scenario_cli": "AttemptFailure FailureKind RetryPolicy RetryResult Scenario ScenarioResult"
        " find_scenarios read_scenario run_scenario run_scenarios run_with_retries",
        "workflows_mcp": "FUNCTIONS",
        "workspace": "MARKER WorkspaceInfo Workspaces",
    },
)
