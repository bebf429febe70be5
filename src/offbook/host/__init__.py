"""Host capabilities: what code asks of its host, mocked under test and real elsewhere."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "host_scope": "HostProviders HostWorkspace",
    },
)
