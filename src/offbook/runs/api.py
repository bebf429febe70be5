"""The two entry points: `session()` for the built-in agent, `drive()` for any other agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from offbook.errors import UsageError, did_you_mean, explain_call
from offbook.subjects.session import DEFAULT_SYSTEM_PROMPT

# The rehearsal, the session and asyncio are imported by the first call: a module with tests is
# collected in half the time.
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from offbook.determinism.faults import Faults
    from offbook.exchange.model import ModelSource, ToolAlias
    from offbook.runs.rehearsal import Rehearsal
    from offbook.subjects.clis.pi import Pi
    from offbook.subjects.subject import RemoteAgent, Skill, Subject, ToolServer

PI_SUFFIXES = {".ts", ".js", ".mts", ".mjs", ".cts", ".cjs"}


@explain_call
def session(  # noqa: PLR0913 - the options of a session
    *,
    extensions: Iterable[object] = (),
    extension_factories: Iterable[object] = (),
    mock_tools: Mapping[str, Any] | None = None,
    mock_ui: Mapping[str, Any] | None = None,
    mock_host: Iterable[Mapping[str, Any]] | None = None,
    system_prompt: str = DEFAULT_SYSTEM_PROMPT,
    cwd: Path | str | None = None,
    skills: Iterable[Skill | Mapping[str, Any]] = (),
    settings: Mapping[str, Any] | None = None,
    auto_assert: bool = True,
    mock_extension_tools: bool = False,
    propagate_errors: bool = True,
    allow_unused_mocks: bool = False,
    has_ui: bool = True,
    source: ModelSource | None = None,
    trace: Path | str | None = None,
    faults: Faults | Iterable[str] | Mapping[str, Any] | None = None,
) -> Rehearsal:
    """Start a real agent session with a scripted model.

    Extensions are loaded for real; `mock_tools`, `mock_host` and `mock_ui` replace the environment
    and the user. In an `async def`, await it, or use it with `async with`.

    Extensions in TypeScript or JavaScript, and folders of npm packages, run in the real pi.

        with session(extensions=["./guard.py"], mock_tools={"bash": "ok"}) as rehearsal:
            rehearsal.run(when("List files", [call("bash", {"command": "ls"}), say("Done.")]))
    """
    from offbook.options import require_bools, require_list
    from offbook.runs.rehearsal import Rehearsal
    from offbook.subjects.session.session import AgentSession

    require_bools(
        mock_extension_tools=mock_extension_tools,
        propagate_errors=propagate_errors,
        allow_unused_mocks=allow_unused_mocks,
        has_ui=has_ui,
        auto_assert=auto_assert,
    )
    specs = [
        *require_list(extensions, "extensions"),
        *require_list(extension_factories, "extension_factories"),
    ]
    subject: Subject
    if any(map(_is_pi_extension, specs)):
        subject = _make_pi(
            specs,
            mock_host,
            mock_tools=mock_tools,
            mock_ui=mock_ui,
            mock_extension_tools=mock_extension_tools,
            propagate_errors=propagate_errors,
            mode="rpc" if has_ui else "json",
            system_prompt="" if system_prompt == DEFAULT_SYSTEM_PROMPT else system_prompt,
            skills=skills,
            settings=settings,
        )
    else:
        subject = AgentSession(
            extensions=specs,
            mock_tools=mock_tools,
            mock_ui=mock_ui,
            mock_host=mock_host,
            system_prompt=system_prompt,
            skills=skills,
            settings=settings,
            mock_extension_tools=mock_extension_tools,
            propagate_errors=propagate_errors,
            has_ui=has_ui,
        )
    return Rehearsal(
        subject,
        source=source,
        cwd=cwd,
        trace=trace,
        auto_assert=auto_assert,
        allow_unused_mocks=allow_unused_mocks,
        faults=faults,
    )


create_test_session = session  # the name in the test harness of pi


def _is_pi_extension(spec: object) -> bool:
    """Return whether an extension is one of pi: a TypeScript file, or the folder of a package."""
    from pathlib import Path

    if not isinstance(spec, (str, Path)):
        return False
    path = Path(spec)
    return path.suffix in PI_SUFFIXES or (path / "package.json").is_file()


def _make_pi(specs: list[object], mock_host: object, **options: Any) -> Pi:
    """Return pi with these extensions; refuse what only the Python session has."""
    from offbook.subjects.clis.pi import Pi

    if others := [spec for spec in specs if not _is_pi_extension(spec)]:
        raise UsageError(
            f"extensions of pi and of Python cannot run in one session: {others[0]!r}",
            hint="write a session for each",
        )
    if mock_host is not None:
        raise UsageError("mock_host has no effect on pi", hint="remove mock_host=")
    return Pi(extensions=cast("list[str]", specs), **options)


@explain_call
def drive(  # noqa: PLR0913 - the options of a rehearsal
    subject: object,
    *,
    source: ModelSource | None = None,
    cwd: Path | str | None = None,
    auto_assert: bool = True,
    trace: Path | str | None = None,
    mock_tools: Mapping[str, Any] | None = None,
    allow_unused_mocks: bool = False,
    urls: Iterable[str] = (),
    allow: Iterable[str] = (),
    tool_aliases: Mapping[str, str | ToolAlias] | None = None,
    lenient: Iterable[str] = (),
    serve: bool = False,
    sealed: bool = False,
    faults: Faults | Iterable[str] | Mapping[str, Any] | None = None,
    mcp: Iterable[ToolServer] = (),
    agents: Iterable[RemoteAgent] = (),
    **options: Any,
) -> Rehearsal:
    """Drive an agent with a scripted model: an agent of a framework, a function, or a `Subject`.

    An agent of a framework runs unchanged. The HTTP clients of this process are answered; all
    other connections are refused, except for addresses in `allow`. `urls` are base URLs where the
    agent expects a model, in addition to the providers' own. `mock_tools` replace tools of the
    agent, and other `options` are passed to the function of the framework that runs the agent.

    `tool_aliases` maps tool names of the script to those of the agent: `{"shell": "run_command"}`,
    or `{"shell": ToolAlias("run_command", {"command": "line"})}` if parameters differ as well.
    `lenient` names rules of the providers that are not checked: `["missing_max_tokens"]`.
    `serve` is for clients that open their own sockets: during the run, the variables for base URLs
    and keys (`OPENAI_BASE_URL`, …) name a server on loopback. A command that is
    `sealed` runs in a network namespace (Linux). `faults` break some of the model's responses, and
    some tools and host calls: `["reset@2"]`, or `{"seed": 7}` for any. `mcp` are scripted MCP
    servers of the agent: a command-line agent is configured with them, and what they execute is in
    the trace. `agents` are scripted remote agents that the agent calls; what they receive is, too.
    """
    from offbook.options import require_bools, require_list
    from offbook.runs.rehearsal import Rehearsal
    from offbook.subjects.subject import Subject

    require_bools(
        auto_assert=auto_assert, allow_unused_mocks=allow_unused_mocks, serve=serve, sealed=sealed
    )
    servers = cast("list[ToolServer]", require_list(mcp, "mcp"))
    mock_tools = _mock_server_tools(servers, mock_tools)
    if isinstance(subject, type) or not isinstance(subject, Subject):
        # Imported here: a session does not need the frameworks.
        from offbook.subjects.frameworks.framework import wrap_agent

        is_class = isinstance(subject, type)
        wrapped = None if is_class else wrap_agent(subject, mock_tools, options, DRIVE_OPTIONS)
        if wrapped is None:
            from offbook.subjects.frameworks.callable import suggest_function

            kind = repr(subject) if is_class else type(subject).__name__
            line = "" if is_class else suggest_function(subject)
            other = "pass an agent of a framework, a function of the prompt, or a Subject"
            raise UsageError(f"cannot drive {kind}", hint=f"write {line}" if line else other)
        subject = wrapped
    elif options:
        option = next(iter(options))
        hint = did_you_mean(option, DRIVE_OPTIONS)
        raise UsageError(f"drive({subject.name}) has no option {option!r}", hint=hint)
    elif mock_tools:
        raise UsageError(
            f"drive({subject.name}) has no option 'mock_tools'",
            hint=f"only agents of a framework have mock_tools; configure {subject.name} itself",
        )
    return Rehearsal(
        subject,
        source=source,
        cwd=cwd,
        trace=trace,
        auto_assert=auto_assert,
        allow_unused_mocks=allow_unused_mocks,
        urls=urls,
        allow=allow,
        tool_aliases=tool_aliases,
        lenient=lenient,
        serve=serve,
        sealed=sealed,
        faults=faults,
        mcp=servers,
        agents=cast("list[RemoteAgent]", require_list(agents, "agents")),
    )


def _mock_server_tools(
    servers: list[ToolServer], mock_tools: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """Mock the tools of MCP servers; return the mocks of the agent's own tools."""
    left = dict(mock_tools or {})
    for server in servers:
        for name in [name for name in left if name in server.tool_names]:
            server.mock_tool(name, left.pop(name))
    return left or None


# `__wrapped__` is the function without its decorator.
DRIVE_OPTIONS = list(drive.__wrapped__.__kwdefaults__)  # type: ignore[attr-defined]
