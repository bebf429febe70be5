"""Each execution of a watched tool is emitted: its call, its input, its content and its end."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from offbook.determinism import FaultInjector, Faults
from offbook.errors import InjectedFault
from offbook.exchange import Reply, Request, ToolCall
from offbook.subjects import MockedTool, RunContext, ToolWatch
from offbook.trace import Events, Hub, KeptEvents
from offbook.trace.hub import use_hub


class Silent:
    """A source that is never asked."""

    async def reply(self, _: Request, /) -> Reply:
        raise NotImplementedError


class Watched:
    """A watch in a run, and its events."""

    def __init__(self, *mocked: str, names: dict[str, str] | None = None) -> None:
        def to_script_call(call: ToolCall) -> ToolCall:
            return ToolCall(call.id, (names or {}).get(call.name, call.name), call.arguments)

        self.hub = Hub()
        self.watch = ToolWatch(mocked)
        self.close = self.watch.open(
            RunContext(Silent(), self.hub, Path(), to_script_call=to_script_call)
        )
        kept = KeptEvents()
        self.hub.subscribe(kept.keep)
        self.named = Events(kept).named

    def called(self, call_id: str, tool: str = "refund", step: int = 1, **given: Any) -> None:
        data = {"call_id": call_id, "tool": tool, "input": given, "step": step}
        self.hub.emit("tool.call", data)

    def run(self, tool: str = "refund", *, call_id: str = "", returns: Any = "ok", **given: Any):
        with self.watch.call(tool, given, call_id) as execution:
            assert execution.returns(returns) is returns

    @property
    def started(self) -> list[tuple[str, dict[str, Any], int]]:
        found = [event.data for event in self.named("tool.start")]
        return [(data["call_id"], data["input"], data.get("number", 1)) for data in found]


def test_an_execution_is_emitted_when_it_starts_and_ends():
    watched = Watched()
    watched.called("1", n=7)
    with watched.watch.call("refund", {"n": 7}, "1") as execution:
        assert watched.started == [("1", {"n": 7}, 1)]
        assert watched.named("tool.end") == []
        execution.returns("done")
    (end,) = watched.named("tool.end")
    assert 0 <= end.data.pop("ms") < 60_000
    assert end.data == {
        "call_id": "1",
        "tool": "refund",
        "is_error": False,
        "number": 1,
        "content": [{"type": "text", "text": "done"}],
    }
    assert (watched.watch.failed, watched.watch.errors) == ({"1": False}, [])


def test_an_execution_of_a_coroutine_is_emitted():
    async def run(watched: Watched) -> None:
        async with watched.watch.call("refund", {}, "1") as execution:
            execution.returns("done")

    watched = Watched()
    asyncio.run(run(watched))
    assert watched.started == [("1", {}, 1)]
    assert [event.data["is_error"] for event in watched.named("tool.end")] == [False]


def test_after_the_end_of_a_run_calls_are_not_noted():
    watched = Watched()
    watched.close()
    watched.called("1", n=7)
    watched.run(n=7)
    assert watched.started == [("", {"n": 7}, 1)]


# The calls of the model (id, step, input), the inputs of the executions without an id, and their
# calls.
FOUND: dict[str, tuple[list[tuple[str, int, int]], list[int], list[str]]] = {
    "none": ([], [7], [""]),
    "the only one": ([("1", 1, 7)], [7], ["1"]),
    "the one with this input": ([("1", 1, 7), ("2", 1, 8)], [8, 7], ["2", "1"]),
    "the first with this input": ([("1", 1, 7), ("2", 1, 7)], [7, 7], ["1", "2"]),
    "the first of the latest reply": (
        [("1", 1, 7), ("2", 2, 8), ("3", 2, 9)],
        [5, 5, 5],
        ["2", "3", "1"],
    ),
    "the last once more": ([("1", 1, 7), ("2", 1, 7)], [7, 7, 7], ["1", "2", "2"]),
    "none once more for another input": ([("1", 1, 7)], [7, 8], ["1", ""]),
}


@pytest.mark.parametrize("calls, inputs, ids", FOUND.values(), ids=FOUND)
def test_an_execution_without_an_id_is_for_a_call_of_its_tool(
    calls: list[tuple[str, int, int]], inputs: list[int], ids: list[str]
):
    watched = Watched()
    watched.called("0", tool="other", n=7)
    for call_id, step, number in calls:
        watched.called(call_id, step=step, n=number)
    for number in inputs:
        watched.run(n=number)
    assert [call_id for call_id, _, _ in watched.started] == ids


def test_the_executions_of_a_call_are_numbered():
    watched = Watched()
    watched.called("1")
    watched.run(call_id="1")
    watched.run(call_id="1")
    watched.run("other")
    watched.run("other")
    assert [number for _, _, number in watched.started] == [1, 2, 1, 1]
    assert [event.data.get("number", 1) for event in watched.named("tool.end")] == [1, 2, 1, 1]


def test_an_id_of_the_framework_is_kept_if_the_model_made_no_such_call():
    watched = Watched()
    watched.run(call_id="mine")
    assert watched.started == [("mine", {}, 1)]


def test_an_execution_without_a_call_has_no_id():
    watched = Watched()
    with watched.watch.call("refund", {}):
        pass
    assert watched.started == [("", {}, 1)]


def test_an_unknown_id_is_replaced_by_that_of_the_call():
    watched = Watched()
    watched.called("1", n=7)
    watched.run(call_id="mine", n=7)
    assert watched.started == [("1", {"n": 7}, 1)]


def test_the_trace_has_the_names_of_the_script():
    watched = Watched(names={"bash": "shell"})
    watched.called("1", tool="shell", n=7)
    watched.run("bash", n=7)
    assert [event.data["tool"] for event in watched.named("tool.start")] == ["shell"]
    assert watched.started == [("1", {"n": 7}, 1)]


def test_the_calls_of_the_model_are_limited():
    watched = Watched()
    for number in range(1025):
        watched.called(str(number), n=number)
    watched.run(n=0)  # the oldest is forgotten
    watched.run(n=1)
    assert [call_id for call_id, _, _ in watched.started] == ["1", "2"]


def test_the_number_of_executions_of_a_forgotten_call_is_forgotten():
    watched = Watched()
    for number in range(1025):
        watched.called(str(number), n=number)
        if not number:
            watched.run(call_id="0", n=0)
    watched.called("0", tool="other")
    watched.run("other", call_id="0")
    assert [number for _, _, number in watched.started] == [1, 1]


def test_the_duration_is_that_of_the_clock_of_the_run():
    watched = Watched()
    times = iter([10.0, 12.34567])
    watched.hub.timer = lambda: next(times)
    watched.run()
    assert [event.data["ms"] for event in watched.named("tool.end")] == [2.346]


# --- Tools in tools


def test_a_tool_inside_of_another_one_is_a_part_of_it_unless_the_model_called_it():
    watched = Watched()
    watch = watched.watch
    assert watch.expects("find")
    with watch.call("refund", {}, ""):
        assert not watch.expects("refund")
        assert not watch.expects("find")
        watched.called("1", tool="find")
        watched.called("2", tool="find")
        assert watch.expects("find")
        watched.run("find")
        assert watch.expects("find")
        watched.run("find")
        assert not watch.expects("find")
    assert watch.expects("find")


def test_an_execution_of_a_client_accounts_for_one_of_its_server():
    watch = Watched().watch
    assert not watch.is_reported("refund", {"n": 7})
    with watch.call("refund", {"n": 7}, ""):
        assert not watch.is_reported("refund", {"n": 8})
        assert not watch.is_reported("find", {"n": 7})
        assert watch.is_reported("refund", {"n": 7})
        assert not watch.is_reported("refund", {"n": 7})


# --- Inputs


THREE = Field(default=3)


def refund(number: int, note: str = "none", more: Any = THREE) -> None:
    """Take three values."""


# The input of the call, that of the tool, and what is emitted: without defaults that were added.
INPUTS: list[tuple[Any, Any, Any]] = [
    ({"number": 7}, {"number": 7, "note": "none", "more": 3}, {"number": 7}),
    ({"number": 7}, {"number": 7, "note": "other"}, {"number": 7, "note": "other"}),
    ({"number": 7}, {"number": 8, "x": 1}, {"number": 8, "x": 1}),
    ({"number": 7, "note": "a"}, {"number": 7, "note": "none"}, {"number": 7, "note": "none"}),
    ({}, {"number": 7}, {"number": 7}),
    ({"number": 7}, "7", "7"),
    ("7", {"note": "none"}, {"note": "none"}),
]


@pytest.mark.parametrize("made, given, emitted", INPUTS)
def test_a_default_that_the_framework_added_is_no_input(made: Any, given: Any, emitted: Any):
    watched = Watched()
    watched.hub.emit("tool.call", {"call_id": "1", "tool": "refund", "input": made})
    with watched.watch.call("refund", given, "1", functions=(refund,)):
        pass
    assert watched.started == [("1", emitted, 1)]


@pytest.mark.parametrize("functions", [(), (object(),)])
def test_without_a_signature_no_input_is_left_out(functions: tuple[object, ...]):
    watched = Watched()
    watched.called("1", number=7)
    with watched.watch.call("refund", {"number": 7, "note": "none"}, "1", functions=functions):
        pass
    assert watched.started == [("1", {"number": 7, "note": "none"}, 1)]


def test_the_input_is_that_of_the_start():
    watched = Watched()
    given = {1: ["a"]}
    with watched.watch.call("refund", given, "1"):
        given[1].append("b")
    assert watched.started == [("1", {"1": ["a"]}, 1)]


def test_an_input_that_json_has_not_is_shown():
    watched = Watched()
    watched.run(order=Other())
    (start,) = watched.named("tool.start")
    assert "other" in str(start.data["input"]["order"])


class Order(BaseModel):
    number: int


class Other:
    def __repr__(self) -> str:
        return "other"


# What a tool returns, and the content of its end.
CONTENTS: dict[str, tuple[Any, list[str] | None]] = {
    "a text": ("done", ["done"]),
    "nothing": (None, None),
    "a value": ({"n": 7}, ['{"n":7}']),
    "a model": (Order(number=7), ['{"number":7}']),
    "an empty list": ([], ["[]"]),
    "text blocks": ([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}],
                    ["a", "b"]),
    "other blocks": ([{"type": "text", "text": "a"}, {"type": "image"}],
                     ['[{"type":"text","text":"a"},{"type":"image"}]']),
    "a block of another type": ([{"type": "html", "text": "a"}],
                                ['[{"type":"html","text":"a"}]']),
    "a block without a text": ([{"type": "text", "text": 1}], ['[{"type":"text","text":1}]']),
    "a list of texts": (["a"], ['["a"]']),
    "another object": (Other(), None),
}  # fmt: skip


@pytest.mark.parametrize("value, texts", CONTENTS.values(), ids=CONTENTS)
def test_what_a_tool_returns_is_its_content(value: Any, texts: list[str] | None):
    watched = Watched()
    watched.run(returns=value)
    (end,) = watched.named("tool.end")
    content = end.data.get("content")
    assert (None if content is None else [block["text"] for block in content]) == texts


# --- Failures


def broken() -> None:
    raise RuntimeError("no connection")


@wraps(broken)
def wrapped() -> None:
    broken()


def refused() -> None:
    raise ValueError("wrong input")


def raised_from(error: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        try:
            error()
        except Exception as cause:
            raise LookupError("again") from cause

    return run


def raised_after(error: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        try:
            error()
        finally:
            refused()

    return run


def raised_in_a_circle() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__context__, other.__context__ = other, one
    raise one


# The functions of the tool, what runs, and whether the tool's own code ran.
PASSED: dict[str, tuple[tuple[object, ...], Callable[[], None], bool]] = {
    "its function": ((broken,), broken, True),
    "a function that it wraps": ((wrapped,), broken, True),
    "one of its functions": ((refund, broken), broken, True),
    "the framework": ((broken,), refused, False),
    "the framework, because of its function": ((broken,), raised_from(broken), True),
    "the framework, after its function": ((broken,), raised_after(broken), True),
    "the framework, because of itself": ((broken,), raised_from(refused), False),
    "the framework, in a circle": ((broken,), raised_in_a_circle, False),
    "unknown functions": ((), refused, True),
    "a callable object": ((object(),), refused, True),
}


@pytest.mark.parametrize("functions, run, ran", PASSED.values(), ids=PASSED)
def test_an_exception_that_passed_through_no_function_of_the_tool_is_a_refusal(
    functions: tuple[object, ...],
    run: Callable[[], None],
    ran: bool,  # noqa: FBT001 - a column
):
    watched = Watched()
    with suppress(Exception), watched.watch.call("refund", {}, "1", functions=functions):
        run()
    (end,) = watched.named("tool.end")
    assert (end.data["is_error"], end.data.get("ran", True)) == (True, ran)


def test_an_exception_is_emitted():
    watched = Watched()
    with suppress(RuntimeError), watched.watch.call("refund", {}, "1"):
        broken()
    assert [event.data["error"] for event in watched.named("tool.end")] == [
        "RuntimeError: no connection"
    ]
    assert [event.data for event in watched.named("tool.error")] == [
        {"call_id": "1", "tool": "refund", "error": "RuntimeError: no connection"}
    ]
    assert [(error.call_id, error.tool) for error in watched.watch.errors] == [("1", "refund")]


def test_an_exception_for_the_model_is_no_error_of_the_agent():
    watched = Watched()
    with suppress(RuntimeError), watched.watch.call("refund", {}, "1", signals=(RuntimeError,)):
        broken()
    assert (watched.watch.failed, watched.watch.errors) == ({"1": True}, [])
    assert watched.named("tool.error") == []


def test_a_failure_that_the_framework_made_a_result_is_one():
    watched = Watched()
    with watched.watch.call("refund", {}, "1") as execution:
        execution.failed = True
    assert watched.watch.failed == {"1": True}


def test_a_mock_is_marked_and_its_exception_is_no_error_of_the_agent():
    watched = Watched("refund")
    with suppress(RuntimeError), watched.watch.call("refund", {}, "1"):
        broken()
    watched.run("other")
    assert [event.data.get("mocked", False) for event in watched.named("tool.end")] == [True, False]
    assert watched.watch.errors == []


@pytest.mark.parametrize("blocking", [True, False])
def test_an_injected_fault_ends_an_execution(blocking: bool):  # noqa: FBT001 - a parameter
    watched = Watched()
    watched.hub.faults = FaultInjector(Faults(("tool_error:refund@1",)), lambda _: None)

    async def run() -> None:
        if blocking:
            with watched.watch.call("refund", {}, "1", functions=(broken,)):
                pytest.fail("the tool ran")
        async with watched.watch.call("refund", {}, "1", functions=(broken,)):
            pytest.fail("the tool ran")

    with use_hub(watched.hub), pytest.raises(InjectedFault):
        asyncio.run(run())
    (end,) = watched.named("tool.end")
    assert (end.data["is_error"], end.data.get("ran", True)) == (True, True)
    assert watched.watch.errors == []
    assert watched.watch.expects("find")


# --- Mocks


def run_mock(mock: MockedTool, **params: Any) -> Any:
    return asyncio.run(mock.run(params))


async def later(params: dict[str, Any]) -> int:
    return params["n"] + 1


def join(params: dict[str, Any]) -> str:
    return f"do{params['end']}"


def fail(params: dict[str, Any]) -> object:
    return params["missing"]


@pytest.mark.parametrize("value", ["done", join, lambda: "done"])
def test_a_mock_is_a_value_or_a_function_of_the_parameters(value: Any):
    mock = MockedTool("refund", value)
    assert (mock.calls, run_mock(mock, end="ne"), mock.calls) == (0, "done", 1)
    assert mock.error is None


def test_a_mock_may_be_a_coroutine_function():
    assert run_mock(MockedTool("refund", later), n=7) == 8


def test_an_exception_as_a_mock_is_raised_and_is_no_error_of_the_test():
    mock = MockedTool("refund", ValueError("no order"))
    with pytest.raises(ValueError, match="no order"):
        run_mock(mock)
    assert mock.error is None


def test_the_first_exception_of_a_mock_is_kept_with_its_place():
    mock = MockedTool("refund", fail)
    with pytest.raises(KeyError) as first:
        run_mock(mock)
    with pytest.raises(KeyError):
        run_mock(mock)
    assert mock.error is first.value
    assert first.value.__notes__ == ["in mock_tools['refund']"]


def test_a_mock_that_is_cancelled_is_no_error_of_the_test():
    def cancel(_: object) -> None:
        raise asyncio.CancelledError

    mock = MockedTool("refund", cancel)
    with pytest.raises(asyncio.CancelledError):
        run_mock(mock)
    assert mock.error is None


def test_the_exception_of_a_mock_is_no_refusal_of_the_framework():
    watched = Watched("refund")
    mock = MockedTool("refund", ValueError("no order"))
    with suppress(ValueError), watched.watch.call("refund", {}, "1", functions=(broken,)):
        run_mock(mock)
    assert [event.data.get("ran", True) for event in watched.named("tool.end")] == [True]
