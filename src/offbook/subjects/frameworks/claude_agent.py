"""claude-agent-sdk: its client runs Claude Code as a process, which is given a base URL."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from offbook.errors import RunError, UsageError
from offbook.exchange.providers import client_env
from offbook.exchange.tool_aliases import CLAUDE_CODE_ALIASES, ToolAliases
from offbook.subjects.process import isolated_env

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offbook.subjects.frameworks.framework import MockFunction
    from offbook.subjects.subject import ModelAccess, RunContext
    from offbook.trace.hub import Hub


class ClaudeAgent:
    """The options of an agent, `ClaudeAgentOptions`; each prompt resumes the session.

    It has a home of its own, and the stage's folder where the options name none. What it may do,
    and who is asked, is what the options say.
    """

    name = "claude-agent-sdk"
    model_access: ModelAccess = "endpoint"
    tool_aliases: ClassVar[ToolAliases] = CLAUDE_CODE_ALIASES

    def __init__(self, options: Any, more: Mapping[str, Any]) -> None:
        self._options = replace(options, **more)
        self._session: str | None = None

    def settle(self, stage: RunContext, /) -> Callable[[], None]:
        """Make it a home, where it finds the model; how to remove it."""
        home = Path(tempfile.mkdtemp(prefix="offbook-home-")).resolve()
        env = {**isolated_env(home, client_env(stage.endpoint)), **self._options.env}
        self._options = replace(self._options, cwd=self._options.cwd or stage.cwd, env=env)
        return lambda: shutil.rmtree(home, ignore_errors=True)

    async def prompt(self, text: str, _hub: Hub, /) -> object:
        """Ask a client of its own, so that none is open between prompts."""
        sdk: Any = import_module("claude_agent_sdk")
        result: Any = None
        options = replace(self._options, resume=self._session or self._options.resume)
        async with sdk.ClaudeSDKClient(options=options) as client:
            await client.query(text)
            async for message in client.receive_response():
                result = message if isinstance(message, sdk.ResultMessage) else result
        if result is None or result.is_error:
            said = getattr(result, "result", None) or "it said nothing"
            raise RunError(f"claude-agent-sdk ended with an error: {said}")
        self._session = result.session_id
        return result

    def tools(self) -> Mapping[str, Any]:
        """Its tools are in its process, or behind its MCP servers."""
        return {}

    def swap(self, tool: Any, _stand_in: MockFunction, /) -> Callable[[], None]:
        """Nothing can be swapped in another process."""
        raise UsageError(f"the tool {tool!r} of claude-agent-sdk cannot be mocked")
