from offbook.capability import Capability
from offbook.workflows.python_api import evaluate as evaluate
from offbook.workflows.python_api import record as record
from offbook.workflows.python_api import replay as replay
from offbook.workflows.python_api import run as run
from offbook.workflows.snapshots import diff as diff
from offbook.workflows.snapshots import list_pending as list_pending
from offbook.workflows.snapshots import review as review
from offbook.workflows.snapshots import snapshot as snapshot
from offbook.workflows.tools import check as check
from offbook.workflows.tools import cleanup as cleanup
from offbook.workflows.tools import inspect as inspect
from offbook.workflows.tools import report as report
from offbook.workflows.tools import setup as setup

CAPABILITY: Capability
__all__: list[str]
