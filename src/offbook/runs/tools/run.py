"""`run`: let the loop work on a task in a workspace, and record it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from offbook.errors import UsageError
from offbook.runs.tools.work import Limits, Progress, Worked, work
from offbook.runs.workspace import Workspace, Workspaces
from offbook.secrets import keep_secret
from offbook.subjects.loop.backend import MockBackend


class Ran(Worked, frozen=True):
    """A run that is over."""

    mock_responses_consumed: int = 0
    mock_responses_remaining: int = 0


async def run(  # noqa: PLR0913 - the parameters of the tool
    workspace_id: str,
    task: str,
    *,
    backend: str = "mock",
    orchestrator: str = "",
    command: Sequence[str] = (),
    playbook: str = "",
    cassette: str = "",
    max_iterations: int = 5,
    max_runtime_secs: float = 300.0,
    env: Mapping[str, str] | None = None,
    mock_responses: Sequence[Any] | None = None,
    progress: Progress | None = None,
) -> Ran:
    """Work on a task, within limits: scripted answers, a recording, a command or a client.

    With an orchestrator, the loop is not ours but that one's, and scripted answers are its agent.
    """
    workspace = Workspaces().find(workspace_id)
    limits = Limits(max_iterations, max_runtime_secs)
    if backend == "mock":
        mock = _read_mock(mock_responses)
        worked = await _play(workspace, task, mock, limits, orchestrator, env, progress)
        return _ran(worked, mock.consumed, mock.remaining)
    for name, given in (("orchestrator", orchestrator), ("mock_responses", mock_responses)):
        if given:
            raise UsageError(f"the backend {backend!r} takes no {name}", hint="backend: mock")
    if backend == "replay":
        from offbook.runs.tools.replay import CassetteBackend

        tape = CassetteBackend(workspace, cassette)
        tape.begin(task)
        return _ran(
            await work(workspace, task, tape, limits, judge=tape.verdict, progress=progress)
        )
    from offbook.runs.agents import Agent, Choice

    choice = Choice(backend, tuple(command), dict(env or {}), playbook)
    agent = Agent(choice, workspace.path)
    with keep_secret(choice.env):
        return _ran(
            await work(workspace, task, agent, limits, judge=agent.verdict, progress=progress)
        )


async def _play(
    workspace: Workspace,
    task: str,
    mock: MockBackend,
    limits: Limits,
    orchestrator: str,
    env: Mapping[str, str] | None,
    progress: Progress | None,
) -> Worked:
    """Let scripted answers be the agent: of our loop, or of an orchestrator's."""
    if not orchestrator:
        return await work(workspace, task, mock, limits, progress=progress)
    from offbook.runs.tools.orchestrate import orchestrate

    return await orchestrate(
        workspace, task, orchestrator, mock, limits, env=env, progress=progress
    )


def _read_mock(responses: Sequence[Any] | None) -> MockBackend:
    if not responses:
        raise UsageError(
            "the mock backend needs mock_responses", hint='[{"output": "…\\nLOOP_COMPLETE"}]'
        )
    return MockBackend(responses)


def _ran(worked: Worked, consumed: int = 0, remaining: int = 0) -> Ran:
    told = msgspec.structs.asdict(worked)
    return Ran(**told, mock_responses_consumed=consumed, mock_responses_remaining=remaining)
