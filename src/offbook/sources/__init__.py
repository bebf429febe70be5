"""Sources: they answer the requests to the model."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "live": "Live PROVIDERS",
        "loading": "open_source read_script",
        "matching": "AwaitedResults GlobIndex UNINDEXED join_values",
    },
)
