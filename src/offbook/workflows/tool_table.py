"""The test tools: their functions, and what their parameters mean.

One description of each: the MCP tools (`workflows_mcp.py`) and the commands of `offbook workspace`
(`workspace_cli.py`) are made from it, from the signatures of the functions and their docstrings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offbook.capability import load
from offbook.determinism.faults import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

# The name of each tool, and its function in `offbook.workflows`. For agents, it is test_NAME.
TOOLS = {
    **{name: name for name in ("setup", "run", "record", "replay")},
    "assert": "check",
    **{name: name for name in ("inspect", "report", "evaluate", "snapshot", "diff")},
    **{name: name for name in ("coverage", "benchmark", "compare", "chaos", "cleanup")},
}
# Parameters for callers in Python only.
INTERNAL_PARAMETERS = {"approved", "history", "places", "progress", "trace_path"}
# The descriptions of parameters; those with the same name mean the same in all tools.
PARAMETERS = {
    "after": "The run to compare with: the name of a workspace, or the path of a trace (.jsonl).",
    "also": "Other workspaces whose last runs are measured together with this one.",
    "allow_passthrough": "Pass unrecorded prompts to the real agent.",
    "assertions": "Conditions on the run, each an object with a `type`. All are evaluated, also "
    "after a failure.",
    "backend": "The agent: mock (scripted answers), replay (a cassette), playbook (a model without "
    "an agent), command, or a client: claude, codex, gemini, kiro, pi.",
    "baseline": "A snapshot, or `initial` for the state after the setup.",
    "cassette": "The cassette of the backend `replay`, in cassettes/ of the workspace.",
    "cassette_name": "The name of the cassette, in cassettes/ of the workspace.",
    "chain_of_thought": "Require the judge's reasoning before its score.",
    "command": "The command of the backend `command`; it reads the prompt from stdin.",
    "compare_to": "A snapshot, or `current` for the present state.",
    "config": "Hats and limits of the loop. Default: a planner (triggers: task.*, build.done, "
    "build.blocked; publishes: build.task) and a builder (triggers: build.task; publishes: "
    "build.done, build.blocked).",
    "env": "Environment variables for the agent; it receives no others. A client without a "
    "playbook calls its real model and needs its API key here.",
    "evaluations": "Criteria and targets to judge.",
    "exclude_patterns": "Globs of files to leave out.",
    "faults": 'Faults to inject into the responses of the model: ["rate_limit@1", "reset"]. Kinds: '
    f"{', '.join(KINDS)}; kind@N is the Nth request, tool_error:NAME one tool.",
    "filter": "The events to show.",
    "fixtures": "Files to write into the workspace: texts by relative path.",
    "force": "Let a model judge itself.",
    "format": "The output format.",
    "include_patterns": "Globs of files to include. Default: all.",
    "include_traces": "Include the path of the session file.",
    "judge": "The judge: the path of a playbook, mocks or a cassette, the name of a cassette in "
    "the workspace, or a provider: anthropic, openai-chat, openai-responses, gemini.",
    "judge_backend": "A client that judges: claude, codex, gemini, kiro, pi; `judge` is its model.",
    "judge_command": "A command that judges; it reads the question from stdin.",
    "judge_model": "The name of the judge's model.",
    "judge_preset": "A preset file whose hat `judge` has instructions for the judge.",
    "from_baseline": "Compare with the baseline of this name; needs at least 8 runs.",
    "limit": "The maximum number of records.",
    "max_iterations": "The maximum number of iterations.",
    "max_runtime_secs": "The maximum duration of the run in seconds.",
    "min_effect_percent": "Percent that a figure must grow to be worse.",
    "mock_responses": "Scripted answers of the agent, one for each iteration: the first unused one "
    'that matches. Publish an event with <event topic="build.task">text</event>: its topic '
    "selects the next hat. End the loop with the line LOOP_COMPLETE as the last line of an output.",
    "orchestrator": "Run the loop of another program: `ralph`, if it is installed.",
    "output_path": "The path of the report in the workspace.",
    "playbook": "The model of the agent: the path of a playbook, mocks or a cassette.",
    "preserve_session": "Keep session.jsonl and nothing else.",
    "record": "Record the judge in a cassette with this name.",
    "redactions": "Values that may differ: patterns by name, JSON paths such as $.files['a.txt'].",
    "repeat": "The number of measured runs; one more is run before them.",
    "replace": "Overwrite an existing cassette.",
    "save_baseline": "Store the runs as a baseline of this name, in benchmarks/ of the workspace.",
    "scratchpad": "The initial text of .agent/scratchpad.md.",
    "seed": "The number that chooses the faults without a position; the same one repeats them.",
    "snapshot_id": "The name of the snapshot.",
    "strict": "Fail if a prompt differs from the recorded one; else compare its position only.",
    "task": "The task of the loop.",
    "test_name": "The name of the suite.",
    "tested_model": "The name of the model under test; it may not judge itself.",
    "workspace_id": "The name of the workspace.",
}


def find_tool(name: str) -> Callable[..., Any]:
    """Import the function of a tool."""
    return load(f"offbook.workflows:{TOOLS[name]}")
