from offbook.capability import Capability
from offbook.protocols.a2a_subject import A2a as A2a
from offbook.protocols.ag_ui_subject import AgUi as AgUi
from offbook.protocols.scripted_agent import ScriptedAgent as ScriptedAgent
from offbook.protocols.scripted_agent import remote_agent as remote_agent

CAPABILITY: Capability
