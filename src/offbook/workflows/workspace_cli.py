"""The commands `offbook workspace`, made from the functions of the test tools.

An option has the name, the default and the description of a parameter (`tools.py`), and its
type says how its value is read. What is written here is what only a terminal has: examples,
shorter names, the text for people and the exit code. A tool is imported when its command is used:
`offbook workspace inspect` needs a tenth of the modules of `run`.
"""

from __future__ import annotations

import inspect as signatures
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args, get_origin

import click
from click.core import ParameterSource

from offbook.cli_options import (
    FiniteFloat,
    describe_difference,
    echo,
    json_option,
    live_options,
    preset_option,
    print_json,
    read_object,
    read_redactions,
    read_value,
    refuse_together,
    refuse_without,
    use_colour,
)
from offbook.errors import UsageError, counted
from offbook.workflows.tools import PARAMETERS, find_tool, tool_parameters

STATUS_SIGNS = {"pass": "✓", "warn": "!", "fail": "✗", "no_data": "?", "error": "✗"}
# The options whose names differ from the parameters, with their earlier and negative names.
OPTION_NAMES = {
    "chain_of_thought": ("--chain-of-thought/--score-only",),
    "command": ("--command",),
    "exclude_patterns": ("--exclude",),
    "include_patterns": ("--include",),
    "output_path": ("--output",),
    "playbook": ("--script", "--playbook", "--mocks"),
    "redactions": ("--redact", "--redactions"),
    "snapshot_id": ("--id",),
    "strict": ("--strict/--loose",),
    "test_name": ("--name",),
}
SPLIT = {"command", "judge_command"}  # a command line, as one option
VALUE_HELP = "JSON, a JSON or YAML file, or - for stdin"
ENV_OPTION = click.option(
    "--env", multiple=True, metavar="NAME[=VALUE]", help="Variable for the agent; repeatable."
)


class WorkspaceCommand(NamedTuple):
    """A command: its tools, its positional arguments, and what only the terminal has.

    `prepare` makes the arguments of the tool from the options that were given, and may choose
    another of the `tools`. `show` prints the result, and `failed` decides the exit code.
    """

    tools: tuple[str, ...]
    show: Callable[[Any, Mapping[str, Any]], None]
    examples: str
    arguments: Mapping[str, str] = {"workspace_id": "ID"}
    extra: Sequence[Callable[[Any], Any]] = ()
    prepare: Callable[[dict[str, Any]], str] = lambda _: ""
    failed: Callable[[Any], object] = lambda _: False
    is_run: bool = False


# --- Options and arguments from the parameters of a function


def _add_parameter(
    callback: Any, name: str, parameter: signatures.Parameter, hint: Any, metavar: str | None
) -> Any:
    """Add the argument or the option of a parameter to a command."""
    is_list = get_origin(hint) is Sequence and name not in SPLIT
    if metavar is not None:
        required = parameter.default is parameter.empty and not metavar.startswith("[")
        choice = click.Choice(get_args(hint)) if get_origin(hint) is Literal else None
        many: Any = {"nargs": -1} if is_list else {}
        return click.argument(name, metavar=metavar, required=required, type=choice, **many)(
            callback
        )
    if name == "env":
        return ENV_OPTION(callback)
    names = OPTION_NAMES.get(name, (f"--{name.replace('_', '-')}",))
    text = PARAMETERS[name]
    options: dict[str, Any] = {"help": text, "default": None}
    if hint is bool:
        options["is_flag"] = True
    elif get_origin(hint) is Literal:
        options["type"] = click.Choice(get_args(hint))
    elif hint in {int, float}:
        options["type"] = FiniteFloat(0, min_open=True) if hint is float else hint
    elif get_origin(hint) is Mapping or hint == Sequence[Any]:
        options |= {"metavar": "VALUE", "help": f"{text} {VALUE_HELP}."}
    options["multiple"] = is_list or name == "redactions"
    if hint in {int, float} and isinstance(parameter.default, (int, float)):
        options["help"] = f"{text} Default: {parameter.default:g}."
    decorated = click.option(*names, name, **options)(callback)
    return preset_option(decorated) if name == "redactions" else decorated


def _read(name: str, hint: Any, value: Any) -> Any:
    """Return the value of an option or argument, as the type of its parameter needs it."""
    if name in SPLIT:
        return shlex.split(value) if isinstance(value, str) else list(value)
    if name == "env":
        return _read_env(value)
    if name == "config" and not value.lstrip().startswith(("{", "[", "-")):
        from offbook.workflows.presets import read_preset

        read_preset(value)  # a file: an error has its line
    if get_origin(hint) is Mapping and name != "redactions":
        return read_object(value, name)
    if hint == Sequence[Any]:
        return _read_list(value, name)
    return value


