"""The test tools, and the small ones of them: `setup`, `check`, `inspect`, `report`, `cleanup`.

    setup("flow", fixtures={"src/main.py": "print()"})
    …                                                  # run the loop: see loop_tools.py
    check("flow", [{"type": "exit_code", "expected": 0}]).passed
    report("flow", "junit", "the flow").report_path
    cleanup("flow")

Assertions, snapshots and reports are imported inside the functions: each tool is a command, and
`inspect` and `cleanup` start 20 to 40 ms sooner without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from inspect import Parameter, signature
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, cast, get_args, get_type_hints

import msgspec

from offbook.capability import load
from offbook.determinism.faults import KINDS
from offbook.errors import UsageError, require_known
from offbook.files import convert, write_atomic
from offbook.options import Count, decode
from offbook.secrets import hide_secrets
from offbook.trace.events import VERDICT, FileLine
from offbook.trace.reader import Trace, raise_if_corrupt
from offbook.workflows.presets import RALPH, read_preset
from offbook.workflows.workspace import INITIAL, Workspace, Workspaces

if TYPE_CHECKING:
    from collections.abc import Callable

    from offbook.trace.events import Event
    from offbook.workflows.presets import Preset


InspectFormat = Literal["json", "summary", "timeline"]
ReportFormat = Literal["junit", "tap", "tap13", "ctrf", "json"]


class SetupResult(msgspec.Struct, frozen=True):
    """A new workspace."""

    workspace_path: str
    workspace_id: str
    created_files: list[str]
    warnings: tuple[str, ...] = ()


def setup(
    workspace_id: str,
    *,
    fixtures: Mapping[str, str] | None = None,
    config: Mapping[str, Any] | None = None,
    scratchpad: str | None = None,
) -> SetupResult:
    """Create an isolated workspace with files, a loop configuration and a scratchpad."""
    if config is not None:
        convert(config, dict[str, Any], path="config")  # not the path of a file
    read_preset(config)  # reports an invalid configuration now, not when the loop runs
    workspaces = Workspaces()
    # No other moment is certain to come: there is no daemon.
    stale = workspaces.remove_stale(keep_cassettes=True)
    workspace, files = workspaces.create(
        workspace_id, fixtures=fixtures, config=config, scratchpad=scratchpad
    )
    # Without files, `initial` is empty, and nothing has to be stored.
    if files:
        from offbook.checks.expected_files import Snapshot, capture_snapshot

        captured = capture_snapshot(workspace.path).files
        masked = {name: hide_secrets(text) for name, text in captured.items()}
        workspace.store_snapshot(INITIAL, Snapshot(masked))
    removed = tuple(f"removed the workspace {name!r}: not used for a day" for name in stale)
    return SetupResult(str(workspace.path), workspace_id, files, removed)


class CheckedAssertion(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one assertion: `assertion` is its type, `name` its name in reports."""

    assertion: str
    passed: bool
    status: str
    name: str
    expected: Any = None
    actual: Any = None
    message: str = ""
    path: str = ""
    context: dict[str, Any] = {}


class CheckResult(msgspec.Struct, frozen=True):
    """The results of all assertions."""

    passed: bool
    results: list[CheckedAssertion]
    failed_count: int


def check(
    workspace_id: str,
    assertions: Sequence[Any],
    *,
    approved: str = "",
    places: Sequence[FileLine] = (),
) -> CheckResult:
    """Check assertions against the last run; all are evaluated, also after a failure.

    The verdicts are added to the session. A snapshot that does not match stays pending in the
    workspace, or in the folder of the `approved` snapshots. `places` are where the assertions are
    written. A loop that failed, an agent that crashed or did nothing fail the check, unless an
    assertion expects an end without success.
    """
    from offbook.checks.assertion import evaluate_all
    from offbook.checks.context import CheckContext
    from offbook.checks.run_assertions import judge_loop_end
    from offbook.trace.recorder import record_trace

    if not assertions:
        raise UsageError("missing assertions", hint="a check without assertions is not a pass")
    workspace = Workspaces().find(workspace_id)
    session = workspace.recorded_session
    for raw in assertions:
        refuse_unknown_hat(raw, read_preset(workspace.info.config))
    with workspace.lock(shared=True):
        context = CheckContext(Trace(session), workspace.path, workspace.snapshots)
        verdicts = evaluate_all(assertions, context)
        # An unreadable line may be the event that an assertion is about.
        raise_if_corrupt(context.faults, session)
        for number, verdict in enumerate(verdicts):
            if verdict.check.startswith("snapshot_matches"):
                from offbook.workflows.snapshot_tools import add_proposal  # few checks have one

                location = approved or workspace.id
                verdicts[number] = add_proposal(
                    workspace, assertions[number], verdict, location, context
                )
        verdicts += judge_loop_end(context, verdicts)
        with record_trace(session, append=True) as hub:
            for number, verdict in enumerate(verdicts):
                hub.emit_verdict(verdict, places[number] if number < len(places) else None)
    results = [
        CheckedAssertion(
            verdict.check.partition(" ")[0],
            verdict.holds,
            verdict.status,
            verdict.check,
            verdict.expected,
            verdict.actual,
            verdict.message,
            str(verdict.context.get("path", "")),
            verdict.context,
        )
        for verdict in verdicts
    ]
    failed = sum(not verdict.holds for verdict in verdicts)
    return CheckResult(not failed, results, failed)


