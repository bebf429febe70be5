"""Tool mocks: their shapes, and their precedence over real tools."""

from typing import Any

import pytest

from offbook import call, say, session, when
from offbook.errors import CheckFailed, OffbookWarning, UsageError
from offbook.exchange import Image
from offbook.subjects.session import Api, Context
from offbook.types import Text, ToolOutcome

JSON = dict[str, Any]
FULL = {"content": [{"type": "text", "text": "full"}], "details": {"n": 1}}


async def async_mock(params: JSON) -> str:
    return f"later {params['command']}"


def full_result(params: JSON) -> JSON:
    return {"content": [{"type": "text", "text": params["command"]}], "details": params}


def echo(params: JSON) -> str:
    return f"$ {params['command']}"


RECEIVED: list[JSON] = []


@pytest.mark.parametrize(
    "mock, text, details",
    [
        ("written", "written", {}),
        (echo, "$ ls", {}),
        (lambda: "no parameters wanted", "no parameters wanted", {}),
        (full_result, "ls", {"command": "ls"}),
        (async_mock, "later ls", {}),
        (FULL, "full", {"n": 1}),
        ({"content": "short"}, "short", {}),
        ({"content": ["a", Text("b")]}, "a\nb", {}),
        (ToolOutcome((Text("own"),), {"k": 2}), "own", {"k": 2}),
        (None, "", {}),
        (RECEIVED.append, "", {}),
    ],
    ids=[
        "string",
        "function",
        "function without parameters",
        "function with a full result",
        "async function",
        "constant full result",
        "content as a string",
        "content as strings",
        "outcome",
        "nothing",
        "C function",
    ],
)
def test_shapes_of_a_mock(mock: Any, text: str, details: Any):
    with session(mock_tools={"bash": mock}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        (result,) = t.events.tool_results
        assert (result.text, result.details) == (text, details)
        assert (result.mocked, result.is_error) == (True, False)


@pytest.mark.parametrize("is_error", [False, True])
def test_then_receives_text_content_details_and_whether_it_is_an_error(*, is_error: bool):
    received: list[Any] = []
    with session(mock_tools={"bash": {**FULL, "isError": is_error}}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}).then(received.append), say("ok")]))
    (result,) = received
    assert (result.text, result.details, result.is_error) == ("full", {"n": 1}, is_error)
    assert [block.text for block in result.content] == ["full"]


@pytest.mark.parametrize("is_error", [True, False])
def test_a_recorded_result_has_its_call_and_everything_that_the_tool_returned(*, is_error: bool):
    with session(mock_tools={"bash": {**FULL, "isError": is_error}}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        (made,), (result,) = t.events.tool_calls, t.events.tool_results
    assert (result.tool_name, result.tool_call_id) == ("bash", made.tool_call_id)
    assert (result.text, result.details) == ("full", {"n": 1})
    assert (result.is_error, result.mocked) == (is_error, True)
    assert [block.text for block in result.content if isinstance(block, Text)] == ["full"]


def test_a_mock_can_return_an_image():
    picture = {"type": "image", "data": "eA==", "media_type": "image/png"}
    with session(mock_tools={"read": {"content": [picture]}}) as t:
        t.run(when("x", [call("read", {"path": "a.png"}), say("ok")]))
        assert t.events.tool_results[0].content == (Image("eA==", "image/png"),)


@pytest.mark.parametrize(
    "answer, expected",
    [
        (5, "tool result: expected a mapping, got an integer"),
        ({"text": "x"}, "unknown key 'text'"),
        ({"details": 1}, "missing key 'content'"),
        ({"content": 5}, "tool result.content: expected a text or a list, got an integer"),
        ({"content": [5]}, "content block of a tool result: expected a mapping, got an integer"),
        ({"content": [{"type": "audio"}]}, "content block of a tool result.type: Invalid value"),
        ({1: 2}, "tool result: expected a text"),
    ],
)
def test_a_mock_that_returns_no_tool_result_breaks_the_test(answer: Any, expected: str):
    def bash() -> Any:
        return answer

    with (
        session(mock_tools={"bash": bash}, propagate_errors=False) as t,
        pytest.raises(UsageError) as caught,
    ):
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
    assert expected in str(caught.value)
    assert "mock_tools['bash']" in str(caught.value)


def own_bash(api: Api) -> None:
    @api.tool("bash")
    def bash(params: JSON, ctx: Context) -> str:
        return "the extension's"


def test_a_tool_of_an_extension_wins_over_a_mock_and_the_mock_is_reported():
    t = session(extensions=[own_bash], mock_tools={"bash": "the mock's"})
    t.run(when("x", [call("bash"), say("ok")]))
    (result,) = t.events.tool_results
    assert (result.text, result.mocked) == ("the extension's", False)
    with pytest.raises(CheckFailed, match=r"bash \(the tool of own_bash ran instead") as caught:
        t.dispose()
    assert "mock_extension_tools=True" in str(caught.value)
    (failed,) = [v for v in t.events.verdicts if v.status == "fail"]
    assert (failed.check, failed.actual) == ("mocks used", ["bash"])


def test_a_mock_replaces_an_extension_tool_with_mock_extension_tools():
    mocks = {"bash": "the mock's"}
    with session(extensions=[own_bash], mock_tools=mocks, mock_extension_tools=True) as t:
        t.run(when("x", [call("bash"), say("ok")]))
        (result,) = t.events.tool_results
        assert (result.text, result.mocked) == ("the mock's", True)
    assert [v.status for v in t.events.verdicts] == ["pass"]


def test_an_unused_mock_fails_the_test():
    with (
        pytest.raises(CheckFailed, match="never used: mock_tools read"),
        session(mock_tools={"bash": "ok", "read": "ok"}) as t,
    ):
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))


