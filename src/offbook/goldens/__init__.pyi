from offbook.capability import Capability
from offbook.goldens.components import Component as Component
from offbook.goldens.components import Harness as Harness
from offbook.goldens.components import step as step
from offbook.goldens.live_scripts import scenario as scenario
from offbook.goldens.project import Goldens as Goldens
from offbook.goldens.session_hub import Channel as Channel
from offbook.goldens.session_hub import SessionHub as SessionHub
from offbook.goldens.session_hub import event_envelope as event_envelope

CAPABILITY: Capability

__all__ = [
    "CAPABILITY",
    "Channel",
    "Component",
    "Goldens",
    "Harness",
    "SessionHub",
    "event_envelope",
    "scenario",
    "step",
]
