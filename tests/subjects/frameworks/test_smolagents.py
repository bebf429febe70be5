"""smolagents: every reply is a tool call, the last one is the answer."""

from typing import Any

import pytest
from smolagents import (  # pyright: ignore[reportMissingTypeStubs] - it has none
    OpenAIServerModel,
    Tool,
    ToolCallingAgent,
)

from offbook import call, drive, when

SCRIPT = when(
    "Find order 7",
    [
        call("find_order", {"number": 7}),
        call("final_answer", {"answer": "Done."}, unanswered=True),
    ],
)
NOW = when("And now?", [call("final_answer", {"answer": "Nothing."}, unanswered=True)])


class FindOrder(Tool):
    name = "find_order"
    description = "Find an order."
    inputs = {"number": {"type": "integer", "description": "its number"}}  # noqa: RUF012 - so it wants it
    output_type = "string"

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType] - it has no types
        self.found: list[int] = []

    def forward(self, number: int) -> str:
        self.found.append(number)
        return f"order {number}"


def agent(tool: Any, **options: Any) -> Any:
    model = OpenAIServerModel("m", api_key="none")
    return ToolCallingAgent([tool], model, verbosity_level=0, **options)


@pytest.mark.parametrize("streamed", [False, True])
def test_the_model_is_scripted_and_the_tool_is_real(*, streamed: bool):
    tool = FindOrder()
    with drive(agent(tool, stream_outputs=streamed)) as rehearsal:
        run = rehearsal.run(SCRIPT)
        assert [made.name for made in run.scripted.calls] == ["find_order", "final_answer"]
        assert run.output == "Done."
    assert tool.found == [7]


def test_results_that_are_sent_as_text_reach_the_trace_and_then():
    seen: list[str] = []
    look_up = call("find_order", {"number": 7}).then(lambda result: seen.append(result.text))
    answer = call("final_answer", {"answer": "Done."}, unanswered=True)
    with drive(agent(FindOrder())) as rehearsal:
        run = rehearsal.run(when("Find order 7", [look_up, answer]))
        assert [result.text for result in run.results("find_order")] == seen == ["order 7"]


def test_prompts_continue_the_conversation_and_a_new_run_starts_empty():
    one = agent(FindOrder())
    for _ in range(2):
        with drive(one) as rehearsal:
            rehearsal.run(SCRIPT, NOW)
            counts = [e.data["count"] for e in rehearsal.events.named("model.request")]
        assert counts[0] == 1
        assert counts == sorted(set(counts))


def test_a_tool_is_mocked_in_place_and_restored():
    tool, asked = FindOrder(), list[Any]()
    one = agent(tool)

    def mock(params: dict[str, Any]) -> str:
        asked.append(params)
        return "mocked"

    with drive(one, mock_tools={"find_order": mock}) as rehearsal:
        rehearsal.run(SCRIPT)
        messages = str(rehearsal.events.messages)
    assert (tool.found, asked) == ([], [{"number": 7}])
    assert "mocked" in messages
    with drive(one) as rehearsal:
        rehearsal.run(SCRIPT)
    assert tool.found == [7]