def test_an_unused_mock_that_wins_over_an_extension_is_not_said_to_lose():
    options: dict[str, Any] = {"mock_tools": {"bash": "ok"}, "mock_extension_tools": True}
    with pytest.raises(CheckFailed) as caught, session(extensions=[own_bash], **options) as t:
        t.run(when("x", [say("ok")]))
    assert caught.value.what == "never used: mock_tools bash"


def test_an_unused_mock_can_be_allowed():
    with session(mock_tools={"read": "ok"}, allow_unused_mocks=True) as t:
        t.run(when("x", [say("ok")]))
    assert [v.status for v in t.events.verdicts] == ["pass", "warn"]


def test_an_unused_mock_is_a_python_warning_without_automatic_assertions():
    with (
        pytest.warns(OffbookWarning, match="never used: mock_tools read"),
        session(mock_tools={"read": "ok"}, auto_assert=False) as t,
    ):
        t.run(when("x", [say("ok")]))
    assert [v.status for v in t.events.verdicts] == ["pass", "warn"]


def test_an_unused_mock_does_not_hide_the_failure_of_the_test():
    def fail_after_a_run() -> None:
        with session(mock_tools={"read": "ok"}) as t:
            t.run(when("x", [say("ok")]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        fail_after_a_run()
    assert not hasattr(caught.value, "__notes__")


def test_a_mocked_tool_whose_call_was_blocked_counts_as_used():
    def guard(api: Api) -> None:
        @api.on("tool_call")
        def block(_event: object, _ctx: Context) -> JSON:
            return {"block": True}

    with session(extensions=[guard], mock_tools={"bash": "ok"}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))


def test_a_mock_can_define_a_new_tool():
    def search(params: JSON) -> str:
        return f"found {params['q']}"

    with session(mock_tools={"search": search}) as t:
        t.run(when("x", [call("search", {"q": "eggs"}), say("ok")]))
        assert t.events.tool_results[0].text == "found eggs"


@pytest.mark.parametrize(
    "details", [object(), {1: {2}}, {(1,): "x"}], ids=["object", "number keys", "tuple keys"]
)
def test_details_that_are_not_json_are_unchanged_in_then_and_text_in_the_trace(details: Any):
    received: list[Any] = []

    def extension(api: Api) -> None:
        @api.tool("odd")
        def odd(params: JSON, ctx: Context) -> ToolOutcome:
            return ToolOutcome((Text("ok"),), details)

    with session(extensions=[extension]) as t:
        t.run(
            when(
                "x", [call("odd").then(lambda result: received.append(result.details)), say("ok")]
            ),
            when("y", [call("odd"), say("ok")]),
        )
        assert len(t.events.tool_results) == 2
        assert t.events.tool_results[0].details is not None
    assert received[0] is details
