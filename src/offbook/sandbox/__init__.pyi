from offbook.capability import Capability
from offbook.sandbox.load_entry_points import find_entry_points as find_entry_points
from offbook.sandbox.load_entry_points import main as main
from offbook.sandbox.npm_package import install_npm_package as install_npm_package
from offbook.sandbox.sandbox_cli import find_unmet as find_unmet
from offbook.sandbox.sandbox_cli import verify_sandbox_install as verify_sandbox_install
from offbook.sandbox.sandbox_folder import Loaded as Loaded
from offbook.sandbox.sandbox_folder import SandboxFault as SandboxFault
from offbook.sandbox.sandbox_folder import SandboxFolder as SandboxFolder
from offbook.sandbox.sandbox_folder import SandboxResult as SandboxResult
from offbook.sandbox.sandbox_folder import SandboxStep as SandboxStep
from offbook.sandbox.sandbox_folder import SmokeResult as SmokeResult

CAPABILITY: Capability
