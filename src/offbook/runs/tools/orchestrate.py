"""`run` with a loop of others: the orchestrator is real, and scripted answers are its agent."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from offbook.errors import ModelError, UsageError, nearest
from offbook.exchange.messages import Text
from offbook.exchange.reply import Reply
from offbook.runs.tools.work import Limits, Progress, Worked, perform
from offbook.subjects.clis.ralph import HAT, Ralph

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offbook.exchange.request import Request
    from offbook.runs.workspace import Workspace
    from offbook.subjects.loop.backend import MockBackend

ORCHESTRATORS = {"ralph": Ralph}


class Scripted:
    """Scripted answers, as the model of the agent that an orchestrator calls."""

    def __init__(self, mock: MockBackend) -> None:
        self._mock = mock

    async def reply(self, request: Request, /) -> Reply:
        """The next answer that fits; one with an exit code lets the agent fail."""
        acted = await self._mock.act(HAT, request.prompt, math.inf)
        if acted.exit_code:
            raise ModelError(acted.output or f"exit code {acted.exit_code}", status=500)
        return Reply((Text(acted.output),))


async def orchestrate(
    workspace: Workspace,
    task: str,
    orchestrator: str,
    mock: MockBackend,
    limits: Limits,
    *,
    env: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Worked:
    """Let an orchestrator of others work on a task in a workspace."""
    kind = ORCHESTRATORS.get(orchestrator)
    if kind is None:
        raise UsageError(
            f"there is no orchestrator {orchestrator!r}",
            where="run",
            hint=nearest(orchestrator, ORCHESTRATORS),
        )
    subject = kind(max_iterations=limits.iterations, deadline=limits.seconds, env=env)
    return await perform(workspace, task, subject, limits, source=Scripted(mock), progress=progress)
