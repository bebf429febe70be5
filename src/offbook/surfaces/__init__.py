"""The surfaces: pytest, the command line and MCP."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "capabilities": "CAPABILITIES",
        "cli.doctor_checks": "EnvironmentCheck check_environment check_project",
        "cli.schemas": "KINDS make_schema",
        "cli.first_steps": "InstalledTool PACKAGES find_installed",
    },
)