def _read_list(texts: tuple[str, ...], name: str) -> list[Any]:
    """Return the values of a repeatable option in order; each may be one value or a list."""
    values: list[Any] = []
    for text in texts:
        value = read_value(text, name)
        values += value if isinstance(value, list) else [value]
    return values


def _read_pairs(texts: tuple[str, ...], name: str) -> dict[str, str]:
    """Return the values of a repeatable NAME=VALUE option."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise UsageError(f"invalid {name} {text!r}", hint="write NAME=VALUE")
        pairs[key] = value
    return pairs


def _read_env(texts: tuple[str, ...]) -> dict[str, str]:
    """Return the variables of `--env`: NAME=VALUE, or NAME for the value in this environment."""
    inherited = [text for text in texts if "=" not in text]
    missing = [name for name in inherited if name not in os.environ]
    if missing:
        raise UsageError(
            f"environment variable {missing[0]!r} is not set", hint=f"--env {missing[0]}=VALUE"
        )
    pairs = _read_pairs(tuple(text for text in texts if "=" in text), "env")
    return {**{name: os.environ[name] for name in inherited}, **pairs}


def _tool_parameters(tool: str) -> dict[str, tuple[signatures.Parameter, Any]]:
    """Return the parameters of a tool with their types; optional ones without None."""
    found = tool_parameters(find_tool(tool))
    for name, (parameter, hint) in found.items():
        if type(None) in get_args(hint):
            types = [each for each in get_args(hint) if each is not type(None)]
            # The type that a command line can write: a list rather than an object.
            lists = (each for each in types if get_origin(each) is Sequence)
            found[name] = parameter, next(lists, types[0])
    return found


class DashedCommand(click.Command):
    """A command that takes another command after `--`, as the parameter `command`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        words = args[end + 1 :]
        rest = super().parse_args(ctx, args[:end])
        if words:
            ctx.params["command"] = words
            ctx.set_parameter_source("command", ParameterSource.COMMANDLINE)
        return rest

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND…]"]


def _build_command(name: str, spec: WorkspaceCommand) -> click.Command:
    parameters = {tool: _tool_parameters(tool) for tool in spec.tools}
    # Parameters of the same name mean the same in all tools: the first one describes them all.
    union = {key: each for tool in reversed(spec.tools) for key, each in parameters[tool].items()}

    def callback(**values: Any) -> int:
        context = click.get_current_context()
        as_json = values.pop("as_json")
        given = {
            key: _read(key, union[key][1] if key in union else str, value)
            for key, value in values.items()
            if value not in (None, ())
            if context.get_parameter_source(key) is not ParameterSource.DEFAULT
        }
        if name == "inspect" and "workspace_id" not in given:
            return _list_workspaces(as_json=as_json)
        tool = spec.prepare(given) or spec.tools[0]
        allowed = parameters[tool]
        for key in given:
            if key not in allowed and key in union:
                others = [other for other in spec.tools if key in parameters[other]]
                option = OPTION_NAMES.get(key, (f"--{key.replace('_', '-')}",))[0]
                raise UsageError(f"{option} has no effect without --{others[0]}")
        arguments = {key: value for key, value in given.items() if key in allowed}
        for key, (parameter, _) in allowed.items():
            if parameter.default is parameter.empty and key not in arguments:
                raise click.UsageError(f"Missing option '--{key.replace('_', '-')}'.", context)
        if spec.is_run and sys.stderr.isatty():  # not into the logs of CI
            arguments["progress"] = _print_progress
        result = find_tool(tool)(**arguments)
        if as_json:
            print_json(result)
        else:
            spec.show(result, given)
        for line in filter(None, (*_field(result, "warnings"), *[_field(result, "error")])):
            echo(f"offbook: {line}", err=True)
        return int(bool(spec.failed(result)))

    decorated: Any = live_options(callback) if spec.is_run else callback
    decorated = json_option(decorated)
    for add in reversed(spec.extra):
        decorated = add(decorated)
    for key, (parameter, hint) in reversed(union.items()):
        if key != "cassette_name":
            decorated = _add_parameter(decorated, key, parameter, hint, spec.arguments.get(key))
    cls = DashedCommand if "command" in union else click.Command
    text = signatures.getdoc(find_tool(spec.tools[0]))
    return click.command(name, cls=cls, help=text, epilog=spec.examples)(decorated)


