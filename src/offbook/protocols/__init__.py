"""Agents that other programs reach over HTTP: A2A and AG-UI, and scripted remote agents.

from offbook.protocols import A2a, remote_agent

drive(A2a(["python", "agent.py", "--port", "{port}"]))
drive(agent, agents=[remote_agent("billing", "refunded")])
"""

from offbook.capability import Capability, lazy_names

CAPABILITY = Capability(heading="Agent protocols")

# Lazy, because `offbook --help` and every start of pytest import this package.
# `__init__.pyi` lists the same names for type checkers.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {"a2a_subject": "A2a", "ag_ui_subject": "AgUi", "scripted_agent": "remote_agent"},
    "CAPABILITY",
    internal={"scripted_agent": "ScriptedAgent"},
)
