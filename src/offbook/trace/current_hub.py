"""The hub and the mocks of the current run, for code that is called without a run at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offbook.determinism.thread_context import thread_variable, use_variable

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from contextvars import ContextVar

    from offbook.determinism.faults import FaultInjector
    from offbook.trace.hub import Hub

current_hub: ContextVar[Hub | None] = thread_variable("offbook_hub")
"""The hub of the current run, in all its tasks and threads; None outside of a run."""

current_llm: ContextVar[Any] = thread_variable("offbook_llm")
"""The `LlmScope` of `with_llm_mocks`, or None."""

current_host: ContextVar[Any] = thread_variable("offbook_host")
"""The `HostScope` of `with_host_mocks`, or None."""

run_watchers: list[Callable[[Hub], None]] = []
"""Called with the hub of a run when it starts and before it ends; fake programs add theirs."""

current_faults: ContextVar[FaultInjector | None] = thread_variable("offbook_faults")
"""The faults of the current run, in all its tasks and threads; None without any."""


def use_hub(hub: Hub) -> AbstractContextManager[None]:
    """Make this the current hub in a `with` block."""
    return use_variable(current_hub, hub)