def _print_progress(_: float, total: float | None, message: str) -> None:
    echo(f"{message}, of {total:g} at most" if total else message, err=True)


def _field(result: Any, name: str) -> Any:
    return getattr(result, name, ())


# --- The commands


def _show_setup(result: Any, _: object) -> None:
    echo("\n  ".join([result.workspace_path, *result.created_files]))


def _prepare_setup(given: dict[str, Any]) -> str:
    # --fixture wins over a file of the same path in --fixtures.
    pairs = _read_pairs(given.pop("fixture", ()), "fixture")
    given["fixtures"] = (given.get("fixtures") or {}) | pairs
    return ""


def _prepare_run(given: dict[str, Any]) -> str:
    """Choose between `run`, `record` and `replay`, and the backend by the option it needs."""
    record, replay = given.pop("record", None), given.pop("replay", None)
    refuse_together(record=record, replay=replay)
    redact, preset = given.pop("redactions", ()), given.pop("preset", ())
    if record or replay:
        from offbook.trace.redaction import preset_for_command

        given["cassette_name"] = record or replay
        given.setdefault("task", "")
        # The output of known clients has ids and dates that differ in each run.
        known = preset_for_command(tuple(given.get("command", ()))) if record else ()
        given["redactions"] = read_redactions(redact, preset or known)
        if record or "command" in given:
            given.setdefault("backend", "command" if "command" in given else "")
        return "record" if record else "replay"
    refuse_without("--record or --replay", redact=redact, preset=preset)
    backend = "command" if "command" in given else "replay" if "cassette" in given else "mock"
    given.setdefault("backend", backend)
    return "run"


def _show_run(result: Any, given: Mapping[str, Any]) -> None:
    end = f"{result.termination_reason}, exit code {result.exit_code}"
    if hasattr(result, "cassette_path"):
        echo(f"recorded {counted(result.interactions, 'interaction')}: {end}")
        echo(result.cassette_path)
    elif "cassette_name" in given:
        replayed = counted(result.interactions_replayed, "interaction")
        echo(f"replayed {replayed}, {result.interactions_passthrough} passed through: {end}")
    else:
        # The agent's output first, then a summary of two lines for people.
        echo(result.stdout, nl=not result.stdout.endswith("\n"))
        echo(
            f"{result.termination_reason} after {counted(result.iterations, 'iteration')}, "
            f"{result.elapsed_secs:.1f} s, exit code {result.exit_code}"
        )
        echo(result.session_file)


def _run_failed(result: Any) -> bool:
    return bool(result.exit_code or result.error)


def _show_assertions(checked: Any, _: object) -> None:
    for result in checked.results:
        line = f"{STATUS_SIGNS[result.status]} {result.name}"
        # A message may quote a file or the output, and with it a secret.
        echo(line if result.passed else f"{line}: {result.message}")
    echo(f"{len(checked.results) - checked.failed_count} of {len(checked.results)} hold")


def _assertions_failed(checked: Any) -> bool:
    return not checked.passed


def _list_workspaces(*, as_json: bool) -> int:
    from offbook.workflows.workspace import Workspaces

    names = Workspaces().ids()
    if as_json:
        print_json({"workspaces": names})
    else:
        echo("\n".join(names) or "no workspaces")
    return 0


def _prepare_inspect(given: dict[str, Any]) -> str:
    # --event and --topic replace the same fields of --filter.
    selected = {"event_types": given.pop("event", None), "topics": given.pop("topic", None)}
    named = {key: list(value) for key, value in selected.items() if value}
    if "baseline" in given or "compare_to" in given:
        if named:
            raise UsageError("--event and --topic select records, not files", hint="remove them")
        _prepare_diff(given)
        return "diff"
    given["filter"] = {**(given.get("filter") or {}), **named}
    return ""


def _show_records(result: Any, given: Mapping[str, Any]) -> None:
    if "baseline" in given:
        _show_diff(result, given)
    elif given.get("format", "json") == "json":
        print_json(result)
    elif given["format"] == "summary":
        for name, value in result.items():
            echo(f"{name}: {value}")
    else:
        for row in result["timeline"]:
            published = ", ".join(row["events"]) or "nothing published"
            echo(f"{row['iteration']}. {row['hat']}: {published} ({row['duration_ms']} ms)")
        if "message" in result:
            echo(result["message"])


def _is_corrupt(result: Any) -> bool:
    if not isinstance(result, dict):  # the difference of two snapshots
        return False
    records = cast("dict[str, Any]", result)
    faults: list[dict[str, Any]] = records.get("faults", [])
    for fault in faults:
        echo(f"offbook: line {fault['line']}: {fault['why']}", err=True)
    # A torn last line is what a crash leaves behind; any other fault is a corrupt session.
    return bool(faults) and not records.get("truncated_tail")


