from offbook.capability import Capability
from offbook.sandbox.sandbox_result import Loaded as Loaded
from offbook.sandbox.sandbox_result import SandboxFault as SandboxFault
from offbook.sandbox.sandbox_result import SandboxResult as SandboxResult
from offbook.sandbox.sandbox_result import SandboxStep as SandboxStep
from offbook.sandbox.sandbox_result import SmokeResult as SmokeResult
from offbook.sandbox.verify import verify_sandbox_install as verify_sandbox_install

CAPABILITY: Capability

__all__ = [
    "CAPABILITY",
    "Loaded",
    "SandboxFault",
    "SandboxResult",
    "SandboxStep",
    "SmokeResult",
    "verify_sandbox_install",
]
