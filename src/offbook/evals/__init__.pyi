from offbook.capability import Capability
from offbook.evals.builders import PackBuilder as PackBuilder
from offbook.evals.builders import build_context_manifest as build_context_manifest
from offbook.evals.case_results import CaseResult as CaseResult
from offbook.evals.context_eval import run_context_eval as run_context_eval
from offbook.evals.pack import Pack as Pack
from offbook.evals.pack_file import read_pack as read_pack
from offbook.evals.pack_run import RunOptions as RunOptions
from offbook.evals.pack_run import run_pack as run_pack

CAPABILITY: Capability
