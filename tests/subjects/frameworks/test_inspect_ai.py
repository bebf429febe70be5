"""The adapter of Inspect, on a stand-in for it; the matrix drives the real one."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from offbook.errors import ModelError, RunError
from offbook.subjects.frameworks import InspectAI
from offbook.trace import ERROR, Hub

Evaluate = Callable[[Any, dict[str, Any]], Any]


class Task:
    dataset = "the dataset of the user"


def log_of(messages: list[str]) -> SimpleNamespace:
    output = SimpleNamespace(completion=f"answer {len(messages)}")
    sample = SimpleNamespace(messages=[*messages, output.completion], output=output)
    return SimpleNamespace(status="success", samples=iter([sample]), error=None)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Evaluate], None]:
    def install(evaluate: Evaluate) -> None:
        async def eval_async(task: Any, *, log_dir: str, score: bool, model: str = "") -> list[Any]:
            return [evaluate(task, {"log_dir": log_dir, "score": score, "model": model})]

        def task_with(task: Task, dataset: Any) -> Task:
            task.dataset = dataset
            return task

        def sample(input: Any) -> Any:  # noqa: A002 - Inspect's name
            return input

        def message(content: str) -> str:
            return content

        modules: dict[str, dict[str, Any]] = {
            "inspect_ai": {"eval_async": eval_async, "task_with": task_with},
            "inspect_ai.dataset": {"MemoryDataset": list, "Sample": sample},
            "inspect_ai.model": {"ChatMessageUser": message},
        }
        for name, content in modules.items():
            module = ModuleType(name)
            vars(module).update(content)
            monkeypatch.setitem(sys.modules, name, module)

    return install


async def test_the_second_prompt_is_evaluated_with_the_first_conversation(
    install: Callable[[Evaluate], None],
):
    install(lambda task, _: log_of(task.dataset[0]))
    task = Task()
    agent = InspectAI(task, {})
    answers = [agent.output(await agent.prompt(text, Hub())) for text in ("one", "two")]
    assert answers == ["answer 1", "answer 3"]
    assert task.dataset == "the dataset of the user"


def test_the_log_is_deleted_and_nothing_is_scored(install: Callable[[Evaluate], None]):
    seen: dict[str, Any] = {}

    def evaluate(task: Any, options: dict[str, Any]) -> Any:
        seen.update(options, existed=Path(options["log_dir"]).is_dir())
        return log_of(task.dataset[0])

    install(evaluate)
    asyncio.run(InspectAI(Task(), {"model": "openai/x"}).prompt("one", Hub()))
    assert (seen["existed"], seen["score"], seen["model"]) == (True, False, "openai/x")
    assert not Path(seen["log_dir"]).exists()


@pytest.mark.parametrize(
    "status, error, message, cause",
    [
        ("error", "KeyError('bug')", "KeyError('bug')", type(None)),
        ("error", "RetryError(the whole request)", "never (400 invalid_request)", ModelError),
        ("cancelled", None, "cancelled", type(None)),
    ],
)
async def test_a_failed_evaluation_is_reported_with_its_cause(
    install: Callable[[Evaluate], None], status: str, error: str | None, message: str, cause: type
):
    hub = Hub()

    def evaluate(_task: Any, _options: dict[str, Any]) -> Any:
        hub.emit(ERROR, {"message": "never", "status": 400})
        shown = SimpleNamespace(message=error) if error else None
        return SimpleNamespace(status=status, samples=None, error=shown)

    install(evaluate)
    with pytest.raises(RunError) as caught:
        await InspectAI(Task(), {}).prompt("one", hub)
    assert str(caught.value) == f"the evaluation failed: {message}"
    assert type(caught.value.__cause__) is cause


def test_the_options_are_the_arguments_of_an_evaluation(install: Callable[[Evaluate], None]):
    install(lambda task, _: log_of(task.dataset[0]))
    assert {"model", "score"} <= set(InspectAI(Task(), {}).option_names() or ())
