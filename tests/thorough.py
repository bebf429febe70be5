"""Whether `./dev test --thorough` runs: more examples, more steps, larger payloads."""

import os
from collections.abc import Iterable

THOROUGH = bool(os.environ.get("OFFBOOK_TEST_THOROUGH"))


def usual_rows(table: Iterable[str], further: Iterable[str]) -> list[str]:
    """Return the rows of a table that every run has: all but the further ones of a kind."""
    left_out: set[str] = set() if THOROUGH else {*further}
    return [row for row in table if row not in left_out]
