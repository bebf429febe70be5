"""The two ways in: a session of ours, or anybody's agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from offbook.errors import UsageError, explain_call
from offbook.exchange.model import ModelSource
from offbook.exchange.tool_aliases import ToolAlias
from offbook.runs.rehearsal import Rehearsal
from offbook.subjects.session.session import (
    DEFAULT_SYSTEM_PROMPT,
    AgentSession,
    Skill,
    require_list,
)
from offbook.subjects.subject import Subject


@explain_call
def session(  # noqa: PLR0913 - the options of a session
    *,
    extensions: Iterable[object] = (),
    extension_factories: Iterable[object] = (),
    mock_tools: Mapping[str, Any] | None = None,
    mock_ui: Mapping[str, Any] | None = None,
    system_prompt: str = DEFAULT_SYSTEM_PROMPT,
    cwd: Path | str | None = None,
    skills: Iterable[Skill | Mapping[str, Any]] = (),
    settings: Mapping[str, Any] | None = None,
    auto_assert: bool = True,
    mock_extension_tools: bool = False,
    propagate_errors: bool = True,
    source: ModelSource | None = None,
    trace: Path | str | None = None,
) -> Rehearsal:
    """A real agent session with a scripted model.

    Extensions are loaded for real; `mock_tools` and `mock_ui` stand in for the environment and
    the person. In an `async def`, await it, or use it with `async with`.
    """
    require_bools(
        mock_extension_tools=mock_extension_tools,
        propagate_errors=propagate_errors,
        auto_assert=auto_assert,
    )
    subject = AgentSession(
        extensions=[
            *require_list(extensions, "extensions"),
            *require_list(extension_factories, "extension_factories"),
        ],
        mock_tools=mock_tools,
        mock_ui=mock_ui,
        system_prompt=system_prompt,
        skills=skills,
        settings=settings,
        mock_extension_tools=mock_extension_tools,
        propagate_errors=propagate_errors,
    )
    return Rehearsal(subject, source=source, cwd=cwd, trace=trace, auto_assert=auto_assert)


@explain_call
def drive(  # noqa: PLR0913 - the options of a rehearsal
    subject: object,
    *,
    source: ModelSource | None = None,
    cwd: Path | str | None = None,
    auto_assert: bool = True,
    trace: Path | str | None = None,
    mock_tools: Mapping[str, Any] | None = None,
    urls: Iterable[str] = (),
    allow: Iterable[str] = (),
    names: Mapping[str, str | ToolAlias] | None = None,
    lenient: Iterable[str] = (),
    **options: Any,
) -> Rehearsal:
    """Any agent with a scripted model: a `Subject`, one of a framework, or a function of a prompt.

    An agent of a framework is driven as it is: its clients are answered in this process, whatever
    else it would send anywhere is refused, but for the addresses that `allow` names. `urls` are
    base URLs at which it expects a model, where that is not a provider's own. `mock_tools` stand in
    for its tools, and `options` go to the framework's own way of running an agent.

    `names` says what the agent calls the tools of the script: `{"shell": "run_command"}`, or
    `{"shell": Name("run_command", {"command": "line"})}` where parameters differ, too. `lenient`
    names rules of the providers that are not held: `["missing_max_tokens"]`.
    """
    require_bools(auto_assert=auto_assert)
    if isinstance(subject, type) or not isinstance(subject, Subject):
        subject = _recognise(subject, mock_tools, options)
    elif mock_tools or options:
        given = ", ".join([*options, *(["mock_tools"] if mock_tools else [])])
        raise UsageError(f"a {subject.name} takes its own options, not {given}")
    return Rehearsal(
        subject,
        source=source,
        cwd=cwd,
        trace=trace,
        auto_assert=auto_assert,
        urls=urls,
        allow=allow,
        names=names,
        lenient=lenient,
    )


def require_bools(**given: object) -> None:
    """Refuse what is neither on nor off."""
    for name, switch in given.items():
        if not isinstance(switch, bool):
            raise UsageError(f"{name} is True or False, not {switch!r}", hint=f"write {name}=False")


def _recognise(
    agent: object, mock_tools: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> Subject:
    from offbook.subjects.frameworks.framework import wrap_agent

    found = (
        None
        if isinstance(agent, type)
        else wrap_agent(agent, mock_tools, options, signature(drive).parameters)
    )
    if found is None:
        raise UsageError(
            f"a {type(agent).__name__} cannot be driven",
            hint="give an agent of a framework, a function of the prompt, or a Subject",
        )
    return found