def _prepare_report(given: dict[str, Any]) -> str:
    given.setdefault("test_name", given["workspace_id"])
    return ""


def _show_report(result: Any, given: Mapping[str, Any]) -> None:
    if given.get("print_report"):
        echo(Path(result.report_path).read_text(encoding="utf-8"), nl=False)
    else:
        echo(result.report_path)


def _is_empty(result: Any) -> bool:
    if not result.tests:
        echo("offbook: nothing to report: assert something first", err=True)
    return not result.tests


def _show_scores(result: Any, _: object) -> None:
    for score in result.evaluations:
        sign = "✓" if score.passed else "✗"
        points = score.error if score.score is None else f"{score.score} of {score.max_score}"
        echo(f"{sign} {score.criterion} {score.target}: {points}")
        for line in score.reasoning.splitlines():
            echo(f"    {line}")


def _scores_failed(result: Any) -> bool:
    return not result.all_passed


def _prepare_redactions(given: dict[str, Any]) -> str:
    redact, preset = given.pop("redactions", ()), given.pop("preset", ())
    if redact or preset:
        given["redactions"] = read_redactions(redact, preset)
    return ""


def _show_snapshot(result: Any, _: object) -> None:
    size = f"{counted(result.file_count, 'file')}, {counted(result.total_bytes, 'byte')}"
    echo(f"{result.snapshot_id}: {size}")


def _prepare_diff(given: dict[str, Any]) -> str:
    given.setdefault("baseline", "initial")
    return _prepare_redactions(given)


def _show_diff(difference: Any, _: object) -> None:
    from offbook.reports.styled_lines import print_lines

    print_lines(describe_difference(difference), sys.stdout, colour=use_colour())


COMMANDS = {
    "setup": WorkspaceCommand(
        ("setup",),
        _show_setup,
        """\b
Example:
  offbook workspace setup flow --fixture src/main.py="print()" --scratchpad "## Plan"
  offbook workspace setup flow --fixtures files.yaml --config preset.yaml --json
""",
        extra=(
            click.option(
                "--fixture", multiple=True, metavar="PATH=TEXT", help="A file to write; repeatable."
            ),
        ),
        prepare=_prepare_setup,
    ),
    "run": WorkspaceCommand(
        ("run", "record", "replay"),
        _show_run,
        """\b
Example:
  offbook workspace run flow --task "Add error handling" --mock-responses answers.yaml
  offbook workspace run flow --task "Add error handling" --backend claude --script api.yaml
  offbook workspace run auth --task "Add auth" --record auth_flow -- my-agent --quiet
  offbook workspace run auth --task "Add auth" --replay auth_flow --loose

\b
With --record, a real agent runs, and its answers are recorded in a cassette of the workspace.
With --replay, they are replayed, and no agent is started, except with --allow-passthrough.

\b
Exit codes:
  0  the loop kept its completion promise; of a cassette, everything was replayed
  1  the loop reached a limit, or the script and the agent disagree
  2  wrong usage
""",
        extra=(
            click.option("--record", metavar="CASSETTE", help="Record the agent in a cassette."),
            click.option("--replay", metavar="CASSETTE", help="Replay a cassette."),
        ),
        prepare=_prepare_run,
        failed=_run_failed,
        is_run=True,
    ),
    "assert": WorkspaceCommand(
        ("assert",),
        _show_assertions,
        """\b
Example:
  offbook workspace assert flow '{"type": "exit_code", "expected": 0}'
  offbook workspace assert flow assertions.yaml --json

\b
An ASSERTION, or a list of them, is JSON, a JSON or YAML file, or - for stdin.

\b
Exit codes:
  0  all assertions hold
  1  an assertion failed, or found no data
  2  wrong usage
""",
        arguments={"workspace_id": "ID", "assertions": "ASSERTION…"},
        failed=_assertions_failed,
    ),
    "inspect": WorkspaceCommand(
        ("inspect", "diff"),
        _show_records,
        """\b
Example:
  offbook workspace inspect flow --format timeline
  offbook workspace inspect flow --topic 'build.*' --limit 10
  offbook workspace inspect flow --filter '{"after_iteration": 1}' --json
  offbook workspace inspect flow --baseline initial
  offbook workspace inspect

\b
With --baseline, the changes of files since a snapshot are shown, line by line.
Without ID, all workspaces are listed.
""",
        arguments={"workspace_id": "[ID]"},
        extra=(
            click.option("--event", multiple=True, metavar="TYPE", help="Only this type."),
            click.option("--topic", multiple=True, metavar="GLOB", help="Only matching topics."),
        ),
        prepare=_prepare_inspect,
        failed=_is_corrupt,
    ),
    "report": WorkspaceCommand(
        ("report",),
        _show_report,
        """\b
Example:
  offbook workspace report flow junit --name "error handling"
  offbook workspace report flow tap --name flow --print

\b
Exit codes:
  0  the report is written, also when it contains failures
  1  the run has no verdicts
  2  wrong usage
""",
        arguments={"workspace_id": "ID", "format": "FORMAT"},
        extra=(
            click.option("--print", "print_report", is_flag=True, help="Print the report itself."),
        ),
        prepare=_prepare_report,
        failed=_is_empty,
    ),
    "evaluate": WorkspaceCommand(
        ("evaluate",),
        _show_scores,
        """\b
Example:
  offbook workspace evaluate flow evaluations.yaml --judge judge.yaml
  offbook workspace evaluate flow evaluations.yaml --judge-command "my-judge" --env KEY
  offbook workspace evaluate flow all.yaml --judge anthropic --judge-model M --env ANTHROPIC_API_KEY
  offbook workspace evaluate flow all.yaml --judge-backend claude --judge j.yaml --record judged

\b
An EVALUATION, or a list of them, is JSON, a JSON or YAML file, or - for stdin.

\b
Exit codes:
  0  all passed
  1  a score was too low, or the judge gave none
  2  wrong usage
""",
        arguments={"workspace_id": "ID", "evaluations": "EVALUATION…"},
        failed=_scores_failed,
    ),
    "snapshot": WorkspaceCommand(
        ("snapshot",),
        _show_snapshot,
        """\b
Example:
  offbook workspace snapshot flow --id before
  offbook workspace snapshot flow --include 'src/**' --exclude '*.log' --json
""",
        prepare=_prepare_redactions,
    ),
    "diff": WorkspaceCommand(
        ("diff",),
        _show_diff,
        """\b
Example:
  offbook workspace inspect flow --baseline initial
  offbook workspace inspect flow --baseline before --compare-to after --json

\b
Exit codes:
  0  compared, with or without differences
  2  wrong usage
""",
        arguments={"workspace_id": "ID", "baseline": "[BASELINE]", "compare_to": "[COMPARE_TO]"},
        prepare=_prepare_diff,
    ),
}


