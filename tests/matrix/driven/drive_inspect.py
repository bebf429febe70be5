"""An unchanged Inspect task is driven: its solver runs, and the conversation continues."""

import os
from pathlib import Path

os.environ |= {"OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none", "GOOGLE_API_KEY": "none"}
os.environ["INSPECT_DISPLAY"] = "none"

from inspect_ai import Task
from inspect_ai.dataset import Sample
from inspect_ai.solver import Generate, TaskState, generate, solver, use_tools
from inspect_ai.tool import Tool, tool

from offbook import call, drive, fail, say, when
from offbook.errors import RunError, UsageError


@tool
def find_order() -> Tool:
    async def execute(number: int) -> str:
        """Find an order.

        Args:
            number: The order number.
        """
        return f"order {number}: one lamp"

    return execute


dataset = [Sample(input="Something else")]
task = Task(dataset=dataset, solver=[use_tools(find_order()), generate()])
for model in ("openai/gpt-4o", "anthropic/claude-sonnet-4-5", "google/gemini-2.5-pro"):
    with drive(task, model=model) as rehearsal:
        run = rehearsal.run(
            when("Find order 7", [call("find_order", {"number": 7}), say("One lamp.")]),
            when("Thanks", [say("You are welcome.")]),
        )
        assert rehearsal.subject.name == "inspect"
        assert run.results("find_order")[0].text == "order 7: one lamp", model
        assert run.events.named("model.request")[-1].data["count"] > 4, (
            model
        )  # includes the first turn
        assert run.output == "You are welcome.", model
        assert rehearsal.subject.result.samples[0].output.completion == "You are welcome."
assert [sample.input for sample in task.dataset] == ["Something else"]
assert not list(Path().iterdir()), "the logs are removed"

message = ""
try:
    with drive(task, model="openai/gpt-4o", max_retries=0) as rehearsal:
        rehearsal.run(when("Try", [fail("never", status=400)]))
except RunError as error:
    message = str(error)
assert message == "the evaluation failed: never (400 invalid_request)", message


@solver
def careless():
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        try:
            return await generate(state)
        except Exception:  # noqa: BLE001 - a solver that hides the error
            raise KeyError("bug") from None

    return solve


@tool
def broken() -> Tool:
    async def execute() -> str:
        """Break."""
        raise ZeroDivisionError

    return execute


# An exception of the solver or of a tool fails the run, also after a scripted error.
for solvers, turn, reason in (
    (careless(), when("Try", [fail("never", status=400)]), "KeyError('bug')"),
    ([use_tools(broken()), generate()], when("Try", [call("broken", {})]), "ZeroDivisionError()"),
):
    message = ""
    try:
        with drive(Task(solver=solvers), model="openai/gpt-4o", max_retries=0) as rehearsal:
            rehearsal.run(turn)
    except RunError as error:
        message = str(error)
    assert message == f"the evaluation failed: {reason}", message

refused = ""
try:
    drive(task, mock_tools={"find_order": "nothing"})
except UsageError as error:
    refused = str(error)
assert "find_order" in refused
print("driven")
