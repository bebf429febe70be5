"""Inspect: a task is evaluated on one sample that has the conversation so far as input."""

from __future__ import annotations

from copy import copy
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from offbook.errors import ModelError, RunError
from offbook.subjects.frameworks.framework import NoToolAccess, parameter_names
from offbook.trace.events import ERROR

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from offbook.trace.events import Event
    from offbook.trace.hub import Hub

# Inspect's exceptions for a failed request, without and with retries. Its log has only their text.
PROVIDER_ERRORS = ("ModelGenerateError(", "RetryError(")


class InspectAI(NoToolAccess):
    """An Inspect `Task`; its solver runs, its dataset is not used.

    `options` are arguments of `eval_async` (`model`, `model_args`, …). Unless `score` or
    `log_dir` is given, nothing is scored and the log is deleted.
    """

    name = "inspect"

    def __init__(self, task: Any, options: Mapping[str, Any]) -> None:
        self._task = task
        self._options = dict(options)
        self._history: list[Any] = []

    def option_names(self) -> Collection[str] | None:
        """Return the arguments of `eval_async`."""
        return parameter_names(import_module("inspect_ai").eval_async)

    async def prompt(self, text: str, hub: Hub, /) -> object:
        """Evaluate the task on the history and this prompt."""
        inspect: Any = import_module("inspect_ai")
        dataset: Any = import_module("inspect_ai.dataset")
        model: Any = import_module("inspect_ai.model")
        messages = [*self._history, model.ChatMessageUser(content=text)]
        samples = dataset.MemoryDataset([dataset.Sample(input=messages)])
        # A copy, because `task_with` changes the task in place.
        task = inspect.task_with(copy(self._task), dataset=samples)
        failures: list[Event] = []
        unsubscribe = hub.subscribe(failures.append, ERROR)
        try:
            with TemporaryDirectory(prefix="offbook-inspect-") as folder:
                options: dict[str, Any] = {"log_dir": folder, "score": False, **self._options}
                (log,) = await inspect.eval_async(task, **options)
                # Samples are read from the log file lazily: read them before it is deleted.
                log.samples = list(log.samples or ())
        finally:
            unsubscribe()
        if log.status != "success" or not log.samples:
            reason: str = log.error.message if log.error else log.status
            cause = None
            if failures and reason.startswith(PROVIDER_ERRORS):
                data = failures[-1].data
                cause = ModelError(data["message"], status=data["status"])
                reason = str(cause)  # Inspect's text has the whole request
            raise RunError(f"the evaluation failed: {reason}") from cause
        self._history = log.samples[0].messages
        return log

    def output(self, result: Any, /) -> object:
        """Return the completion of the sample."""
        return result.samples[0].output.completion
