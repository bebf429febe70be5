"""Which events a listener hears: all, those that begin alike, one name, or a list of these."""

from __future__ import annotations

from collections.abc import Sequence

from offbook.errors import UsageError

Filter = str | Sequence[str]
ALL = "*"


def matches(name: str, wanted: Filter) -> bool:
    """Whether an event of this name passes.

    `*` passes all; `agent:*` is a plain prefix, so `agent:tool:start` passes and `agent` does not;
    anything else is compared as it stands; a list passes what any of its members does.
    """
    if isinstance(wanted, str):
        return name.startswith(wanted[:-1]) if wanted.endswith(ALL) else name == wanted
    return any(matches(name, one) for one in wanted)


def check_filter(wanted: object) -> None:
    """Refuse what could never pass by mistake; an empty list never passes on purpose."""
    if isinstance(wanted, str):
        if not wanted or wanted[-1] in ".:":
            raise UsageError(
                f"no event is called {wanted!r}", hint=f'to hear a family, write "{wanted}*"'
            )
        return
    if not isinstance(wanted, Sequence):
        raise UsageError(
            f"a filter is a name or a list of names, not {type(wanted).__name__}",
            hint='write "*", "agent:*", "agent:start" or ["agent:*", "harness:start"]',
        )
    for one in wanted:  # pyright: ignore[reportUnknownVariableType] - whatever a caller gave
        if not isinstance(one, str):
            raise UsageError(f"a filter in a list is a name, not {type(one).__name__}")  # pyright: ignore[reportUnknownArgumentType] - as above
        check_filter(one)
