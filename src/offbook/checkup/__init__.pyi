from offbook.capability import Capability
from offbook.checkup.checkup_run import Checkup as Checkup
from offbook.checkup.checkup_run import run_checkup as run_checkup
from offbook.checkup.kit import Kit as Kit
from offbook.checkup.kit import make_value as make_value
from offbook.checkup.outcomes import OUTCOMES as OUTCOMES
from offbook.checkup.outcomes import RULES as RULES
from offbook.checkup.outcomes import KnownAgent as KnownAgent
from offbook.checkup.outcomes import find_crash as find_crash
from offbook.checkup.playing import CheckupResult as CheckupResult
from offbook.checkup.scenarios import GROUPS as GROUPS
from offbook.checkup.scenarios import SCENARIOS as SCENARIOS
from offbook.checkup.scenarios import CheckupScenario as CheckupScenario
from offbook.checkup.scenarios import select as select

CAPABILITY: Capability
