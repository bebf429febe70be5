"""Test AI agents without the model.

A playbook scripts the model; the agent, its tools and its extensions run for real.

    from offbook import call, say, session, when

    with session() as rehearsal:
        rehearsal.run(when("Greet me", [call("bash", {"command": "echo hi"}), say("Done.")]))
        assert rehearsal.events.tool_sequence() == ["bash"]

Other public modules: `offbook.clis` (command-line agents), `offbook.types`, `offbook.errors`,
`offbook.testing`, and one for each capability, such as `offbook.goldens`.
"""

from offbook.capability import lazy_names
from offbook.version import VERSION

__version__ = VERSION

# Each name is imported from its module when it is first used: `import offbook` stays fast.
# `__init__.pyi` lists the same names for type checkers.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "errors": "OffbookError ToolBlocked",
        "exchange.messages": "Message ToolCall ToolResult",
        "exchange.model": "ModelSource Reply Request Tool ToolAlias",
        "runs.api": "drive session",
        "runs.rehearsal": "Rehearsal",
        "runs.run": "Run",
        "sources.cassette.recording": "Recording",
        "sources.cassette.replay": "Cassette",
        "sources.live": "Live",
        "sources.mocks.mocks": "Mocks",
        "sources.playbook.actions": "call fail role say think when",
        "sources.playbook.playbook": "Playbook",
        "sources.server.endpoint": "Pacing",
        "sources.server.server": "Server",
        "subjects.clis.clients": "ClaudeCode Codex Command GeminiCli Ralph",
        "subjects.clis.pi": "Pi",
        "subjects.session.extensions": "Api",
        "subjects.session.tools": "Context",
        "surfaces.fixtures": "Offbook",
        "trace.events": "Event",
        "trace.query": "Events",
        "trace.reader": "Trace",
    },
    "__version__",
)
