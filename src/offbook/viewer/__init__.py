"""The viewer: traces and runs as one HTML file that loads nothing.

offbook view trace.jsonl
"""

from offbook.capability import Capability, CommandEntry, lazy_names

CAPABILITY = Capability(
    heading="View",
    commands={
        "view": CommandEntry(
            "Write a trace or a run as one HTML page.", "offbook.viewer.viewer_cli:view"
        ),
    },
    reports={"html": "offbook.viewer.html_page:render_traces"},
)

# Lazy, because `offbook --help` and every start of pytest import this package.
# `__init__.pyi` lists the same names for type checkers.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "html_page": "PageTrace render_page",
    },
    "CAPABILITY",
    internal={
        "html_page": "encode_event encode_record read_comparison read_run_directory read_sources"
        " render_traces",
        "live_server": "LiveFeed LiveServer ReviewDesk",
    },
)