# An earlier name, which still works: `inspect --baseline` is the same.
EARLIER = {"diff"}


class WorkspaceGroup(click.Group):
    """The commands, each made when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        listed = [name for name in COMMANDS if name not in EARLIER]
        return [*listed, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        spec = COMMANDS.get(cmd_name)
        return (
            super().get_command(ctx, cmd_name) if spec is None else _build_command(cmd_name, spec)
        )


@click.group(
    "workspace",
    cls=WorkspaceGroup,
    epilog="\b\nExample:\n  offbook workspace setup flow\n"
    "  offbook workspace run flow --task 'Add error handling' --mock-responses answers.yaml",
)
def workspace() -> None:
    """Set up workspaces, run the loop in them and check the results."""


@workspace.command(
    "cleanup",
    epilog="""\b
Example:
  offbook workspace cleanup flow
  offbook workspace cleanup flow --preserve-session --json
  offbook workspace cleanup --stale
""",
)
@click.argument("workspace_ids", metavar="ID…", nargs=-1)
@click.option("--preserve-session", is_flag=True, help=PARAMETERS["preserve_session"])
@click.option(
    "--stale",
    is_flag=True,
    help="Remove those that were not used for a day and whose process has ended.",
)
@json_option
def clean_up_workspaces(
    workspace_ids: tuple[str, ...], *, preserve_session: bool, stale: bool, as_json: bool
) -> None:
    """Remove workspaces."""
    if bool(workspace_ids) == stale:
        raise UsageError("missing workspace", hint="offbook workspace cleanup ID…, or --stale")
    if stale:
        from offbook.workflows.workspace import Workspaces

        names = Workspaces().remove_stale()
        if as_json:
            print_json({"removed": names})
        else:
            echo("\n".join(f"removed {name}" for name in names) or "no stale workspaces")
    for workspace_id in workspace_ids:
        result = find_tool("cleanup")(workspace_id, preserve_session=preserve_session)
        if as_json:
            print_json(result)
        else:
            kept = ", ".join(result.preserved_files)
            echo(f"removed {workspace_id}{f', except {kept}' if kept else ''}")
