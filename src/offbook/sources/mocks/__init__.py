"""Mocks: replies in a file, one a line, selected by a pattern or by their order."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "mock_file": "Mock lint_mocks parse_mocks read_mocks",
        "mock_recording": "MockRecording",
        "mocks": "Mocks RECEIPTS Receipt",
    },
)
