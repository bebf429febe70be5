"""Subjects: the agents under test, and how they are prompted."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "process": "OutputCollector ProcessResult isolated_env run_foreground run_process",
        "subject": "MOCKS_USED ModelAccess RunContext Subject",
        "tool_watch": "MockedTool ToolWatch",
    },
)
