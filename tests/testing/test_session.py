"""The agent session keeps what every subject promises."""

from typing import Any

from offbook.testing import SubjectConformance
from offbook.types import AgentSession, Subject


def echoing(api: Any) -> None:
    """A tool and a command."""

    @api.tool("echo")
    def echo(params: Any, ctx: Any) -> str:
        return params["text"]

    @api.command("echo")
    def show(args: str, ctx: Any) -> None:
        ctx.ui.notify(args)


class TestBuiltIn(SubjectConformance):
    def subject(self) -> Subject:
        return AgentSession()

    def call(self) -> tuple[str, dict[str, Any]]:
        return "bash", {"command": "echo hi"}


class TestExtended(SubjectConformance):
    def subject(self) -> Subject:
        return AgentSession(extensions=[echoing], mock_tools={"bash": "ok"})

    def call(self) -> tuple[str, dict[str, Any]]:
        return "echo", {"text": "hi"}
