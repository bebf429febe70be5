"""Inspect: a task is evaluated on a sample that holds the conversation so far."""

from __future__ import annotations

from copy import copy
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from offbook.errors import RunError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offbook.subjects.frameworks.framework import MockFunction
    from offbook.trace.hub import Hub


class InspectAI:
    """A `Task`, whose solver does the work; its own dataset stays where it is.

    `options` are what `eval_async` takes besides the task (`model`, `model_args`, …). Nothing is
    scored, and its log goes to a folder that is removed, unless `score` or `log_dir` say otherwise.
    """

    name = "inspect"

    def __init__(self, task: Any, options: Mapping[str, Any]) -> None:
        self._task = task
        self._options = dict(options)
        self._history: list[Any] = []

    async def prompt(self, text: str, _hub: Hub, /) -> object:
        """Evaluate the task on what was said before, and this."""
        inspect: Any = import_module("inspect_ai")
        dataset: Any = import_module("inspect_ai.dataset")
        model: Any = import_module("inspect_ai.model")
        said = [*self._history, model.ChatMessageUser(content=text)]
        samples = dataset.MemoryDataset([dataset.Sample(input=said)])
        task = inspect.task_with(copy(self._task), dataset=samples)
        with TemporaryDirectory(prefix="offbook-inspect-") as folder:
            options: dict[str, Any] = {"log_dir": folder, "score": False, **self._options}
            (log,) = await inspect.eval_async(task, **options)
            log.samples = list(log.samples or ())  # it would read them when the folder is gone
        if log.status != "success" or not log.samples:
            why = log.error.message if log.error else log.status
            raise RunError(f"the evaluation ended with: {why}")
        self._history = log.samples[0].messages
        return log

    def tools(self) -> Mapping[str, Any]:
        """A solver does not tell what it uses."""
        return {}

    def swap(self, tool: Any, _stand_in: MockFunction, /) -> Callable[[], None]:
        """Nothing can be swapped in a solver."""
        raise UsageError(f"the tool {tool!r} of an Inspect task cannot be mocked")
