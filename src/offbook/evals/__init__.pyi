from offbook.capability import Capability
from offbook.evals.case_results import CaseResult as CaseResult
from offbook.evals.pack import Pack as Pack
from offbook.evals.pack_file import read_pack as read_pack
from offbook.evals.pack_run import run_pack as run_pack

CAPABILITY: Capability
