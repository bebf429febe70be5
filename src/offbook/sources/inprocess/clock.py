"""The clock and the random values of a tape, for an agent in this process."""

from __future__ import annotations

import os
import random
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from offbook.determinism.frozen_time import (
    REPLACED_RANDOM,
    REPLACED_TIMES,
    replace_clock,
    replace_imported,
)
from offbook.determinism.run_context import (
    current_clock,
    is_library,
    propagate_to_threads,
    use_variable,
)
from offbook.sources.inprocess.shared_patches import SharedPatches

if TYPE_CHECKING:
    from collections.abc import Generator

    from offbook.determinism.frozen_time import RunClock


@contextmanager
def use_clock(clock: RunClock) -> Generator[None]:
    """Give the code inside the block the time and the random values of a clock."""
    with _replacement, propagate_to_threads(), use_variable(current_clock, clock):
        yield


class ClockReplacement(SharedPatches):
    """Replaces the functions of this process while at least one block is active."""

    def __init__(self) -> None:
        super().__init__()
        self._libraries: dict[str, object] = {}  # asked once: an SDK has thousands of modules

    def apply(self) -> None:
        """Replace the functions, also in the modules that have imported them."""
        real = _imported_functions()
        self._undo.append(replace_clock(current_clock.get))
        functions = list(zip(real, _imported_functions(), strict=True))
        # Modules of the user may have `from time import time`.
        self._undo.append(replace_imported(self._own_modules(), functions))

    def _own_modules(self) -> list[Any]:
        """Return the loaded modules that are none of libraries."""
        own: list[Any] = []
        for name, module in list(sys.modules.items()):
            if self._libraries.get(name) is module:
                continue
            if file := getattr(module, "__file__", None):
                if is_library(file):
                    self._libraries[name] = module
                else:
                    own.append(module)
        return own


def _imported_functions() -> list[Any]:
    """Return the functions that modules import by name."""
    times = [getattr(time, name) for name in REPLACED_TIMES]
    return [*times, os.urandom, *(getattr(random, name) for name in REPLACED_RANDOM)]


_replacement = ClockReplacement()
