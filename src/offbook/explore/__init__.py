"""Generated models: a search for the behaviour of a model that breaks an agent.

from offbook.explore import explore
"""

from offbook.capability import Capability, CommandEntry, lazy_names

CAPABILITY = Capability(
    heading="Explore",
    commands={
        "explore": CommandEntry(
            "Play generated models against an agent.", "offbook.explore.explore_cli:explore_command"
        ),
        "bench": CommandEntry(
            "Measure a run several times, and compare.", "offbook.explore.bench_cli:bench_command"
        ),
        "coverage": CommandEntry(
            "Show which parts of an agent were used.",
            "offbook.explore.coverage_cli:coverage_command",
        ),
    },
    pytest_module="offbook.explore.coverage_pytest",
)

# Lazy, because `offbook --help` and every start of pytest import this package.
# `__init__.pyi` lists the same names for type checkers.
_MODULES = {
    "invariants": "at_most ends_within never_before no_secret_in_answer",
    "moves": "find_values",
    "search": "Exploration Counterexample explore replay",
}

_NAMES = sorted(name for names in _MODULES.values() for name in names.split())
__all__ = ["CAPABILITY", *_NAMES]  # noqa: PLE0604 # pyright: ignore[reportUnsupportedDunderAll] - only strings
__getattr__ = lazy_names(_MODULES, __name__)


def __dir__() -> list[str]:
    return __all__