def refuse_unknown_hat(assertion: object, preset: Preset) -> None:
    """Raise a UsageError for a count of a hat that the loop does not have: it is always 0."""
    raw: Any = msgspec.to_builtins(assertion)
    if not isinstance(raw, dict) or cast("Any", raw).get("type") != "iteration_count":
        return
    hats = {*(preset.hats or {}), RALPH}
    hat = cast("dict[str, Any]", raw).get("hat")
    if isinstance(hat, str):
        require_known("unknown hat", hat, hats)


def inspect(
    workspace_id: str,
    *,
    filter: Mapping[str, Any] | None = None,  # noqa: A002 - the tool's parameter
    limit: int = 100,
    format: InspectFormat = "json",  # noqa: A002 - the tool's parameter
) -> dict[str, Any]:
    """Return the records, a summary or a timeline of the last run."""
    from offbook.trace.reader import EventFilter, build_timeline, list_records, summarize

    event_filter = convert(filter or {}, EventFilter, path="filter")
    decode(limit, Count, "limit")
    require_known("unknown format", format, get_args(InspectFormat))
    session = Workspaces().find(workspace_id).recorded_session
    trace = Trace(session, count=format == "summary")
    if format == "json":
        result: dict[str, Any] = msgspec.to_builtins(list_records(trace, event_filter, limit))
    elif format == "summary":
        # Without a filter the reader counts events without decoding all of them.
        events = trace if event_filter == EventFilter() else event_filter.select(trace)
        result = msgspec.to_builtins(summarize(events))
    else:
        timeline = build_timeline(trace, event_filter)
        result = {"timeline": msgspec.to_builtins(timeline)}
        if not timeline:
            result["message"] = "no iteration records"
    if trace.faults:
        result["faults"] = [
            {"line": fault.line, "why": fault.reason, "text": fault.text} for fault in trace.faults
        ]
        result["truncated_tail"] = trace.faults[-1].torn
    return result


class ReportResult(msgspec.Struct, frozen=True):
    """A report file, with its counts."""

    report_path: str
    format: str
    tests: int
    passed: int
    failed: int
    skipped: int
    duration_secs: float
    flaky: bool = False


def report(
    workspace_id: str,
    format: ReportFormat,  # noqa: A002 - the tool's parameter
    test_name: str,
    *,
    include_traces: bool = False,
    output_path: str | None = None,
    history: tuple[Any, ...] = (),  # of Attempt; MCP evaluates annotations at run time
    trace_path: str = "",
) -> ReportResult:
    """Write the verdicts of all runs since the setup as a report."""
    from offbook.reports.report import collect_suite, find_report

    require_known("unknown report format", format, get_args(ReportFormat))
    renderer = find_report(format)
    workspace = Workspaces().find(workspace_id)
    session = workspace.recorded_session
    trace = (trace_path or str(session)) if include_traces else ""
    events = Trace(session)
    suite = collect_suite(
        chain(_earlier_verdicts(workspace), events), test_name, trace=trace, history=history
    )
    raise_if_corrupt(events.faults, session)  # a lost line may be a failed verdict
    path = workspace.resolve(output_path or f"reports/{format}.{renderer.suffix}")
    with workspace.writes_own(path):
        write_atomic(path, renderer.render(suite))
    return ReportResult(
        str(path),
        format,
        len(suite.cases),
        suite.count("passed"),
        suite.count("failed") + suite.count("error"),
        suite.count("skipped"),
        (suite.stop - suite.start) / 1000,
        any(case.flaky for case in suite.cases),
    )


def _earlier_verdicts(workspace: Workspace) -> Iterator[Event]:
    """Yield the verdicts of the runs before the last one, since the setup."""
    created = workspace.info.created * 1000
    number = 0
    while (path := workspace.folder / f"session-{(number := number + 1)}.jsonl").is_file():
        for event in Trace(path):
            if event.event == VERDICT and event.ts >= created:
                data = {**event.data, "check": f"run {number}: {event.data['check']}"}
                yield msgspec.structs.replace(event, data=data)


class CleanupResult(msgspec.Struct, frozen=True):
    """A removed workspace, with the names of the files that were kept."""

    deleted: bool
    preserved_files: list[str]


def cleanup(workspace_id: str, *, preserve_session: bool = False) -> CleanupResult:
    """Remove a workspace, optionally except its session."""
    preserved = Workspaces().remove(workspace_id, preserve_session=preserve_session)
    return CleanupResult(deleted=True, preserved_files=preserved)


# --- The table of all tools, and what their parameters mean. The MCP tools and the commands of
# `offbook workspace` are made from it, from the signatures of the functions and their docstrings.

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
    "max_iterations": "The maximum number of iterations. Default: that of the configuration, "
    "otherwise 5, or 10 to record; of a replay, that of the recording.",
    "max_runtime_secs": "The maximum duration of the run in seconds. Default: that of the "
    "configuration, otherwise 300.",
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
    "strict": "Fail if the task or a prompt differs from the recorded one; else compare the "
    "position of prompts only.",
    "task": "The task of the loop.",
    "test_name": "The name of the suite.",
    "tested_model": "The name of the model under test; it may not judge itself.",
    "workspace_id": "The name of the workspace.",
}


def tool_parameters(function: Callable[..., Any]) -> dict[str, tuple[Parameter, Any]]:
    """Return the parameters of a tool that users give, each with its type."""
    hints = get_type_hints(function)
    return {
        name: (parameter, hints[name])
        for name, parameter in signature(function).parameters.items()
        if name not in INTERNAL_PARAMETERS
    }


def find_tool(name: str) -> Callable[..., Any]:
    """Import the function of a tool."""
    return load(f"offbook.workflows:{TOOLS[name]}")
