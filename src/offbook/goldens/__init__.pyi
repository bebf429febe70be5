from offbook.capability import Capability
from offbook.goldens.components import Component as Component
from offbook.goldens.components import Harness as Harness
from offbook.goldens.components import step as step
from offbook.goldens.live_scripts import scenario as scenario
from offbook.goldens.project import Goldens as Goldens
from offbook.trace.channels import Channel as Channel
from offbook.trace.hub import Hub as Hub
from offbook.trace.hub import event_envelope as event_envelope

CAPABILITY: Capability
