"""claude-agent-sdk: its client runs Claude Code as a process, configured with a base URL."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from offbook.errors import RunError, ScriptMismatch
from offbook.exchange.model import CLAUDE_CODE_ALIASES, ToolAliases
from offbook.exchange.people import PersonQuestion, require_decision
from offbook.exchange.providers import client_env
from offbook.subjects.frameworks.framework import AsksPeople, NoToolAccess
from offbook.subjects.process import isolated_env

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from offbook.subjects.subject import ModelAccess, RunContext
    from offbook.trace.hub import Hub


class ClaudeAgent(NoToolAccess, AsksPeople):
    """An agent given as `ClaudeAgentOptions`; each prompt resumes its session.

    It gets its own home directory, and works in the run's directory unless the options name one.
    Permissions are those of the options. `overrides` replace fields of the options.
    """

    name = "claude-agent-sdk"
    model_access: ModelAccess = "endpoint"
    tool_aliases: ClassVar[ToolAliases] = CLAUDE_CODE_ALIASES

    def __init__(self, options: Any, overrides: Mapping[str, Any]) -> None:
        self._options = options
        self._overrides = overrides
        self._session: str | None = None

    def option_names(self) -> Collection[str]:
        """Return the fields of `ClaudeAgentOptions`."""
        return {field.name for field in fields(self._options)}

    def prepare(self, context: RunContext, /) -> Callable[[], None]:
        """Create the home directory and point the client to the model."""
        self._options = replace(self._options, **self._overrides)
        home = Path(tempfile.mkdtemp(prefix="offbook-home-")).resolve()
        # The options win: a test may set its own variables.
        network = context.proxy_env(self._options.env)
        extra = {**client_env(context.endpoint), **network, **context.hub.variables}
        env = {
            **isolated_env(home, extra),
            **self._options.env,
        }
        self._options = replace(self._options, cwd=self._options.cwd or context.cwd, env=env)
        if self._options.can_use_tool is None:  # else the agent decides
            self._options = replace(self._options, can_use_tool=self._ask_person)
        return lambda: shutil.rmtree(home, ignore_errors=True)

    async def _ask_person(self, tool: str, given: dict[str, Any], _context: Any) -> Any:
        """Ask for an approval of a tool; a question that the script does not answer is denied."""
        sdk: Any = import_module("claude_agent_sdk")
        # A script may write any of the common names of a tool: bash and shell for Bash.
        common = [name for name, alias in self.tool_aliases.items() if alias.tool == tool]
        try:
            answer = await self.ask(PersonQuestion(" ".join(common), tool, given))
        except ScriptMismatch as error:  # it fails the run
            return sdk.PermissionResultDeny(message=error.what, interrupt=True)
        return require_decision(
            answer,
            tool,
            allow=lambda params: sdk.PermissionResultAllow(updated_input=params),
            deny=lambda reason: sdk.PermissionResultDeny(message=reason or "The user denied it."),
        )

    async def prompt(self, text: str, _hub: Hub, /) -> object:
        """Send the prompt with a new client, so that no process runs between prompts."""
        sdk: Any = import_module("claude_agent_sdk")
        result: Any = None
        options = replace(self._options, resume=self._session or self._options.resume)
        async with sdk.ClaudeSDKClient(options=options) as client:
            await client.query(text)
            async for message in client.receive_response():
                result = message if isinstance(message, sdk.ResultMessage) else result
        if result is None or result.is_error:
            reason = getattr(result, "result", None) or "no result"
            raise RunError(f"claude-agent-sdk failed: {reason}")
        self._session = result.session_id  # the next prompt resumes it
        return result

    def output(self, result: Any, /) -> object:
        """Return the final text."""
        return result.result
