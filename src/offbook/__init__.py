"""Offbook rehearses AI agents without the model.

from offbook import call, say, session, when

with session() as rehearsal:
    rehearsal.run(when("Greet me", [call("bash", {"command": "echo hi"}), say("Done.")]))
    assert rehearsal.events.tool_sequence() == ["bash"]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offbook import tools as tools
    from offbook.errors import CheckFailed as CheckFailed
    from offbook.errors import ExtensionError as ExtensionError
    from offbook.errors import FormatError as FormatError
    from offbook.errors import IsolationError as IsolationError
    from offbook.errors import ModelError as ModelError
    from offbook.errors import OffbookError as OffbookError
    from offbook.errors import PlaybookError as PlaybookError
    from offbook.errors import ReplayMismatch as ReplayMismatch
    from offbook.errors import RunError as RunError
    from offbook.errors import ScriptError as ScriptError
    from offbook.errors import ScriptExhausted as ScriptExhausted
    from offbook.errors import ScriptMismatch as ScriptMismatch
    from offbook.errors import ScriptUnfinished as ScriptUnfinished
    from offbook.errors import ToolBlocked as ToolBlocked
    from offbook.errors import ToolFailed as ToolFailed
    from offbook.errors import UsageError as UsageError
    from offbook.exchange.messages import Foreign as Foreign
    from offbook.exchange.messages import Image as Image
    from offbook.exchange.messages import Message as Message
    from offbook.exchange.messages import Text as Text
    from offbook.exchange.messages import Thinking as Thinking
    from offbook.exchange.messages import ToolCall as ToolCall
    from offbook.exchange.messages import ToolResult as ToolResult
    from offbook.exchange.names import Name as Name
    from offbook.exchange.reply import Reply as Reply
    from offbook.exchange.reply import Usage as Usage
    from offbook.exchange.request import Request as Request
    from offbook.exchange.request import Tool as Tool
    from offbook.exchange.source import ModelSource as ModelSource
    from offbook.runs.goldens.components.component import Component as Component
    from offbook.runs.goldens.components.component import step as step
    from offbook.runs.goldens.components.harness import Harness as Harness
    from offbook.runs.goldens.scenario import scenario as scenario
    from offbook.runs.rehearsals.doors import drive as drive
    from offbook.runs.rehearsals.doors import session as session
    from offbook.runs.rehearsals.rehearsal import Rehearsal as Rehearsal
    from offbook.runs.rehearsals.run import Run as Run
    from offbook.sources.cassette.replay import Replay as Replay
    from offbook.sources.live import Live as Live
    from offbook.sources.mocks.mocks import Mocks as Mocks
    from offbook.sources.mocks.recording import MockRecording as MockRecording
    from offbook.sources.playbook import Playbook as Playbook
    from offbook.sources.playbook import call as call
    from offbook.sources.playbook import fail as fail
    from offbook.sources.playbook import role as role
    from offbook.sources.playbook import say as say
    from offbook.sources.playbook import think as think
    from offbook.sources.playbook import when as when
    from offbook.sources.recording import Recording as Recording
    from offbook.sources.server.pacing import Pacing as Pacing
    from offbook.sources.server.server import Server as Server
    from offbook.subjects.clis.claude_code import ClaudeCode as ClaudeCode
    from offbook.subjects.clis.codex import Codex as Codex
    from offbook.subjects.clis.command import Command as Command
    from offbook.subjects.clis.gemini import GeminiCli as GeminiCli
    from offbook.subjects.clis.pi import Pi as Pi
    from offbook.subjects.clis.ralph import Ralph as Ralph
    from offbook.subjects.session.options import Skill as Skill
    from offbook.subjects.session.outcome import Outcome as Outcome
    from offbook.subjects.session.session import AgentSession as AgentSession
    from offbook.subjects.subject import Stage as Stage
    from offbook.subjects.subject import Subject as Subject
    from offbook.surfaces.fixtures import Offbook as Offbook
    from offbook.trace.bus.channels import Channel as Channel
    from offbook.trace.events import Event as Event
    from offbook.trace.hub import Hub as Hub
    from offbook.trace.hub import envelope as envelope
    from offbook.trace.query import Events as Events
    from offbook.trace.reader import Trace as Trace

__version__ = "0.1.0"

_HOMES = {
    "errors": (
        "CheckFailed ExtensionError FormatError IsolationError ModelError OffbookError "
        "PlaybookError ReplayMismatch RunError ScriptError ScriptExhausted ScriptMismatch "
        "ScriptUnfinished ToolBlocked ToolFailed UsageError"
    ),
    "exchange.messages": "Foreign Image Message Text Thinking ToolCall ToolResult",
    "exchange.names": "Name",
    "exchange.reply": "Reply Usage",
    "exchange.request": "Request Tool",
    "exchange.source": "ModelSource",
    "runs.goldens.components.component": "Component step",
    "runs.goldens.components.harness": "Harness",
    "runs.goldens.scenario": "scenario",
    "runs.rehearsals.doors": "drive session",
    "runs.rehearsals.rehearsal": "Rehearsal",
    "runs.rehearsals.run": "Run",
    "sources.mocks.mocks": "Mocks",
    "sources.playbook": "Playbook call fail role say think when",
    "sources.server.pacing": "Pacing",
    "sources.server.server": "Server",
    "subjects.clis.claude_code": "ClaudeCode",
    "subjects.clis.codex": "Codex",
    "subjects.clis.command": "Command",
    "subjects.clis.gemini": "GeminiCli",
    "subjects.clis.pi": "Pi",
    "subjects.clis.ralph": "Ralph",
    "subjects.session.outcome": "Outcome",
    "subjects.session.options": "Skill",
    "subjects.session.session": "AgentSession",
    "subjects.subject": "Stage Subject",
    "surfaces.fixtures": "Offbook",
    "trace.bus.channels": "Channel",
    "trace.events": "Event",
    "trace.hub": "Hub envelope",
    "trace.query": "Events",
    "trace.reader": "Trace",
    "sources.live": "Live",
    "sources.mocks.recording": "MockRecording",
    "sources.recording": "Recording",
    "sources.cassette.replay": "Replay",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "AgentSession",
    "Channel",
    "CheckFailed",
    "ClaudeCode",
    "Codex",
    "Command",
    "Component",
    "Event",
    "Events",
    "ExtensionError",
    "Foreign",
    "FormatError",
    "GeminiCli",
    "Harness",
    "Hub",
    "Image",
    "IsolationError",
    "Live",
    "Message",
    "MockRecording",
    "Mocks",
    "ModelError",
    "ModelSource",
    "Name",
    "Offbook",
    "OffbookError",
    "Outcome",
    "Pacing",
    "Pi",
    "Playbook",
    "PlaybookError",
    "Ralph",
    "Recording",
    "Rehearsal",
    "Replay",
    "ReplayMismatch",
    "Reply",
    "Request",
    "Run",
    "RunError",
    "ScriptError",
    "ScriptExhausted",
    "ScriptMismatch",
    "ScriptUnfinished",
    "Server",
    "Skill",
    "Stage",
    "Subject",
    "Text",
    "Thinking",
    "Tool",
    "ToolBlocked",
    "ToolCall",
    "ToolFailed",
    "ToolResult",
    "Trace",
    "Usage",
    "UsageError",
    "__version__",
    "call",
    "drive",
    "envelope",
    "fail",
    "role",
    "say",
    "scenario",
    "session",
    "step",
    "think",
    "tools",
    "when",
]


def __getattr__(name: str) -> object:
    """Each name comes from its home when it is first asked for, so that importing costs little."""
    if name == "tools":
        return import_module("offbook.tools")
    if name not in _HOME:
        raise AttributeError(f"module 'offbook' has no attribute {name!r}")
    value = getattr(import_module(f"offbook.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
