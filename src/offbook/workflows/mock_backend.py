"""`run` with a loop of others: the orchestrator is real, and scripted answers are its agent."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from offbook.errors import ModelError, UsageError, did_you_mean
from offbook.exchange.messages import Text
from offbook.exchange.model import Reply
from offbook.subjects.clis.ralph import HAT, Ralph
from offbook.workflows.loop_run import LoopResult, Progress, RunLimits, run_subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offbook.exchange.model import Request
    from offbook.runs.backends import MockBackend
    from offbook.workflows.workspace import Workspace

ORCHESTRATORS = {"ralph": Ralph}


class MockSource:
    """Scripted answers, as the model of the agent that an orchestrator calls."""

    def __init__(self, mock: MockBackend) -> None:
        self._mock = mock

    async def reply(self, request: Request, /) -> Reply:
        """The next answer that fits; one with an exit code lets the agent fail."""
        acted = await self._mock.act(HAT, request.prompt, math.inf)
        if acted.exit_code:
            raise ModelError(acted.output or f"exit code {acted.exit_code}", status=500)
        return Reply((Text(acted.output),))


async def run_orchestrator(
    workspace: Workspace,
    task: str,
    orchestrator: str,
    mock: MockBackend,
    limits: RunLimits,
    *,
    env: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> LoopResult:
    """Let an orchestrator of others work on a task in a workspace."""
    kind = ORCHESTRATORS.get(orchestrator)
    if kind is None:
        raise UsageError(
            f"there is no orchestrator {orchestrator!r}",
            where="run",
            hint=did_you_mean(orchestrator, ORCHESTRATORS),
        )
    subject = kind(max_iterations=limits.iterations, deadline=limits.seconds, env=env)
    return await run_subject(
        workspace, task, subject, limits, source=MockSource(mock), progress=progress
    )
