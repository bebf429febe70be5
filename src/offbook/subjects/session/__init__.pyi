from offbook.subjects.session.extensions import Api as Api
from offbook.subjects.session.session import AgentSession as AgentSession
from offbook.subjects.session.tools import HOOK_EVENTS as HOOK_EVENTS
from offbook.subjects.session.tools import Context as Context
from offbook.subjects.session.tools import HookEvent as HookEvent
from offbook.subjects.session.tools import run_bash as run_bash

DEFAULT_SYSTEM_PROMPT: str
