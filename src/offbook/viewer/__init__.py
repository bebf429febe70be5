"""The viewer: traces and runs as one HTML file that loads nothing.

offbook view trace.jsonl
"""

from offbook.capability import Capability, CommandEntry, lazy_names

CAPABILITY = Capability(
    heading="See",
    commands={
        "view": CommandEntry(
            "Write a trace or a run as one HTML page.", "offbook.viewer.viewer_cli:view"
        ),
    },
    pytest_module="offbook.viewer.viewer_pytest",
    reports={"html": "offbook.viewer.html_page:render_traces"},
)

# Lazy, because `offbook --help` and every start of pytest import this package.
# `__init__.pyi` lists the same names for type checkers.
_MODULES = {
    "html_page": "PageTrace encode_event encode_record render_page render_traces",
    "page_sources": "read_run_directory read_sources",
}

_NAMES = sorted(name for names in _MODULES.values() for name in names.split())
__all__ = ["CAPABILITY", *_NAMES]  # noqa: PLE0604 # pyright: ignore[reportUnsupportedDunderAll] - only strings
__getattr__ = lazy_names(_MODULES, __name__)


def __dir__() -> list[str]:
    return __all__
